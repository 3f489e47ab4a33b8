// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: memory for time (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
#pragma once

#include <functional>

#include "framework/tensor/tensor.h"

namespace halfstep {

// f(x), keeping x alone: backward computes f again and goes through that. f sees the same autocast state and draws the same random
// numbers both times, whatever region or generator position backward runs under. Running statistics and power iterations move the
// first time only. What f uses must not change between forward and backward. Leaves that f uses and that require grad, such as
// parameters, get their gradients; another tensor that requires grad must be among `parameters`, else it throws AutogradError.
//   y = checkpoint([&](const Tensor& t) { return block(t); }, x);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, const Tensors& parameters = {});

// This thread computes a forward again while it lives: what a forward moves, such as running statistics, was moved the first time.
class Recomputing {
 public:
  [[nodiscard]] Recomputing() : saved_(now_) { now_ = true; }
  ~Recomputing() { now_ = saved_; }
  Recomputing(const Recomputing&) = delete;
  static bool now() { return now_; }

 private:
  static inline thread_local constinit bool now_ = false;
  bool saved_;
};

}  // namespace halfstep
