// SPDX-License-Identifier: Apache-2.0
// torch::jit::load, which refuses: halfstep runs no TorchScript. A program that loads a model compiles, and its error says what to
// do instead.
#pragma once

#include "torch/autograd/autograd.h"

namespace torch {
namespace jit {

// What load would return; there is none.
class Module {
 public:
  Module() = delete;
  IValue forward(std::vector<IValue> inputs);
  IValue operator()(std::vector<IValue> inputs) { return forward(std::move(inputs)); }
  void to(Device device, bool non_blocking = false);
  void to(ScalarType dtype, bool non_blocking = false);
  void train(bool on = true);
  void eval() { train(false); }
};
[[noreturn]] Module load(const std::string& file, std::optional<Device> device = {});
[[noreturn]] Module load(std::istream& in, std::optional<Device> device = {});

namespace script {
using Module = jit::Module;
}
}  // namespace jit

namespace script = jit::script;

}  // namespace torch
