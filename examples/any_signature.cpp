// SPDX-License-Identifier: Apache-2.0
// A module that takes several tensors and gives several, hooks that look into it, a copy, and a file that Python reads.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

// Reads a sequence step by step: x [batch, steps, width] and, if there is one, the state so far. Gives the outputs of all steps and
// the last state.
struct Reader : ModuleOf<Reader> {
  Part<Linear> in, back;
  explicit Reader(int64_t width) : in(this, "in", width, width), back(this, "back", width, width, false) {}

  std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& state = {}) {
    Tensor h = state;
    Tensors outputs;
    for (int64_t t = 0; t < x.size(1); ++t) {
      const Tensor drive = in(x.select(1, t));
      h = tanh(h.defined() ? drive + back(h) : drive);
      outputs.push_back(h);
    }
    return {stack(outputs, 1), h};
  }
};

}  // namespace

int main() {
  manual_seed(0);
  Reader reader(8);
  Linear head(8, 1);
  const Tensor x = randn({32, 6, 8}), target = x.sum({1, 2}, false).unsqueeze(1);
  std::vector<Tensor> parameters = reader.parameters();
  for (const Tensor& p : head.parameters()) parameters.push_back(p);
  AdamW optimizer(parameters, {.lr = 0.02});

  // A hook sees every call of a layer, here the largest output of each; the other the gradient that leaves the module.
  std::map<std::string, double> largest;
  for (auto& [name, module] : reader.named_modules())
    module->register_forward_hook([&largest, name = name](Module&, const Tensors&, const Tensors& out) {
      const NoGrad quiet;
      largest[name] = std::max(largest[name], out[0].abs().max().item<double>());
    });
  int backwards = 0;
  reader.register_full_backward_hook([&](Module&, const Tensors&, const Tensors&) { ++backwards; });

  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const auto [outputs, state] = reader(x);
    const Tensor loss = mse_loss(head(state), target);
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  std::cout << "loss " << first << " -> " << last << "; largest output of the reader " << largest[""] << '\n';
  claim(last < first / 4, "the module trains");
  claim(largest[""] <= 1 && largest.contains("in") && largest.contains("back"), "hooks saw it and its layers");
  claim(backwards == 60, "one backward a step");

  Reader copy = reader;
  const NoGrad quiet;
  const auto [half, state] = copy(x.narrow(1, 0, 3));
  const auto [rest, end] = copy(x.narrow(1, 3, 3), state);
  const Tensor difference = (end - reader(x).second).abs().max();
  claim(difference.item<double>() < 1e-5, "a copy, which continues from a state, ends where the module ends");

  const auto file = std::filesystem::temp_directory_path() / "halfstep_reader.safetensors";
  save(reader, file);
  Reader other(8);
  load(other, file);
  std::filesystem::remove(file);
  claim(other.in->weight.to_vector<float>() == reader.in->weight.to_vector<float>(), "a file brings the weights back");
  return failed_claims;
}
