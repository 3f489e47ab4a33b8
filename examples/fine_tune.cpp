// SPDX-License-Identifier: Apache-2.0
// Weights from elsewhere. ResNet-18 as torchvision saved it gets a head for ten digits: first only the head learns, then
// everything, the rest at a tenth of the head's rate. GPT-2 as Hugging Face saved it writes what it writes in Python.
//
//   fine_tune [FILE]    FILE: the published ResNet-18, as safetensors or .pt. Without it small files of random weights are read,
//   which
//                       scripts/make_fine_tune_goldens.py made with PyTorch.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "examples/claim.h"
#include "examples/gpt2.h"
#include "examples/resnet18.h"

namespace {

// The mean loss of a pass over the digits, as pictures of three channels.
double train_epoch(TrainStep& step, const std::shared_ptr<DigitsDataset>& digits) {
  DataLoader loader(digits, {.batch_size = 32, .shuffle = true, .drop_last = true});
  double sum = 0;
  for (const Batch& b : loader) sum += step(b.input.expand({-1, 3, -1, -1}), b.target).loss.item<double>();
  return sum / double(loader.size());
}

// What is always the most probable token, `count` times.
std::vector<int64_t> continued(Gpt2& gpt, std::vector<int64_t> ids, int count) {
  const NoGrad off;
  gpt.eval();
  const size_t given = ids.size();
  for (int i = 0; i < count; ++i) ids.push_back(gpt(from_vector(ids, {1, int64_t(ids.size())}))[0][-1].argmax().item<int64_t>());
  return {ids.begin() + int64_t(given), ids.end()};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string small = "tests/apps/fine_tune/";  // run it from the root of the sources
  const bool published = argc > 1;
  const std::string file = published ? argv[1] : small + "resnet18.safetensors";
  manual_seed(1);
  ResNet18 net(published ? 1000 : 6, published ? 64 : 2);
  load(net, file);  // all names and shapes must be those of the file
  net.fc = Linear(net.fc->in_features(), 10);
  net.requires_grad_(false);
  net.fc->requires_grad_(true);

  const auto digits = std::make_shared<DigitsDataset>(DigitsOptions{.size = published ? 320 : 960});
  const CrossEntropyLoss loss;
  GradScaler scaler({.enabled = false});  // bfloat16 needs none
  const Tensor before = net.conv1->weight.clone();
  double first = 0, head = 0, all = 0;
  {
    AdamW opt(net.fc->parameters(), {.lr = 0.01});
    TrainStep step(net, loss, opt, scaler, nullptr, {.amp = DType::bf16});
    first = train_epoch(step, digits);
    head = train_epoch(step, digits);
  }
  claim(head < first, "the new head learns");
  claim(equal(net.conv1->weight, before), "frozen parameters stay as they are in the file");

  net.requires_grad_(true);
  std::vector<Tensor> body;
  for (const NamedTensor& p : net.named_parameters()) {
    if (!p.name.starts_with("fc.")) body.push_back(p.tensor);
  }
  AdamW opt(std::vector<ParamGroup>{{.params = body, .lr = 1e-3}, {.params = net.fc->parameters(), .lr = 1e-2}});
  TrainStep step(net, loss, opt, scaler, nullptr, {.amp = DType::bf16});
  for (int epoch = 0; epoch < 2; ++epoch) all = train_epoch(step, digits);
  std::cout << "loss " << first << ", then " << head << " with a new head, then " << all << " with all parameters\n";
  claim(all < head, "all parameters together learn more");

  Gpt2 gpt({.tokens = 420, .positions = 32, .width = 16, .blocks = 2, .heads = 2});
  // The file has the names of the body, and buffers that are no weights. The head is the embedding, so that it is read, too.
  load(*gpt.transformer, small + "gpt2.safetensors",
       {.skip = [](const std::string& name) { return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"); }});
  const std::vector<int64_t> prompt = {392, 82, 83, 84, 221, 390, 84, 73, 90, 415, 26};  // "First Citizen:"
  claim(continued(gpt, prompt, 8) == std::vector<int64_t>{34, 368, 368, 368, 132, 87, 52, 256}, "GPT-2 writes PyTorch's tokens");
  return failed_claims;
}
