// SPDX-License-Identifier: Apache-2.0
#include "torch/serialize/script.h"

namespace torch::jit {
namespace {
[[noreturn]] void refuse(const std::string& op, const std::string& got, const std::string& file = "FILE") {
  const std::string help =
      "write the model as a torch::nn::Module, and read the file's weights into it: torch::load(model, \"" + file + "\")";
  hs::fail<hs::ValueError>(op, "programs of TorchScript are not run, got ", got, hs::Help{help});
}
[[noreturn]] void refuse_member(const std::string& name) { refuse("torch::jit::Module::" + name, "a call of one"); }
}  // namespace

IValue Module::forward(std::vector<IValue>) { refuse_member("forward"); }
void Module::to(Device, bool) { refuse_member("to"); }
void Module::to(ScalarType, bool) { refuse_member("to"); }
void Module::eval() { refuse_member("eval"); }
void Module::train(bool) { refuse_member("train"); }
Module load(const std::string& path, std::optional<Device>) { refuse("torch::jit::load", '"' + path + '"', path); }
Module load(std::istream&, std::optional<Device>) { refuse("torch::jit::load", "a stream"); }

}  // namespace torch::jit
