// SPDX-License-Identifier: Apache-2.0
// torch::jit::load, which refuses: halfstep does not run programs of TorchScript. Each call that needs one says what to do instead.
#pragma once

#include "torch/autograd/autograd.h"

namespace torch::jit {

using torch::IValue;

// A module of TorchScript, of which there is none: programs with one compile up to the call that throws.
class Module {
 public:
  [[noreturn]] IValue forward(std::vector<IValue> inputs);
  IValue operator()(std::vector<IValue> inputs) { forward(std::move(inputs)); }
  [[noreturn]] void to(Device device, bool non_blocking = false);
  [[noreturn]] void to(ScalarType dtype, bool non_blocking = false);
  [[noreturn]] void eval();
  [[noreturn]] void train(bool on = true);
};
namespace script {
using Module = jit::Module;
}

[[noreturn]] Module load(const std::string& path, std::optional<Device> device = {});
[[noreturn]] Module load(std::istream& in, std::optional<Device> device = {});

}  // namespace torch::jit

namespace torch {
namespace script = jit::script;
}
