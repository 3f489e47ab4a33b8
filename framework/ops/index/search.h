// SPDX-License-Identifier: Apache-2.0
// Counts and finds values. The host reads how many there are if the result's size depends on it. No gradients.
#pragma once

#include <optional>

#include "framework/tensor/tensor.h"

namespace halfstep {

struct Unique {
  Tensor values;   // along dim; without dim, 1-D
  Tensor inverse;  // i64: index among the values of each element, or slice, of x; of x's shape, or [x.size(dim)]
  Tensor counts;   // i64: number of occurrences of each
};
// Returns the different values of x in ascending order, or the different slices along dim in lexicographic order (found on the
// host). Each NaN counts as a separate value.
Unique unique(const Tensor& x, std::optional<int64_t> dim = {});
// Returns one of each run of equal neighbours: of all elements as one line, or of the slices along dim.
Unique unique_consecutive(const Tensor& x, std::optional<int64_t> dim = {});

// Counts how often 0, 1, 2... occur among the nonnegative integers x [n], or adds up their weights. Returns [max(minlength,
// largest + 1)], i64, or in weights' dtype (float64 for integers).
Tensor bincount(const Tensor& x, const Tensor& weights = Tensor(), int64_t minlength = 0);

// Options of searchsorted, which returns the place of each value that keeps `sorted`, ascending along its last dimension, sorted:
// before equal elements, or behind them (right). sorted [n] and any values, or both of one shape outside the last dimension. i64,
// of values' shape.
struct SearchOptions {
  bool right = false;
  bool out_int32 = false;  // whether the result is int32
  Tensor sorter;           // i64, of `sorted`'s shape: the indices that sort `sorted`, which is then unsorted
};
Tensor searchsorted(const Tensor& sorted, const Tensor& values, const SearchOptions& options);
inline Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false) {
  return searchsorted(sorted, values, SearchOptions{right, false, {}});
}
// Returns searchsorted(boundaries, x).
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right = false, bool out_int32 = false);

// Returns which elements of x are among `values`, as bool of x's shape; invert: which are not. NaN never is.
Tensor isin(const Tensor& x, const Tensor& values, bool invert = false);
// Returns, for each position in a tensor of `shape` read as one line, its index along each dimension. i64.
Tensors unravel_index(const Tensor& positions, const Shape& shape);

}  // namespace halfstep
