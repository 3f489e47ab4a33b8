// SPDX-License-Identifier: Apache-2.0
#include "layers/module/export.h"

#include "framework/autograd/grad_mode.h"
#include "layers/sequences/recurrent.h"

namespace halfstep {
namespace {

// Puts the module into evaluation mode while it lives, and then restores each module's own mode.
class EvaluationMode {
 public:
  [[nodiscard]] explicit EvaluationMode(Module& module) {
    for (Module* const m : module.modules()) modes_.emplace_back(m, m->training());
    module.eval();
  }
  ~EvaluationMode() {
    for (const auto& [m, training] : modes_) m->train(training);  // restores children after their parents, which set them too
  }
  EvaluationMode(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> modes_;
};

}  // namespace

OnnxSummary export_onnx(const std::filesystem::path& path, Module& module, const OnnxFunction& forward, const Tensors& examples,
                        const OnnxOptions& options) {
  std::vector<std::pair<std::string, Tensor>> names;
  for (const NamedTensor& t : module.state_tensors()) {
    check<ExportError>(!t.tensor.defined() || t.tensor.device().is_cpu(), "export", "the module must be on the CPU, but ", t.name,
                       " is on ", t.tensor.device(), Help{"module.to(Device::cpu)"});
    names.emplace_back(t.name, t.tensor);
  }
  const EvaluationMode mode(module);
  const auto call = [&](const Tensors& in) {
    const FreshStates begin(module);
    return forward(in);
  };
  return export_onnx(path, call, names, examples, options);
}

OnnxSummary export_onnx(const std::filesystem::path& path, Module& module, const Tensor& example, const OnnxOptions& options) {
  return export_onnx(
      path, module, [&](const Tensors& in) { return Tensors{module(in[0])}; }, {example}, options);
}

}  // namespace halfstep
