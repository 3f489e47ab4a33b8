// SPDX-License-Identifier: Apache-2.0
// Counting and finding values. The host reads how many there are, where the result's size depends on it. No gradients.
#pragma once

#include <optional>

#include "framework/tensor/tensor.h"

namespace halfstep {

struct Unique {
  Tensor values;   // along dim; without dim, 1-D
  Tensor inverse;  // i64: where each element, or slice, of x is among the values; of x's shape, or [x.size(dim)]
  Tensor counts;   // i64: how often each occurs
};
// The different values of x in ascending order, or the different slices along dim in lexicographic order (found on the host). Each
// NaN is a value of its own.
Unique unique(const Tensor& x, std::optional<int64_t> dim = {});
// One of each run of equal neighbours: of the elements as one line, or of the slices along dim.
Unique unique_consecutive(const Tensor& x, std::optional<int64_t> dim = {});

// How often 0, 1, 2... occur among the integers x [n], none negative; or the sums of their weights. [max(minlength, largest + 1)],
// i64, or of weights' dtype (float64 for whole numbers).
Tensor bincount(const Tensor& x, const Tensor& weights = Tensor(), int64_t minlength = 0);

// Where each value goes so that `sorted`, ascending along its last dimension, stays so: before its equals, or behind them (right).
// sorted [n] and any values, or both of one shape outside the last dimension. i64, of values' shape.
struct SearchOptions {
  bool right = false;
  bool out_int32 = false;  // the result is int32
  Tensor sorter;           // i64, of `sorted`'s shape: `sorted` is in no order, and these are the indices that sort it
};
Tensor searchsorted(const Tensor& sorted, const Tensor& values, const SearchOptions& options);
inline Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false) {
  return searchsorted(sorted, values, SearchOptions{right, false, {}});
}
// searchsorted(boundaries, x).
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right = false, bool out_int32 = false);

// Which elements of x are among `values`: bool, of x's shape; invert: which are not. NaN is among none.
Tensor isin(const Tensor& x, const Tensor& values, bool invert = false);
// For each position of a tensor of `shape` that is read as one line: its index along each dimension. i64.
Tensors unravel_index(const Tensor& positions, const Shape& shape);

}  // namespace halfstep
