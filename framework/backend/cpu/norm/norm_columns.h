// SPDX-License-Identifier: Apache-2.0
// Normalisation of matrices whose columns have their own statistics and parameters: images in channels_last, and rows with a few
// pixels per channel. The order of a sum depends only on the shape.
#pragma once

#include <cstdint>

#include "framework/backend/layer_args.h"
#include "framework/tensor/view.h"

namespace halfstep::cpu {

// A matrix of contiguous rows of `columns` elements, which begins at element `from` of a tensor.
struct Matrix {
  int64_t from, rows, columns;

  int64_t numel() const { return rows * columns; }
};

// Pointers below are to `columns` numbers. C: float, or double for f64.

// Computes the mean and the variance (divided by `rows`) of each column.
void column_moments(const Matrix& m, const TensorView& x, double* mean, double* var);
// A ReLU behind map_columns: g counts as 0 where (x - mean) scale + shift is at most `zero` (stored_as_zero).
template <class C>
struct ColumnRelu {
  const C *scale, *shift;
  C zero;
};
// Computes sum_g = sum g and sum_gx = sum g (x - mean).
template <class C>
void column_gradient_sums(const Matrix& m, const TensorView& grad, const TensorView& x, const C* mean, double* sum_g,
                          double* sum_gx, const ColumnRelu<C>* relu = nullptr);
// Computes out = (x - mean) scale + shift; with a residual, which is like out, add_relu of that, as it would be stored, and of the
// residual.
template <class C>
void map_columns(const Matrix& m, const TensorView& x, const C* mean, const C* scale, const C* shift, const TensorView& out,
                 bool relu = false, const TensorView& residual = {});
// Computes out = scale g - first - (x - mean) second; if `first` and `second` are null, scale g.
template <class C>
void column_gradients(const Matrix& m, const TensorView& grad, const TensorView& x, const C* mean, const C* scale, const C* first,
                      const C* second, const TensorView& out, const ColumnRelu<C>* relu = nullptr);

// normalize and its backward for images and volumes in channels_last, with groups of channels.
void normalize_channels_last(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                             const TensorView& out, const TensorView& mean, const TensorView& rstd);
void normalize_channels_last_backward(const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                                      const TensorView& mean, const TensorView& rstd, const TensorView& dx,
                                      const TensorView& dweight, const TensorView& dbias);

}  // namespace halfstep::cpu
