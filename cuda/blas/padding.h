// SPDX-License-Identifier: Apache-2.0
// Tensor cores take rows that start at multiples of 16 bytes. If those of an operand start elsewhere, as for a vocabulary of 50257
// words in 16 bits, the library uses code for older GPUs: on an H100 its products run at 85 to 150 TFLOP/s instead of 650. Such
// operands of large products are copied to rows that are padded.
#pragma once

#include <optional>

#include "cuda/kernels/kernels.h"
#include "framework/backend/workspace.h"

namespace halfstep::cuda {

// The operands of g that gain by a copy with padded rows.
struct Padding {
  bool a = false, b = false, c = false;
  bool any() const { return a || b || c; }
};
// Of matrices in 16 bits with at least as many multiplications as set_least_padded_product() says.
Padding padding_of(const GemmArgs& g);
// The default, 2^30, takes the GPU about 10 us.
void set_least_padded_product(double multiplications);

// A matrix with rows of a multiple of 16 bytes in memory of the workspace, with the values of `v` if `filled`.
class PaddedMatrix {
 public:
  PaddedMatrix(const Queue& q, const TensorView& v, bool filled);
  const TensorView& view() const { return view_; }

 private:
  TensorView view_;
  std::optional<Workspace> work_;
};

}  // namespace halfstep::cuda
