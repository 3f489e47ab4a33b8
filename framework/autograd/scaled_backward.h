// SPDX-License-Identifier: Apache-2.0
// Marks the gradients of losses that a GradScaler has multiplied by its scale (AutogradMeta::scaled). Code that needs true
// gradients can then refuse them, and sums of scaled and unscaled gradients are detected.
#pragma once

#include "framework/base/guard.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

class ScaledBackward : LocalGuard {
 public:
  // If `scaled`, marks this thread's backward passes as scaled while it lives. Restores the previous mark at its end.
  [[nodiscard]] explicit ScaledBackward(bool scaled = false) : previous_(is_scaled_) { is_scaled_ = is_scaled_ || scaled; }
  ~ScaledBackward() { is_scaled_ = previous_; }
  // Marks the pass that is running as scaled, until its end.
  static void mark() { is_scaled_ = true; }
  static bool is_scaled() { return is_scaled_; }

 private:
  static inline thread_local constinit bool is_scaled_ = false;
  bool previous_;
};

// Sets a gradient that was moved into other memory: like leaf.set_grad(g), but keeps the marks `scaled` and `mixed`.
inline void move_grad(const Tensor& leaf, const Tensor& g) {
  const auto& meta = leaf.impl()->autograd;
  const bool scaled = meta && meta->scaled, mixed = meta && meta->mixed;
  leaf.set_grad(g);
  if (scaled || mixed) meta->scaled = scaled, meta->mixed = mixed;
}

}  // namespace halfstep
