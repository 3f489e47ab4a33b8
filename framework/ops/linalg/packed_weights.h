// SPDX-License-Identifier: Apache-2.0
// Weights in the fastest layout for matrix products, kept for later calls until they change.
#pragma once

#include <cstdint>
#include <utility>

#include "framework/base/guard.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns, and makes if needed, GemmArgs::packed for a product of `rows` rows with b, a view [k, n] of a weight. Undefined outside
// of InferenceMode, if the product gains nothing by it, and in the first call outside of PackAtOnce, because the memory pays only
// from the second call on. b's storage owns it, and the next in-place write drops it. The last bits of the product may differ from
// those without it.
Tensor packed_weight(const Tensor& b, int64_t rows);

// While it lives, this thread packs weights in their first call: a model that is used again and again then gives the same bits in
// its first call as in all later ones.
class PackAtOnce : LocalGuard {
 public:
  [[nodiscard]] PackAtOnce() : outer_(std::exchange(on_, true)) {}
  ~PackAtOnce() { on_ = outer_; }
  static bool is_on() { return on_; }

 private:
  static inline thread_local constinit bool on_ = false;
  bool outer_;
};

}  // namespace halfstep
