// SPDX-License-Identifier: Apache-2.0
// What normalisations do to matrices whose columns have statistics and parameters of their own: images in channels_last, and rows
// of a few pixels a channel. A sum's order is fixed by the shape alone.
#pragma once

#include <cstdint>

#include "framework/backend/layer_args.h"
#include "framework/tensor/view.h"

namespace halfstep::cpu {

// Rows of `columns` neighbours, one after another from element `from` of a tensor on.
struct Matrix {
  int64_t from, rows, columns;

  int64_t numel() const { return rows * columns; }
};

// What follows takes and writes `columns` numbers where it says so with a pointer. C: float, or double for f64.

// The mean and the variance (with the divisor `rows`) of each column.
void column_moments(const Matrix& m, const TensorView& x, double* mean, double* var);
// A ReLU behind map_columns: what follows counts g as 0 where (x - mean) scale + shift is at most `zero` (stored_as_zero).
template <class C>
struct ColumnRelu {
  const C *scale, *shift;
  C zero;
};
// plain: sum g; with_x: sum g (x - mean).
template <class C>
void column_gradient_sums(const Matrix& m, const TensorView& grad, const TensorView& x, const C* mean, double* plain,
                          double* with_x, const ColumnRelu<C>* relu = nullptr);
// out = (x - mean) scale + shift
template <class C>
void map_columns(const Matrix& m, const TensorView& x, const C* mean, const C* scale, const C* shift, const TensorView& out,
                 bool relu = false);
// out = scale g - first - (x - mean) second; without `first` and `second` scale g.
template <class C>
void column_gradients(const Matrix& m, const TensorView& grad, const TensorView& x, const C* mean, const C* scale, const C* first,
                      const C* second, const TensorView& out, const ColumnRelu<C>* relu = nullptr);

// normalize and its backward for images and volumes in channels_last: groups of channels.
void normalize_channels_last(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                             const TensorView& out, const TensorView& mean, const TensorView& rstd);
void normalize_channels_last_backward(const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                                      const TensorView& mean, const TensorView& rstd, const TensorView& dx,
                                      const TensorView& dweight, const TensorView& dbias);

}  // namespace halfstep::cpu
