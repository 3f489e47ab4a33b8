// SPDX-License-Identifier: Apache-2.0
// If the gradient that backward starts from is known before forward, a loss can compute the gradient of its input in the same pass
// as its value.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// While it lives, losses of this thread expect their backward to start from `seed`. A backward that is given that very tensor,
// unchanged, finds the gradient made; one that is given another computes it then, as it would without a LossSeed.
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
