// SPDX-License-Identifier: Apache-2.0
// Products, variances and other summaries over dimensions. dims {}: all.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns the product over one dimension, or over all. Integers in int64. Autocast: f32 out.
Tensor prod(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, std::optional<DType> dtype = {});

// Return sum (x - mean)^2 / max(0, n - correction), and its square root.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
// Return the same, and the mean as second result.
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);

// Returns ln sum e^x, shifted by the maximum; -inf if all of x is. Integers are read as float32. Autocast: f32.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

// Returns how many elements are nonzero (NaN is): int64, no gradient.
Tensor count_nonzero(const Tensor& x, const Dims& dims = {});

// Return the sum and the mean of the elements that are not NaN.
Tensor nansum(const Tensor& x, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});
Tensor nanmean(const Tensor& x, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});

}  // namespace halfstep
