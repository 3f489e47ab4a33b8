// SPDX-License-Identifier: Apache-2.0
// Recomputes the running statistics of a model whose weights changed without a forward, such as averaged weights.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/base/guard.h"
#include "layers/feedforward/normalization.h"

namespace halfstep {

// While it lives, the model is in training mode, and the running statistics of all batch norms, and of instance norms that track
// them, are equal averages over its forwards. Frozen statistics are not changed.
class RunningStatistics : LocalGuard {
 public:
  [[nodiscard]] explicit RunningStatistics(Module& model);  // resets the statistics
  ~RunningStatistics();                                     // restores momenta and modes
  bool any() const { return !norms_.empty(); }              // whether the model has such norms

 private:
  std::vector<std::pair<RunningNorm*, std::optional<double>>> norms_;
  std::vector<std::pair<Module*, bool>> modes_;
};
// Recomputes the running statistics by forwards of a range of inputs: for averaged weights, with which no statistics were computed.
//   update_bn(net, inputs);
template <class Inputs>
void update_bn(Module& model, Inputs&& inputs) {
  const RunningStatistics statistics(model);
  if (!statistics.any()) return;
  const NoGrad off;
  for (const Tensor& x : inputs) model(x);
}

}  // namespace halfstep
