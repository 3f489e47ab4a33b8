// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: memory for time (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
#pragma once

#include <functional>
#include <vector>

#include "framework/base/guard.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns f(x) and keeps only x: backward computes f again and differentiates that. Both times f sees the same autocast state and
// default device, and on the calling thread draws the same random numbers of any generators, which must live until backward; the
// second time the generators do not move. Running statistics, power iterations and states of stateful layers change only the first
// time. What f uses must not change between forward and backward, but by writes that are a part of forwards: backward throws
// AutogradError for x and for leaves that require grad or are in `parameters`. Leaves that f uses or returns and that require grad,
// such as parameters, get their gradients. Any other such tensor must be in `parameters`; otherwise throws AutogradError.
//   y = checkpoint([&](const Tensor& t) { return block(t); }, x);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, const Tensors& parameters = {});

// Keeps the states with which a forward begins and that it then changes, such as those of stateful recurrent layers: the second
// forward begins with the same states as the first.
class TakenStates {
 public:
  // Returns whether this thread computes a forward again. The first forward has already changed running statistics.
  static bool recomputing() { return open_ && open_->is_recomputing_; }
  // Returns `now`, the present states; in a second forward, the states that the same call of the first forward returned.
  static Tensors take(const Tensors& now) { return open_ ? open_->next(now) : now; }

  // Keeps this thread's states in `list` while it lives; in a second forward, returns them from there.
  class Scope : LocalGuard {
   public:
    [[nodiscard]] Scope(std::vector<Tensors>& list, bool is_second)
        : list_(list), is_second_(is_second), is_recomputing_(is_second || TakenStates::recomputing()), outer_(open_) {
      open_ = this;
    }
    ~Scope() { open_ = outer_; }

   private:
    friend class TakenStates;
    Tensors next(const Tensors& now) {
      if (is_second_) return place_ < list_.size() ? list_[place_++] : now;
      list_.push_back(outer_ ? outer_->next(now) : now);
      return list_.back();
    }
    std::vector<Tensors>& list_;
    bool is_second_;       // whether the forward in this scope is a second one
    bool is_recomputing_;  // whether that of this scope, or of one around it, is
    size_t place_ = 0;     // calls of next() so far in a second forward
    Scope* outer_;
  };

 private:
  static inline thread_local constinit Scope* open_ = nullptr;
};

}  // namespace halfstep
