// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/dropout.h"

#include <cmath>

namespace halfstep {
namespace {

// 1s of x's dtype: one for each of its first `dims` dimensions.
Tensor ones_of(const Tensor& x, int dims) {
  Shape shape = Dims::filled(x.dim(), 1);
  for (int d = 0; d < dims; ++d) shape[d] = x.size(d);
  return ones(shape, {.dtype = x.dtype(), .device = x.device()});
}

Tensor alpha_dropout(const Tensor& x, double p, int dims) {
  if (p == 1) return x * 0.0;
  constexpr double kLimit = 1.7580993408473766;  // SELU tends to minus this
  const double a = 1 / std::sqrt((kLimit * kLimit * p + 1) * (1 - p));
  const Tensor kept = bernoulli(ones_of(x, dims), 1 - p);
  return x * (kept * a) + ((kept - 1.0) * (kLimit * a) + kLimit * a * p);
}

}  // namespace

DropoutBase::DropoutBase(const char* type, double p) : type_(type), p_(p) {
  check<ValueError>(p >= 0 && p <= 1, type, "p must be in [0, 1], got ", p);
}

Tensor DropoutBase::mask(const Tensor& x, int dims) const { return dropout(ones_of(x, dims), p_, true); }

Tensor Dropout1d::forward(const Tensor& x) {
  check_rank(type_, x, 2, 3);
  return active() ? x * mask(x, x.dim() - 1) : x;
}

Tensor Dropout2d::forward(const Tensor& x) {
  check_rank(type_, x, 3, 4);
  return active() ? x * mask(x, 2) : x;
}

Tensor Dropout3d::forward(const Tensor& x) {
  check_rank(type_, x, 4, 5);
  return active() ? x * mask(x, x.dim() - 3) : x;
}

Tensor AlphaDropout::forward(const Tensor& x) { return active() ? alpha_dropout(x, p_, x.dim()) : x; }

Tensor FeatureAlphaDropout::forward(const Tensor& x) {
  check<ShapeError>(x.dim() >= 2, type_, "needs an input of at least 2 dimensions, got ", x.shape());
  return active() ? alpha_dropout(x, p_, 2) : x;
}

}  // namespace halfstep
