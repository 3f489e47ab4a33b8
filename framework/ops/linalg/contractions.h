// SPDX-License-Identifier: Apache-2.0
// Products of many tensors, and over chosen dimensions.
#pragma once

#include <concepts>
#include <string_view>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Multiplies a chain of matrices in the cheapest order. Each product is rounded, as in a chain of mm. Autocast: low.
Tensor chain_matmul(const Tensors& matrices);
// Multiplies like chain_matmul, at least two tensors; the first may be a row and the last a column, given as vectors. Also
// registered as linalg_multi_dot.
Tensor multi_dot(const Tensors& tensors);

// Sums over pairs of dimensions: a's a_dims[i] with b's b_dims[i]. The result has the rest of a's, then of b's dimensions.
// Autocast: promote.
Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int64_t>& a_dims, const std::vector<int64_t>& b_dims);
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2);  // the last `dims` of a with the first of b

// Sums products by Einstein's convention: einsum("bhid,bhjd->bhij", {q, k}). Letters are dimensions, "..." the unnamed ones;
// letters missing after "->" are summed over, and without "->" those that appear once stay, in alphabetical order. A letter that
// occurs twice in one operand takes the diagonal. Sizes of 1 broadcast. Operands are joined from left to right; each product is
// rounded. Autocast: low.
Tensor einsum(std::string_view equation, const Tensors& operands);
template <std::derived_from<Tensor>... T>
Tensor einsum(std::string_view equation, const Tensor& first, const T&... more) {
  return einsum(equation, Tensors{first, more...});
}

// Returns x1^T W[o] x2 + bias[o]. x1 [..., I], x2 [..., J], weight [O, I, J], bias [O] or undefined -> [..., O]. Autocast:
// promote.
Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias = Tensor());

// Returns the vector product along a dimension of size 3; other dimensions broadcast. Autocast: promote.
Tensor cross(const Tensor& a, const Tensor& b, int64_t dim = -1);

}  // namespace halfstep
