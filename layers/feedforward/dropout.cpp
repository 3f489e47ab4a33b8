// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/dropout.h"

#include <cmath>

namespace halfstep {
namespace {

// Returns ones of x's dtype, with the first `dims` dimensions of x.
Tensor ones_of(const Tensor& x, int dims) {
  Shape shape = Dims::filled(x.dim(), 1);
  for (int d = 0; d < dims; ++d) shape[d] = x.size(d);
  return ones(shape, {.dtype = x.dtype(), .device = x.device()});
}

// Computes a (x m - limit (1 - m)) + a limit p, where m is 1 with probability 1 - p and else 0, for each of x's first `dims`
// dimensions, and a = 1 / sqrt((1 + limit^2 p) (1 - p)).
Tensor alpha_dropout(const Tensor& x, double p, int dims) {
  if (p == 1) return x * 0.0;
  constexpr double kLimit = 1.7580993408473766;  // minus the limit of SELU at -infinity
  const double a = 1 / std::sqrt((kLimit * kLimit * p + 1) * (1 - p));
  const Tensor kept = bernoulli(ones_of(x, dims), 1 - p);
  return x * (kept * a) + ((kept - 1.0) * (kLimit * a) + kLimit * a * p);
}

// Returns a factor for x that is 0 with probability p and else 1 / (1 - p), one for each of x's first `dims` dimensions.
Tensor mask(const Tensor& x, double p, int dims) { return dropout(ones_of(x, dims), p, true); }

Tensor drop_channels(const Tensor& x, double p, bool active, int dims) { return active && p > 0 ? x * mask(x, p, dims) : x; }

}  // namespace

HALFSTEP_OPTIONS(DropoutOptions, option("p", &O::p, "probability").at_least(0).at_most(1))

namespace dropouts {

Tensor elements(const Tensor& x, double p, bool active) { return dropout(x, p, active); }
Tensor channels1d(const Tensor& x, double p, bool active) {
  check_rank("Dropout1d", x, 2, 3);
  return drop_channels(x, p, active, x.dim() - 1);
}
Tensor channels2d(const Tensor& x, double p, bool active) {
  check_rank("Dropout2d", x, 3, 4);
  return drop_channels(x, p, active, 2);
}
Tensor channels3d(const Tensor& x, double p, bool active) {
  check_rank("Dropout3d", x, 4, 5);
  return drop_channels(x, p, active, x.dim() - 3);
}
Tensor alpha(const Tensor& x, double p, bool active) { return active && p > 0 ? alpha_dropout(x, p, x.dim()) : x; }
Tensor feature_alpha(const Tensor& x, double p, bool active) {
  check<ShapeError>(x.dim() >= 2, "FeatureAlphaDropout", "needs an input of at least 2 dimensions, got ", x.shape());
  return active && p > 0 ? alpha_dropout(x, p, 2) : x;
}

}  // namespace dropouts

}  // namespace halfstep
