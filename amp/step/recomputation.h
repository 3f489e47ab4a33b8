// SPDX-License-Identifier: Apache-2.0
// Chooses the modules that recompute their activations in backward (Module::recompute_in_backward), so that a training step fits
// into a number of bytes and repeats as few operations as possible. Measures steps on Device::meta, which compute nothing.
//
//   const DefaultDevice on(Device::meta);
//   Net net;                                       // like the one that will be trained
//   AdamW opt(net.parameters());
//   GradScaler scaler({.enabled = false});
//   TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::meta});
//   const Tensor x = empty({8, 3, 224, 224}), y = empty({8}, {.dtype = DType::i64});
//   const RecomputationPlan plan = plan_recomputation(net, [&] { step(x, y); }, size_t(6) << 30);
//   recompute_modules(trained_net, plan.modules);
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/tensor/memory.h"
#include "layers/module/module.h"

namespace halfstep {

// Returns the peak of `now` minus the bytes that were live before: the peak of a part of a program.
inline MemoryStats peak_without(MemoryStats now, const MemoryStats& before) {
  now.peak -= before.live;
  for (size_t i = 0; i < now.peak_by_tag.size(); ++i) now.peak_by_tag[i] -= before.live_by_tag[i];
  return now;
}

struct RecomputationOptions {
  // Throws MemoryError for a step that cannot fit; if false, returns the plan with the smallest peak.
  bool must_fit = true;
  std::string where = "plan_recomputation";  // name in the error
  MemoryStats others = {};                   // bytes of others on Device::meta, which do not count
};

struct RecomputationPlan {
  std::vector<std::string> modules;          // below the model, in the order of the forward; empty: the step fits without
  MemoryStats before, after;                 // peaks of a step without recomputation and with it
  double flops_before = 0, flops_after = 0;  // of its products
  double repeated() const { return flops_before > 0 ? flops_after / flops_before - 1 : 0; }  // share of the operations
};

// Plans for `step`, which runs one training step of `model`, all on Device::meta. Calls it twice; if modules must recompute, also
// once for each kind of module, and up to about 220 times to compare choices.
//
// Modules that can be chosen are called from one tensor to one, and neither they nor their descendants have hooks,
// parametrizations or a state that continues from batch to batch. A module that already recomputes still does. Among the choices
// that fit by the bytes and operations of each module, it takes the one with the fewest operations, and measures a step with it,
// so that the peak is exact. It restores the model.
//
// Throws MemoryError if no choice fits, with the smallest peak reached and the largest parts of it.
RecomputationPlan plan_recomputation(Module& model, const std::function<void()>& step, size_t budget,
                                     const RecomputationOptions& options = {});

// Makes the named modules below `model` recompute. Throws ValueError for a name that no module has.
void recompute_modules(Module& model, const std::vector<std::string>& names);

// ---- the choice of modules, as intervals of a line that save enough at the least cost

struct IntervalCover {
  struct Interval {
    size_t begin, end;  // begin < end: the places that it covers, as calls of a forward. Chosen items do not overlap
    double saves, cost;
  };
  std::vector<Interval> items;
  // needs[p]: total savings required of chosen items that end at or before place p. An item with begin < p < end does not count
  // for p.
  std::vector<double> needs;
};

// Returns the cheapest choice that saves enough, as ascending indices of `items`; nothing if there is none. Walks along the line
// with all Pareto-optimal pairs of savings and cost. If a place has more than `max_pairs`, some are dropped: the choice still
// saves enough, but may cost a little more.
std::optional<std::vector<size_t>> cheapest(const IntervalCover& problem, size_t max_pairs = 2000);

}  // namespace halfstep
