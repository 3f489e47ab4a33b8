// SPDX-License-Identifier: Apache-2.0
// Tensor cores need rows that start at multiples of 16 bytes and whose lengths are such multiples. Otherwise, as with a vocabulary
// of 50257 words in 16 bits, the library uses code for older GPUs: on an H100 its products run at 85 to 150 TFLOP/s instead of
// 650. Large products of this kind are computed with longer rows, padded by zeros.
#pragma once

#include <optional>

#include "cuda/kernels/kernels.h"
#include "framework/backend/workspace.h"

namespace halfstep::cuda {

// The extents of a product [m, k] x [k, n] with padding: multiples of 8, or the product's own.
struct Padding {
  int64_t m = 0, n = 0, k = 0;
  bool a = false, b = false, c = false;  // whether the operands need a copy with these extents
  bool any() const { return a || b || c; }
};
// Returns the padding of 16-bit matrices with at least as many multiplications as set_least_padded_product() requires.
Padding padding_of(const GemmArgs& g);
// Sets that number. The default, 2^30, takes the GPU about 10 us.
void set_least_padded_product(double multiplications);

// A larger matrix in the workspace, dense along the same dimension as `v`. If `filled`, it holds the values of `v` and zeros
// beyond them.
class PaddedMatrix {
 public:
  PaddedMatrix(const Queue& q, const TensorView& v, int64_t rows, int64_t columns, bool filled);
  const TensorView& view() const { return view_; }
  TensorView given_part() const;  // view without the padding

 private:
  TensorView view_;
  Shape given_;
  std::optional<Workspace> work_;
};

}  // namespace halfstep::cuda
