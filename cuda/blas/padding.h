// SPDX-License-Identifier: Apache-2.0
// Tensor cores need rows that start at multiples of 16 bytes and whose lengths are such multiples. Otherwise, as with a vocabulary
// of 50257 words in 16 bits, the library uses code for older GPUs: on an H100 its products run at 85 to 150 TFLOP/s instead of
// 650. Where only the lengths are no multiples, large products are cut: the last columns (rows, terms) are a small product of
// their own. Otherwise they are computed with longer rows, padded by zeros, which takes copies.
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
// Sets that number, by default kAlignedProduct.
void set_least_padded_product(double multiplications);

// Returns the length of rows of a result with which neither its product nor those that read it need padding.
int64_t aligned_row(int64_t m, int64_t n, int64_t k, DType dtype);

// Where to cut a large product of 16-bit matrices into one without the last rows, columns or terms, whose extents then are
// multiples of 8, and the rest.
struct ProductCut {
  enum Extent : uint8_t { none, m, n, k } extent = none;
  int64_t at = 0;
};
// Returns a cut if all rows start at multiples of 16 bytes, so that no copy is needed.
ProductCut cut_of(const GemmArgs& g);
// Return the first and the second part of a product that a cut makes, of its bias and of the sums of its operands; other extras
// are left out. The second part of a sum adds to the first.
GemmArgs before(const GemmArgs& g, const ProductCut& cut);
GemmArgs behind(const GemmArgs& g, const ProductCut& cut);

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
