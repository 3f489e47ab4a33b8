// SPDX-License-Identifier: Apache-2.0
// Backward passes of losses that a GradScaler has multiplied by its scale: the gradients that they leave behind are marked
// (AutogradMeta::scaled), so that code that needs true gradients can refuse them, and sums of such gradients and others are found.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

class ScaledBackward {
 public:
  // The passes of this thread are of a scaled loss while it lives, if `scaled`; else it puts back at its end what held before.
  [[nodiscard]] explicit ScaledBackward(bool scaled = false) : before_(open_) { open_ = open_ || scaled; }
  ~ScaledBackward() { open_ = before_; }
  ScaledBackward(const ScaledBackward&) = delete;
  static void mark() { open_ = true; }  // from within a pass
  static bool is_open() { return open_; }

 private:
  static inline thread_local constinit bool open_ = false;
  bool before_;
};

// The same gradient in other memory: as leaf.set_grad(g), but marks stay.
inline void move_grad(const Tensor& leaf, const Tensor& g) {
  const auto& meta = leaf.impl()->autograd;
  const bool scaled = meta && meta->scaled, mixed = meta && meta->mixed;
  leaf.set_grad(g);
  if (scaled || mixed) meta->scaled = scaled, meta->mixed = mixed;
}

}  // namespace halfstep
