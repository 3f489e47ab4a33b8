// SPDX-License-Identifier: Apache-2.0
// If the gradient with which backward starts is known before forward, a loss can compute the gradient of its input in the same
// pass as its value.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Makes losses of this thread expect that their backward starts from `seed`, while it lives. A backward that gets exactly this
// tensor, unchanged, uses the precomputed gradient; one that gets another computes it as without a LossSeed.
class LossSeed {
 public:
  [[nodiscard]] explicit LossSeed(Tensor seed);  // 0-dim; undefined: no expectation
  ~LossSeed();
  LossSeed(const LossSeed&) = delete;
  static const Tensor& expected();

 private:
  Tensor saved_;
};

}  // namespace halfstep
