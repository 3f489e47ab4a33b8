// SPDX-License-Identifier: Apache-2.0
// Order along a dimension. Sorting is stable, a NaN counts as the largest, indices are int64. A 0-dim tensor counts as one
// element.
#pragma once

#include "framework/tensor/results.h"

namespace halfstep {

// Values and indices. stable: always so, accepted for PyTorch's sake.
ValuesIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = false);
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = false);
Tensor msort(const Tensor& x);  // values along dimension 0
// The k largest or smallest, best first (sorted: always so), the first of equals.
ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true);
// The k-th smallest, counted from 1.
ValuesIndices kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false);
// The value below which a share q of x's elements lies, q in [0, 1]; NaN when there is one, but nanquantile leaves NaNs out. Where
// the place q (n - 1) lies between two elements, `interpolation` is "linear", "lower", "higher", "nearest" (halves to the even
// place) or "midpoint". q [Q]: the result has Q first. Floating; autocast: f32
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                std::string_view interpolation = "linear");
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                std::string_view interpolation = "linear");
Tensor nanquantile(const Tensor& x, double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                   std::string_view interpolation = "linear");
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                   std::string_view interpolation = "linear");
// The middle value, of an even number the lower one; NaN when there is one. Of all elements: equals share the gradient.
Tensor median(const Tensor& x);
ValuesIndices median(const Tensor& x, int64_t dim, bool keepdim = false);
// median of the elements that are numbers; NaN where there is none.
Tensor nanmedian(const Tensor& x);
ValuesIndices nanmedian(const Tensor& x, int64_t dim, bool keepdim = false);
// The value that occurs most often, the smallest of several, and the index of its last occurrence.
ValuesIndices mode(const Tensor& x, int64_t dim = -1, bool keepdim = false);

}  // namespace halfstep
