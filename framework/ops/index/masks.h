// SPDX-License-Identifier: Apache-2.0
// Selection by bool masks and by the diagonal.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

Tensor logical_not(const Tensor& x);  // bool: x == 0
// Returns value where mask (broadcast to x's shape) is true, else x. A tensor value must be 0-dim. The result has x's dtype.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
// Returns the elements of x where mask is true, in order, 1-D; x and mask broadcast against each other. The host reads their
// number.
Tensor masked_select(const Tensor& x, const Tensor& mask);
// Returns x with the elements where mask is true replaced by the first ones of src, in order. The host reads their number.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src);
// Returns the indices of the nonzero elements, [n, rank], int64. The host reads x.
Tensor nonzero(const Tensor& x);
Tensors where(const Tensor& cond);            // nonzero_as_tuple
Tensors nonzero_as_tuple(const Tensor& x);  // [n] for each dimension, as index() takes them; a 0-dim x counts as [1]

// Return x [..., M, N] with zeros above (tril) or below (triu) the diagonal `diagonal` right of the main one.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
// Return [2, n], int64: the places that tril or triu of a [rows, columns] matrix keeps.
Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset = 0, Device device = Device::cpu);
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset = 0, Device device = Device::cpu);

// Returns whether shapes and values are equal; the host reads the answer.
bool equal(const Tensor& a, const Tensor& b);
// Returns |a - b| <= atol + rtol |b|, computed in float64, as bool of the broadcast shape; infinities equal themselves.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
// Returns whether |a - b| <= atol + rtol |b| everywhere, where infinities equal themselves. The host reads the answer.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);

}  // namespace halfstep
