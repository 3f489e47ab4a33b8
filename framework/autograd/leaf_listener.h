// SPDX-License-Identifier: Apache-2.0
// Notified when gradients are complete: data-parallel training sends each gradient while backward continues.
//
// A hook of a tensor would do, but it sees the gradient before it is added to .grad, and keeps it from staying in a 16-bit dtype
// (LowGradients). A listener changes nothing about the backward that it listens to, but may put the gradient into other memory.
#pragma once

#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Called in the thread of the backward, by backward() but not by grad(), which leaves .grad alone.
class LeafListener {
 public:
  virtual ~LeafListener() = default;
  // All uses of `leaf` in this backward have been through: `gradient` is their sum, with what leaf.grad() held before. It is
  // leaf.raw_grad(), unless another listener has put that elsewhere.
  virtual void accumulated(const Tensor& leaf, const Tensor& gradient) = 0;
  // A backward that reached one of the leaves is over; not called where it threw. What this throws leaves backward().
  virtual void backward_done() = 0;
};

// Listens to `leaves` while it lives. `listener` must outlive it. Threads may train at once, each with its own leaves: ranks may be
// threads of one process.
class ListenToLeaves {
 public:
  [[nodiscard]] ListenToLeaves(LeafListener& listener, const std::vector<Tensor>& leaves);
  ~ListenToLeaves();
  ListenToLeaves(const ListenToLeaves&) = delete;

 private:
  LeafListener& listener_;
  std::vector<Tensor> leaves_;
};

// As backward(), but no listener hears of it.
void backward_unheard(const Tensors& outputs, const Tensors& grad_outputs);

// Reports the leaves of one backward() to their listeners.
class LeafReports {
 public:
  void accumulated(const Tensor& leaf);
  void done();  // calls backward_done() of each listener that was given a leaf

 private:
  std::vector<LeafListener*> told_;
};

}  // namespace halfstep
