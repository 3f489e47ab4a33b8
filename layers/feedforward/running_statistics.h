// SPDX-License-Identifier: Apache-2.0
// Recomputes the running statistics of a model whose weights changed without a forward, such as averaged weights.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "layers/feedforward/normalization.h"

namespace halfstep {

// Recomputes the running statistics of all batch norms, and of instance norms that track them, as equal averages over forwards in
// training mode of these inputs. Frozen statistics are not changed. Use it for averaged weights, with which no statistics were
// computed:
//   update_bn(net, inputs);  // any range of tensors
class RunningStatistics {
 public:
  [[nodiscard]] explicit RunningStatistics(Module& model);  // resets the statistics
  ~RunningStatistics();                                     // restores momenta and modes
  RunningStatistics(const RunningStatistics&) = delete;
  bool any() const { return !norms_.empty(); }

 private:
  std::vector<std::pair<RunningNorm*, std::optional<double>>> norms_;
  std::vector<std::pair<Module*, bool>> modes_;
};
template <class Inputs>
void update_bn(Module& model, Inputs&& inputs) {
  const RunningStatistics anew(model);
  if (!anew.any()) return;
  const NoGrad off;
  for (const Tensor& x : inputs) model(x);
}

}  // namespace halfstep
