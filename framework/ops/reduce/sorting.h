// Order along a dimension. Sorting is stable, a NaN counts as the largest, indices are int64. A 0-dim tensor counts as one
// element.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Values and indices. stable: always so, accepted for PyTorch's sake.
std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = false);
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = false);
Tensor msort(const Tensor& x);  // values along dimension 0
// The k largest or smallest, best first (sorted: always so), the first of equals.
std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true);
// The k-th smallest, counted from 1.
std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false);
// The middle value, of an even number the lower one; NaN when there is one. Of all elements: equals share the gradient.
Tensor median(const Tensor& x);
std::pair<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim = false);

}  // namespace halfstep
