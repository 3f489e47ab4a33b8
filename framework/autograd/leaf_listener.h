// SPDX-License-Identifier: Apache-2.0
// Notified when gradients are complete: data-parallel training sends each gradient while backward continues.
//
// A hook of a tensor would do, but it sees the gradient before it is added to .grad, and keeps it from staying in a 16-bit dtype
// (LowGradients). A listener changes nothing about the backward that it listens to.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Called in the thread of the backward, for every backward() of the process but not for grad(), which leaves .grad alone.
class LeafListener {
 public:
  virtual ~LeafListener() = default;
  // All uses of `leaf` in this backward have been through: leaf.grad() has its sum, with what it held before.
  virtual void accumulated(const Tensor& leaf) = 0;
  // The backward is over; not called where it threw. What this throws leaves backward().
  virtual void backward_done() = 0;
};

// Listens while it lives. `listener` must outlive it.
class ListenToLeaves {
 public:
  [[nodiscard]] explicit ListenToLeaves(LeafListener& listener);
  ~ListenToLeaves();
  ListenToLeaves(const ListenToLeaves&) = delete;

 private:
  LeafListener& listener_;
};

// What the engine calls.
void tell_accumulated(const Tensor& leaf);
void tell_backward_done();

}  // namespace halfstep
