// SPDX-License-Identifier: Apache-2.0
// Products with matrices that have few entries per row, each along one dimension: every kind of interpolation, and padding with
// values from other places. They are linear, so the gradient is a product with the transposed matrix, the same op.
#pragma once

#include <compare>
#include <vector>

#include "framework/ops/core/call.h"

namespace halfstep {

enum class RowKind : uint8_t {
  nearest, nearest_exact, linear, cubic, linear_antialias, cubic_antialias,
  reflect, replicate, circular,
};

// What a matrix [out, in] is made from; row_table() computes its rows.
struct RowSpec {
  RowKind kind = RowKind::nearest;
  int64_t in = 0, out = 0;
  double scale = 0;            // interpolation: the caller's out per in; 0: from the sizes
  bool align_corners = false;
  int64_t before = 0;          // padding: elements before the first; negative: elements cut off
  bool wide = false;           // nearest: positions in double, not in float
  bool transposed = false;     // whether it maps from out to in

  auto operator<=>(const RowSpec&) const = default;
};

// Row o of the matrix: weight[k] at column index[k], k in [start[o], start[o + 1]). Zeros are omitted.
struct RowTable {
  std::vector<int64_t> start{0}, index;
  std::vector<double> weight;
};
RowTable row_table(const RowSpec& spec);  // of the matrix, or of its transpose if transposed

// A matrix, and the dimension along which it acts.
struct DimRows {
  int dim;
  RowSpec rows;
};
// Applies each matrix to x along its dimension, as the op `info`. Sums in float32 (float64), rounded once at the end.
Tensor apply_rows(const OpInfo& info, const Tensor& x, const std::vector<DimRows>& rows);

}  // namespace halfstep
