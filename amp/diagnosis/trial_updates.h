// SPDX-License-Identifier: Apache-2.0
// What an optimizer makes of gradients, beside what it makes of others, from the same weights and states. Both are as they were
// afterwards; 16-bit copies of the weights are made anew when they are used.
#pragma once

#include <optional>

#include "layers/module/module.h"
#include "optim/optimizer.h"

namespace halfstep {

class TrialUpdates {
 public:
  // Both must outlive it. The optimizer must need no closure.
  TrialUpdates(Module& module, Optimizer& optimizer) : module_(module), optimizer_(optimizer) {}

  // Gradients of the module's parameters, in their order; undefined: none.
  void add(const Tensors& low, const Tensors& single);
  // rms |update of low - update of single| / rms |update of single|; nothing where that moves no weight.
  std::optional<double> error() const;

 private:
  Tensors update_by(const Tensors& gradients);

  Module& module_;
  Optimizer& optimizer_;
  double difference_ = 0, size_ = 0;  // sums of squares
};

}  // namespace halfstep
