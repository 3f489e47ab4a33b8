// SPDX-License-Identifier: Apache-2.0
// Notifies listeners when gradients are complete: data-parallel training sends each gradient while backward continues.
//
// A hook of a tensor does not suffice: it sees the gradient before it is added to .grad, and stops it from staying in a 16-bit
// dtype (LowGradients). A listener does not change the backward, but may move the gradient into other memory.
#pragma once

#include <vector>

#include "framework/base/guard.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// It is called in the thread of backward(). grad() does not call it, because it does not change .grad.
class LeafListener {
 public:
  virtual ~LeafListener() = default;
  // Reports that all uses of `leaf` in this backward have been processed. `gradient` is their sum plus the old leaf.grad(). It is
  // leaf.raw_grad() unless another listener has moved it.
  virtual void accumulated(const Tensor& leaf, const Tensor& gradient) = 0;
  // Reports the end of a backward that reached one of the leaves, unless it threw. Exceptions from here leave backward().
  virtual void backward_done() = 0;
};

// Listens to `leaves` while it lives; `listener` must outlive it. Several threads may train at once, each with its own leaves,
// because ranks may be threads of one process.
class ListenToLeaves : LocalGuard {
 public:
  [[nodiscard]] ListenToLeaves(LeafListener& listener, const std::vector<Tensor>& leaves);
  ~ListenToLeaves();

 private:
  LeafListener& listener_;
  std::vector<Tensor> leaves_;
};

// Runs backward(), with the graph freed afterwards, without reporting to listeners.
void backward_unheard(const Tensors& outputs, const Tensors& grad_outputs);

// Reports the leaves of one backward() to their listeners.
class LeafReports {
 public:
  void accumulated(const Tensor& leaf);
  void done();  // calls backward_done() of each listener that was given a leaf

 private:
  std::vector<LeafListener*> notified_;
};

}  // namespace halfstep
