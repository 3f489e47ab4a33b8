// SPDX-License-Identifier: Apache-2.0
// Joins tensors along a dimension that depends on their rank, and splits them again. Joins promote.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

Tensor atleast_1d(const Tensor& x);          // view: [] -> [1]
Tensor atleast_2d(const Tensor& x);          // view: [] -> [1, 1], [n] -> [1, n]
Tensor atleast_3d(const Tensor& x);          // view: [] -> [1, 1, 1], [n] -> [1, n, 1], [n, m] -> [n, m, 1]
Tensor hstack(const Tensors& xs);            // cat along dimension 1, or 0 of vectors
Tensor vstack(const Tensors& xs);            // cat of rows: along dimension 0 of atleast_2d. Also registered as row_stack
Tensor dstack(const Tensors& xs);            // cat along dimension 2 of atleast_3d
Tensor column_stack(const Tensors& xs);      // cat along dimension 1, a vector being a column
Tensor block_diag(const Tensors& matrices);  // [sum of rows, sum of columns]: the matrices on a diagonal, zeros beside them

// Return views of x along dim: n parts, of which the first x.size(dim) mod n are longer by one; or the parts before, between and
// after the indices, which count and clamp like Python's slices.
Tensors tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0);
Tensors tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim = 0);
inline Tensors tensor_split(const Tensor& x, std::initializer_list<int64_t> indices, int64_t dim = 0) {  // {2} is a list
  return tensor_split(x, std::vector<int64_t>(indices), dim);
}

}  // namespace halfstep
