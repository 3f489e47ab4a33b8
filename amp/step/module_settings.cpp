// SPDX-License-Identifier: Apache-2.0
#include "amp/step/module_settings.h"

#include <algorithm>
#include <unordered_map>

#include "layers/feedforward/normalization.h"
#include "layers/module/assignments.h"

namespace halfstep {
namespace {

using Lives = std::unordered_map<const Module*, std::weak_ptr<const Module>>;

void collect_descendants(const Module& module, Lives& out) {
  for (const Part<Module>& child : module.children()) {
    if (const std::shared_ptr<Module> held = child.ptr(); held && out.emplace(held.get(), held).second)
      collect_descendants(*held, out);
  }
}

}  // namespace

ModuleSettings::State ModuleSettings::state_of(const Module& module, const RunningNorm* norm) {
  State out{module.training(), module.recomputes_in_backward(), false, module.precision(), {}};
  if (norm) out.syncs = norm->syncs(), out.momentum = norm->momentum();
  return out;
}

std::vector<Tensor> ModuleSettings::tensors_of(const Module& module) {
  std::vector<Tensor> out = module.parameters(), buffers = module.buffers();
  out.insert(out.end(), buffers.begin(), buffers.end());
  return out;
}

void ModuleSettings::note(const Module& module) {
  modules_.clear();
  Lives lives;
  collect_descendants(module, lives);
  module.visit([&](const Module& m) {
    const auto* const norm = dynamic_cast<const RunningNorm*>(&m);
    modules_.push_back({&m, lives[&m], norm, state_of(m, norm)});
  });
  assignments_ = module_assignments;
  text_ = module.str();
  tensors_ = tensors_of(module);
}

bool ModuleSettings::have_changed(const Module& module) {
  size_t i = 0;
  bool same = true;
  module.visit([&](const Module& m) {
    if (!same) return;
    same = i < modules_.size();
    if (!same) return;
    const Noted& n = modules_[i];
    same = n.module == &m && (i == 0 || !n.life.expired()) && state_of(m, n.norm) == n.state;
    ++i;
  });
  if (!same || i != modules_.size()) return true;
  const uint64_t assignments = module_assignments;
  if (assignments == assignments_) return false;
  const std::vector<Tensor> now = tensors_of(module);
  const auto alike = [](const Tensor& a, const Tensor& b) { return a.same(b); };
  if (!std::equal(now.begin(), now.end(), tensors_.begin(), tensors_.end(), alike) || module.str() != text_) return true;
  assignments_ = assignments;  // of other modules
  return false;
}

}  // namespace halfstep
