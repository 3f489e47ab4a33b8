// SPDX-License-Identifier: Apache-2.0
// Compares an optimizer's updates for two lists of gradients, from the same weights and states, and restores both. 16-bit copies
// of the weights are made again at their next use.
#pragma once

#include <optional>

#include "layers/module/module.h"
#include "optim/optimizer.h"

namespace halfstep {

class TrialUpdates {
 public:
  // Both must outlive it. The optimizer must need no closure.
  TrialUpdates(Module& module, Optimizer& optimizer) : module_(module), optimizer_(optimizer) {}

  // Takes a trial step with the 16-bit gradients and one with the float32 gradients of all parameters, in their order; undefined:
  // none. Clears the parameters' gradients.
  void add(const Tensors& low, const Tensors& float32);
  // Returns rms |update of low - update of float32| / rms |update of float32|; nothing if the latter moves no weight.
  std::optional<double> error() const;

 private:
  Tensors update_by(const Tensors& gradients);

  Module& module_;
  Optimizer& optimizer_;
  double difference_ = 0, size_ = 0;  // sums of squares
};

}  // namespace halfstep
