// SPDX-License-Identifier: Apache-2.0
// Marks the gradients of losses that a GradScaler has multiplied by its scale (AutogradMeta::scaled). Code that needs true
// gradients can then refuse them, and sums of gradients with different scales, or with and without one, are detected.
#pragma once

#include <memory>

#include "framework/base/guard.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct ScaleValue;

// The scale of a GradScaler. The process notes which leaves have gradients that a scale multiplies, and which value it had. May be
// used by several threads.
class LossScale {
 public:
  [[nodiscard]] explicit LossScale(Tensor scale);  // 0-dim; the scaler changes it in place
  ~LossScale();
  LossScale(const LossScale&) = delete;
  LossScale& operator=(const LossScale&) = delete;
  // Notes that the gradient of a leaf is multiplied by this scale. joins: it is added to one that is multiplied by a scale, too.
  // Returns whether both scales are equal. Like fits(), it reads a scale from the device once after a change, and only if the
  // gradient before is older than that.
  bool join(const Tensor& leaf, bool joins);
  // Returns whether a gradient that is multiplied by a scale is multiplied by this one, as it is now.
  bool fits(const Tensor& leaf) const;
  // Call before the scale changes. Gradients that have it keep it, for comparisons; known = false: any later value of it fits them.
  void change(bool known = true);

 private:
  bool is_same(const Tensor& leaf) const;
  const Tensor scale_;
  std::shared_ptr<ScaleValue> now_;
};

// Returns whether a gradient is all zeros, which fit any scale; false on meta. Reads from the device.
bool is_zero(const Tensor& gradient);
// Takes the marks `scaled` and `mixed` from the gradient of `leaf` if it is all zeros; returns whether it is.
bool unmark_zeros(const Tensor& leaf);

class ScaledBackward : LocalGuard {
 public:
  // With a scale, marks this thread's backward passes as scaled while it lives. Restores the previous mark at its end.
  [[nodiscard]] explicit ScaledBackward(std::shared_ptr<LossScale> scale = nullptr);
  ~ScaledBackward();
  // Marks the pass that is running as scaled, until its end. Null: by a scale that is not known.
  static void mark(std::shared_ptr<LossScale> scale = nullptr);
  static bool is_scaled();
  // Notes that the running pass, if it is scaled, adds to the gradient of a leaf. Returns whether the sum has one scale.
  static bool join(const Tensor& leaf, bool joins);

 private:
  bool was_scaled_;
  std::shared_ptr<LossScale> previous_;
};

// Sets a gradient that was moved into other memory: like leaf.set_grad(g), but keeps the marks `scaled` and `mixed`.
inline void move_grad(const Tensor& leaf, const Tensor& g) {
  const auto& meta = leaf.impl()->autograd;
  const bool scaled = meta && meta->scaled, mixed = meta && meta->mixed;
  leaf.set_grad(g);
  if (scaled || mixed) meta->scaled = scaled, meta->mixed = mixed;
}

}  // namespace halfstep
