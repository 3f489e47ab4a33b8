// SPDX-License-Identifier: Apache-2.0
// Tensors seen as rows along one dimension, for softmax and the losses.
#pragma once

#include <cmath>
#include <limits>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/reduce/reduce_kernels.h"
#include "framework/math/scalar.h"

namespace halfstep::cpu {

// Returns the shape with size 1 in dim.
inline Shape without(Shape shape, int dim) {
  if (!shape.empty()) shape[dim] = 1;
  return shape;
}
// Return the length and the stride of a row. Rank 0 counts as one row of one element.
inline int64_t row_length(const TensorView& v, int dim) { return v.shape.empty() ? 1 : v.shape[dim]; }
inline int64_t row_stride(const TensorView& v, int dim) { return v.shape.empty() ? 1 : v.strides[dim]; }

// Returns the row that starts at element `offset` as C: in place if it is dense, else in `buffer`.
template <class C>
const C* read_row(const TensorView& v, int64_t offset, int64_t stride, int64_t n, C* buffer) {
  if (v.dtype == dtype_of<C> && stride == 1) return v.as<const C>() + offset;
  load<C>(v.dtype, at(v, offset), stride, buffer, n);
  return buffer;
}

// Prefetches n elements that will be read soon, at a place that no CPU predicts.
inline void prefetch_row(const TensorView& v, int64_t offset, int64_t n) {
  const char* const from = at(v, offset);
  for (int64_t k = 0, bytes = n * int64_t(size_of(v.dtype)); k < bytes; k += 64) __builtin_prefetch(from + k);
}

// Computes out[i] = e^(x[i] - shift).
template <class C>
HS_CLONES void exp_row(const C* x, C shift, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = m::exp(C(x[i] - shift));
}

// Returns ln sum e^x, computed from x - max x, so that nothing overflows; `work` holds n values. -inf for a row of -inf.
template <class C>
C log_sum_exp(const C* x, C* work, int64_t n) {
  if (n == 0) return -std::numeric_limits<C>::infinity();
  const C top = C(reduce_row<C>(Reduce::max, x, n));
  if (std::isinf(top)) return top;
  exp_row(x, top, work, n);
  return C(double(top) + std::log(reduce_row<C>(Reduce::sum, work, n)));
}

}  // namespace halfstep::cpu
