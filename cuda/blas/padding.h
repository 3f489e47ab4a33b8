// SPDX-License-Identifier: Apache-2.0
// Tensor cores take rows that start at multiples of 16 bytes and whose lengths are such multiples. Otherwise, as for a vocabulary
// of 50257 words in 16 bits, the library uses code for older GPUs: on an H100 its products run at 85 to 150 TFLOP/s instead of 650.
// Such large products are computed with longer rows, which end in zeros.
#pragma once

#include <optional>

#include "cuda/kernels/kernels.h"
#include "framework/backend/workspace.h"

namespace halfstep::cuda {

// The extents of a product [m, k] x [k, n] with padding: multiples of 8, or those of the product itself.
struct Padding {
  int64_t m = 0, n = 0, k = 0;
  bool a = false, b = false, c = false;  // the operands that need a copy with these extents
  bool any() const { return a || b || c; }
};
// Of matrices in 16 bits with at least as many multiplications as set_least_padded_product() says.
Padding padding_of(const GemmArgs& g);
// The default, 2^30, takes the GPU about 10 us.
void set_least_padded_product(double multiplications);

// A matrix of more rows and columns in memory of the workspace, dense along the same dimension as `v`. If `filled`, it has the
// values of `v`, and zeros beyond them.
class PaddedMatrix {
 public:
  PaddedMatrix(const Queue& q, const TensorView& v, int64_t rows, int64_t columns, bool filled);
  const TensorView& view() const { return view_; }
  TensorView given_part() const;  // without the padding

 private:
  TensorView view_;
  Shape given_;
  std::optional<Workspace> work_;
};

}  // namespace halfstep::cuda
