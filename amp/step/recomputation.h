// SPDX-License-Identifier: Apache-2.0
// Chooses which modules compute their activations again in backward (Module::recompute_in_backward), so that a training step fits
// into a number of bytes and repeats as few operations as possible. Steps on Device::meta, which compute nothing, are measured.
//
//   const DefaultDevice on(Device::meta);
//   Net net;                                       // as the one that will be trained
//   AdamW opt(net.parameters());
//   GradScaler scaler({.enabled = false});
//   TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::meta});
//   const Tensor x = empty({8, 3, 224, 224}), y = empty({8}, {.dtype = DType::i64});
//   const RecomputationPlan plan = plan_recomputation(net, [&] { step(x, y); }, size_t(6) << 30);
//   recompute_modules(trained_net, plan.modules);
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "framework/tensor/memory.h"
#include "layers/module/module.h"

namespace halfstep {

// The peak of `now` without what was live before: that of a part of a program.
inline MemoryStats peak_without(MemoryStats now, const MemoryStats& before) {
  now.peak -= before.live;
  for (size_t i = 0; i < now.peak_by_tag.size(); ++i) now.peak_by_tag[i] -= before.live_by_tag[i];
  return now;
}

struct RecomputationOptions {
  // A step that cannot fit throws MemoryError; without this, the plan is the one with the smallest peak that was found.
  bool must_fit = true;
  std::string where = "plan_recomputation";  // that the error names
  MemoryStats others = {};                   // what others hold on Device::meta, which is not counted
};

struct RecomputationPlan {
  std::vector<std::string> modules;          // below the model, in the order of the forward; empty: the step fits as it is
  MemoryStats before, after;                 // peaks of a step without recomputation and with it
  double flops_before = 0, flops_after = 0;  // of its products
  double repeated() const { return flops_before > 0 ? flops_after / flops_before - 1 : 0; }  // share of the operations
};

// `step` runs one training step of `model`, all on Device::meta. It is called about as often as the model has kinds of modules.
//
// Modules that can be chosen are called from one tensor to one, and neither they nor a module within them have hooks,
// parametrizations or a state that continues from batch to batch. A module that already recomputes stays so. Of all choices that
// fit by the bytes and operations of each module, the one of the fewest operations is taken. A step with the choice is measured, so
// that the peak is exact. The model is left as it was.
//
// Throws MemoryError if no choice fits: the smallest peak that was reached, and what takes the most at it.
RecomputationPlan plan_recomputation(Module& model, const std::function<void()>& step, size_t budget,
                                     const RecomputationOptions& options = {});

// Makes the named modules below `model` recompute. Throws ValueError for a name that no module has.
void recompute_modules(Module& model, const std::vector<std::string>& names);

}  // namespace halfstep
