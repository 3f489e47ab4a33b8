// SPDX-License-Identifier: Apache-2.0
// Running statistics of a model whose weights have changed without any forward, such as averaged ones.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "layers/feedforward/normalization.h"

namespace halfstep {

// Makes the running statistics of all batch norms anew, and of instance norms that track them, as equal averages over forwards in
// training mode of these inputs; a model without any does nothing. Frozen statistics stay. For averaged weights, whose own
// statistics nothing has seen:
//   update_bn(net, inputs);  // any range of tensors
class RunningStatistics {
 public:
  [[nodiscard]] explicit RunningStatistics(Module& model);  // forgets the statistics
  ~RunningStatistics();                       // the momenta and the modes that all modules had come back
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
