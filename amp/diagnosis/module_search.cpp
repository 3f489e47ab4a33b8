// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/module_search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace halfstep {
namespace {

// The precisions of modules, put back at the end of the scope.
class Precisions {
 public:
  [[nodiscard]] explicit Precisions(Module& model) {
    for (const auto& [name, module] : model.named_modules()) {
      modules_.emplace(name, module);
      before_.emplace_back(module, module->precision());
    }
  }
  ~Precisions() {
    for (const auto& [module, precision] : before_) restore(*module, precision);
  }
  Precisions(const Precisions&) = delete;

  // False: there is no such module, or it computes in float32 already.
  bool widen(const std::string& path) {
    const auto at = modules_.find(path);
    if (path.empty() || at == modules_.end() || at->second->precision() == DType::f32) return false;
    at->second->set_precision(DType::f32);
    return true;
  }
  void put_back(const std::string& path) {
    Module* const module = modules_.at(path);
    for (const auto& [m, precision] : before_)
      if (m == module) restore(*m, precision);
  }
  // A module's place in the order of the model.
  ptrdiff_t place(const std::string& path) const {
    Module* const module = modules_.at(path);
    return std::find_if(before_.begin(), before_.end(), [&](const auto& b) { return b.first == module; }) - before_.begin();
  }

 private:
  static void restore(Module& m, std::optional<DType> precision) {
    if (precision)
      m.set_precision(*precision);
    else
      m.clear_precision();
  }
  std::map<std::string, Module*> modules_;
  std::vector<std::pair<Module*, std::optional<DType>>> before_;
};

}  // namespace

ModuleSearch search_modules(const StepUnderTest& step, const Arm& arm, size_t most) {
  ModuleSearch out;
  Precisions precisions(step.module);
  out.arm = run_arm(step, arm);
  while (!out.arm.finite() && out.modules.size() < most) {
    // The module itself, or what feeds it where the gradient that it hands back is too large.
    std::string path = out.arm.layer;
    if (!precisions.widen(path)) {
      path = out.arm.feeding_layer;
      if (!precisions.widen(path)) return out;
    }
    out.modules.push_back(path);
    out.arm = run_arm(step, arm);
  }
  out.holds = out.arm.finite();
  if (!out.holds) return out;
  for (const std::string& path : std::vector<std::string>(out.modules)) {
    if (out.modules.size() == 1) break;
    precisions.put_back(path);
    ArmResult without = run_arm(step, arm);
    if (without.finite()) {
      std::erase(out.modules, path);
      out.arm = std::move(without);
    } else {
      precisions.widen(path);
    }
  }
  std::sort(out.modules.begin(), out.modules.end(),
            [&](const auto& a, const auto& b) { return precisions.place(a) < precisions.place(b); });
  return out;
}

std::string as_setting(const std::vector<std::string>& modules) {
  std::string out = R"("amp": {"modules": {)";
  for (size_t i = 0; i < modules.size(); ++i) out += joined(i == 0 ? "" : ", ", '"', modules[i], R"(": "float32")");
  return out + "}}";
}

}  // namespace halfstep
