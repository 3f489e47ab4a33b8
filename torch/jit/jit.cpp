// SPDX-License-Identifier: Apache-2.0
#include "torch/jit/jit.h"

namespace torch::jit {
namespace {

[[noreturn]] void refuse(const std::string& file) {
  detail::fail("torch::jit: halfstep does not run TorchScript, got ", file,
               ". In Python write torch.save(torch.jit.load(FILE).state_dict(), \"weights.pt\"), then write the module in C++ and "
               "read its weights with torch::load(module, \"weights.pt\").");
}

}  // namespace

Module load(const std::string& file, std::optional<Device>) { refuse(file); }
Module load(std::istream&, std::optional<Device>) { refuse("a stream"); }
IValue Module::forward(std::vector<IValue>) { refuse("a call of forward"); }
void Module::to(Device, bool) { refuse("a call of to"); }
void Module::to(ScalarType, bool) { refuse("a call of to"); }
void Module::train(bool) { refuse("a call of train"); }

}  // namespace torch::jit
