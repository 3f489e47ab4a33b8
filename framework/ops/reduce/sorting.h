// SPDX-License-Identifier: Apache-2.0
// Ordering along a dimension. Sorting is stable, NaN counts as the largest, and indices are int64. A 0-dim tensor counts as one
// element.
#pragma once

#include "framework/tensor/results.h"

namespace halfstep {

// Returns values and indices. stable: always true, accepted for compatibility with PyTorch.
ValuesIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = false);
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = false);
Tensor msort(const Tensor& x);  // values along dimension 0
// Returns the k largest or smallest, best first (sorted: always true); among equals the first.
ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true);
// Returns the k-th smallest, counted from 1.
ValuesIndices kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false);
// Returns the value below which a share q of x's elements is, q in [0, 1]; NaN if there is a NaN, but nanquantile ignores NaNs. If
// the place q (n - 1) is between two elements, `interpolation` is "linear", "lower", "higher", "nearest" (halves to the even
// place) or "midpoint". q [Q]: the result has Q first. Floating; autocast: f32
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                std::string_view interpolation = "linear");
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                std::string_view interpolation = "linear");
Tensor nanquantile(const Tensor& x, double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                   std::string_view interpolation = "linear");
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                   std::string_view interpolation = "linear");
// Returns the middle value, or the lower of two; NaN if there is a NaN. For all elements: equals share the gradient.
Tensor median(const Tensor& x);
ValuesIndices median(const Tensor& x, int64_t dim, bool keepdim = false);
// Returns the median of the elements that are not NaN; NaN if there are none.
Tensor nanmedian(const Tensor& x);
ValuesIndices nanmedian(const Tensor& x, int64_t dim, bool keepdim = false);
// Returns the most frequent value, the smallest of several, and the index of its last occurrence.
ValuesIndices mode(const Tensor& x, int64_t dim = -1, bool keepdim = false);

}  // namespace halfstep
