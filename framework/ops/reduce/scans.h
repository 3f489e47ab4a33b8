// SPDX-License-Identifier: Apache-2.0
// Running sums, products and extremes along one dimension. A 0-dim tensor counts as one element.
#pragma once

#include "framework/tensor/results.h"

namespace halfstep {

// Return out[i] = x[0] + ... + x[i], and the products. Integers in int64. Autocast: f32 out.
Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
// Returns ln of the running sums of e^x, without overflow.
Tensor logcumsumexp(const Tensor& x, int64_t dim);
// Return values and indices of the largest and smallest so far; the last of equals; a NaN stays until the next one.
ValuesIndices cummax(const Tensor& x, int64_t dim);
ValuesIndices cummin(const Tensor& x, int64_t dim);
// Returns differences of neighbours, applied n times; for bool, whether they differ. prepend and append are first joined to x.
Tensor diff(const Tensor& x, int64_t n = 1, int64_t dim = -1, const Tensor& prepend = Tensor(), const Tensor& append = Tensor());

}  // namespace halfstep
