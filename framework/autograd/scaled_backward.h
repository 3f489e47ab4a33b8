// SPDX-License-Identifier: Apache-2.0
// Marks the gradients of losses that a GradScaler has multiplied by its scale (AutogradMeta::scaled). Code that needs true
// gradients can then refuse them, and sums of scaled and unscaled gradients are detected.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

class ScaledBackward {
 public:
  // If `scaled`, marks this thread's backward passes as scaled while it lives. Restores the previous mark at its end.
  [[nodiscard]] explicit ScaledBackward(bool scaled = false) : before_(open_) { open_ = open_ || scaled; }
  ~ScaledBackward() { open_ = before_; }
  ScaledBackward(const ScaledBackward&) = delete;
  static void mark() { open_ = true; }  // for calls from within a pass
  static bool is_open() { return open_; }

 private:
  static inline thread_local constinit bool open_ = false;
  bool before_;
};

// Moves a gradient into other memory: like leaf.set_grad(g), but marks stay.
inline void move_grad(const Tensor& leaf, const Tensor& g) {
  const auto& meta = leaf.impl()->autograd;
  const bool scaled = meta && meta->scaled, mixed = meta && meta->mixed;
  leaf.set_grad(g);
  if (scaled || mixed) meta->scaled = scaled, meta->mixed = mixed;
}

}  // namespace halfstep
