// SPDX-License-Identifier: Apache-2.0
// Views, shapes and checks that ops of matrices [..., M, N] share, and several(), which computes their 16-bit inputs in float32.
#pragma once

#include <string_view>

#include "framework/ops/core/composite.h"
#include "framework/ops/ops.h"

namespace halfstep::matrices {

inline Tensor mT(const Tensor& x) { return x.transpose(-1, -2); }
inline Tensor symmetric(const Tensor& x) { return (x + mT(x)) * 0.5; }
inline Tensor row(const Tensor& x) { return x.unsqueeze(-2); }     // [..., N] -> [..., 1, N]
inline Tensor column(const Tensor& x) { return x.unsqueeze(-1); }  // [..., N] -> [..., N, 1]
// Returns [N, N] for x [..., N].
inline Tensor identity_like(const Tensor& x) { return eye(x.size(-1), {.dtype = x.dtype(), .device = x.device()}); }

inline void check_matrices(std::string_view op, const Tensor& x) {
  check_floating(op, {x});
  check<ShapeError>(x.dim() >= 2, op, "needs matrices [..., M, N], got ", x.shape());
}
inline void check_square(std::string_view op, const Tensor& x) {
  check_floating(op, {x});
  check<ShapeError>(x.dim() >= 2 && x.size(-1) == x.size(-2), op, "needs square matrices [..., N, N], got ", x.shape());
}
// Returns [...] of x [..., M, N].
inline Shape batch_of(const Tensor& x) {
  Shape shape = x.shape();
  shape.erase(x.dim() - 1);
  shape.erase(x.dim() - 2);
  return shape;
}

// Returns [..., M] of x [..., M, N].
inline Shape without_last(const Tensor& x) {
  Shape shape = x.shape();
  shape.erase(x.dim() - 1);
  return shape;
}

// Computes an op with several results. Like composite(), reads 16-bit inputs as float32, and rounds the results once.
template <class Body>
Tensors several(const OpInfo& info, Tensors in, Body&& body) {
  apply_policy(info, in);
  const autocast::Off off;
  const DType own = in[0].dtype();
  for (Tensor& t : in) {
    if (t.defined() && is_half(t.dtype())) t = t.to(DType::f32);
  }
  Tensors out = under_name(info.name, [&] { return body(in); });
  for (Tensor& t : out) {
    if (is_half(own) && t.defined() && t.is_floating_point()) t = t.to(own);
  }
  return out;
}

}  // namespace halfstep::matrices
