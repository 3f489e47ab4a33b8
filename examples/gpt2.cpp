// SPDX-License-Identifier: Apache-2.0
// GPT-2 (gpt2.h): a small one learns letters in mixed precision and writes a few lines; the published one runs where nothing is
// computed, to see the memory that a training step takes.
//
//   gpt2 [f16 | bf16 | f32] [STEPS]    f16 trains with a GradScaler. HALFSTEP_DATA/tinyshakespeare/input.txt is read where it is.
#include "examples/gpt2.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "examples/claim.h"
#include "framework/tensor/memory.h"

std::string generate(Gpt2& gpt, std::string text, int letters, int64_t top_k) {
  const NoGrad off;
  gpt.eval();
  while (letters-- > 0) {
    const int64_t seen = std::min(int64_t(text.size()), gpt.c.positions);
    const Tensor ids = from_vector(std::vector<int64_t>(text.end() - seen, text.end()), {1, seen});
    const auto [values, letter] = topk(gpt(ids)[0][seen - 1], top_k);
    text += char(letter[top_k == 1 ? 0 : multinomial(softmax(values, -1), 1).item<int64_t>()].item<int64_t>());
  }
  return text;
}

constexpr const char* kSonnet =  // Shakespeare's 18th
    "Shall I compare thee to a summer's day?\nThou art more lovely and more temperate:\n"
    "Rough winds do shake the darling buds of May,\nAnd summer's lease hath all too short a date:\n"
    "Sometime too hot the eye of heaven shines,\nAnd often is his gold complexion dimm'd;\n"
    "And every fair from fair sometime declines,\nBy chance, or nature's changing course, untrimm'd;\n";

int main(int argc, char** argv) {
  const std::string given = argc > 1 ? argv[1] : "f16";
  const DType dtype = given == "f16" ? DType::f16 : given == "bf16" ? DType::bf16 : DType::f32;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 300;
  const char* const data = std::getenv("HALFSTEP_DATA");
  std::stringstream text;
  text << std::ifstream(std::string(data ? data : "") + "/tinyshakespeare/input.txt").rdbuf();
  const std::string read = text.str().empty() ? kSonnet : text.str();
  const Tensor corpus = from_vector(std::vector<int64_t>(read.begin(), read.end()), {int64_t(read.size())});
  manual_seed(1);
  Gpt2 gpt({.tokens = 128, .positions = 48, .width = 64, .blocks = 2, .heads = 4});
  AdamW opt(gpt.parameters(), {.lr = 2.5e-3});
  GradScaler scaler({.enabled = dtype == DType::f16});
  const FunctionLoss loss(
      "NextToken", [](const Tensor& logits, const Tensor& next, const Tensor& seed) {
        return cross_entropy(logits.flatten(0, 1), next.flatten(), {}, seed);
      });
  TrainStep step(gpt, loss, opt, scaler, nullptr, {.amp = if_half(dtype), .clip_grad_norm = 1});
  double first = 0, last = 0;
  for (int i = 0; i < steps; ++i) {
    const Tensor windows = take(corpus, randint(0, corpus.size(0) - 48, {16, 1}) + arange(49));
    last = step(windows.narrow(1, 0, 48), windows.narrow(1, 1, 48)).loss.item<double>();
    if (i == 0) first = last;
  }
  std::cout << given << ": loss " << first << " -> " << last << " in " << steps
            << " steps\ngreedy: " << generate(gpt, "And ", 80, 1) << "\ntop 5: " << generate(gpt, "And ", 160, 5) << '\n';
  claim(std::abs(first - std::log(128.0)) < 0.2, "at first all letters are alike");
  claim(last < 0.75 * first, "the loss falls");

  const DefaultDevice meta(Device::meta);
  Gpt2 small({});
  std::stringstream names, published;
  for (const NamedTensor& t : small.state_tensors()) names << t.name << ' ' << t.tensor.shape() << '\n';
  published << std::ifstream("examples/gpt2_small.txt").rdbuf();  // run it from the root of the sources
  claim(names.str() == published.str(), "names and shapes are those of the published checkpoint");
  claim(small.parameter_count() == 124439808, "124,439,808 parameters: the embedding and the head are one");
  for (const DType low : {DType::f32, DType::f16, DType::bf16}) {
    AdamW adam(small.parameters(), {.lr = 6e-4});
    GradScaler scale({.enabled = low == DType::f16});
    TrainStep train(small, loss, adam, scale, nullptr, {.device = Device::meta, .amp = if_half(low)});
    const Tensor ids = zeros({1, 256}, {.dtype = DType::i64});
    train(ids, ids);
    allocator(Device::meta).reset_peak();
    train(ids, ids);
    const size_t peak = allocator(Device::meta).stats().peak;
    std::cout << "GPT-2 small, AdamW, 1 x 256 tokens, " << low << ": " << (peak >> 20) << " MiB at the peak of a step\n";
    small.zero_grad();
  }
  return failed_claims;
}
