// SPDX-License-Identifier: Apache-2.0
// Parts that the files of the normalisations share.
#pragma once

#include <string_view>

#include "framework/ops/core/call.h"
#include "framework/ops/core/promotion.h"

namespace halfstep {

// Makes a tensor for statistics of `like`: float32, or float64.
inline Tensor floats(const Shape& shape, const Tensor& like) {
  return Tensor::empty(shape, {.dtype = widened(like.dtype()), .device = like.device()});
}

// Checks a weight, a bias or statistics. any_dtype: an autocast region reads all as float32.
inline void check_parameter(std::string_view op, std::string_view name, const Tensor& t, const Shape& shape, DType x,
                            bool any_dtype = false) {
  if (!t.defined()) return;
  check<ShapeError>(t.shape() == shape, op, name, " must be ", shape, ", got ", t.shape());
  check<DTypeError>(t.is_floating_point(), op, name, " must be floating, got ", t.dtype());
  check<DTypeError>(any_dtype || t.dtype() == x || (is_half(x) && t.dtype() == DType::f32), op, name,
                    " must have the input's dtype, or be float32 beside a 16-bit input; got ", t.dtype(), " beside ", x);
}

// The gradients of input and parameters: dx like x, the others like `parameter`.
struct NormGradients {
  Tensor dx, dweight, dbias;

  NormGradients(const BackwardContext& ctx, const Tensor& x, const Shape& parameter, size_t weight, size_t bias) {
    const auto make = [&](size_t i, const Shape& shape, MemoryFormat format) {
      return ctx.needs(i) ? Tensor::empty(shape, {.dtype = ctx.grad_dtype(i), .device = x.device(), .format = format}) : Tensor();
    };
    dx = make(0, x.shape(), x.format());
    dweight = make(weight, parameter, MemoryFormat::contiguous);
    dbias = make(bias, parameter, MemoryFormat::contiguous);
  }
};

// The sizes of x [N, C, ...] as [N, C, positions].
struct Channels {
  int64_t batch, channels, positions = 1;

  Channels(std::string_view op, const Tensor& x) {
    check<ShapeError>(x.dim() >= 2, op, "input must be [N, C, ...], got ", x.shape());
    batch = x.size(0);
    channels = x.size(1);
    for (int d = 2; d < x.dim(); ++d) positions *= x.shape()[d];
  }
  Shape shape() const { return {batch, channels, positions}; }
};

// Returns false in the second forward of checkpoint(), because the first has already changed the running statistics.
bool moves_statistics();
// Normalises each channel by given statistics, as the op of `info`.
Tensor norm_by_statistics(const OpInfo& info, const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                          const Tensor& bias, double eps);

}  // namespace halfstep
