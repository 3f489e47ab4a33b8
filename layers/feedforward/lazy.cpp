// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/lazy.h"

namespace halfstep {
namespace {

int64_t last_of(const Tensor& x) {
  check<ShapeError>(x.dim() >= 1, "LazyLinear", "needs an input of at least 1 dimension, got ", x.shape());
  return x.size(-1);
}

// Returns a function that reads C from [N, C, in...] or [C, in...].
auto channels_of(const char* type, int dims) {
  return [=](const Tensor& x) {
    check_rank(type, x, dims + 1, dims + 2);
    return x.size(x.dim() == dims + 2 ? 1 : 0);
  };
}

// Returns a function that reads C from [N, C, in...], and from [N, C] if `in` has 1 dimension.
auto batch_channels_of(const char* type, int dims) {
  return [=](const Tensor& x) {
    check_rank(type, x, dims == 1 ? 2 : dims + 2, dims + 2);
    return x.size(1);
  };
}

}  // namespace

LazyLinear::LazyLinear(Integer out_features, const LinearOptions& options)
    : Lazy(1, last_of, [=](int64_t in, Generator* generator) { return Linear(in, out_features, options, generator); }) {}

#define HALFSTEP_LAZY(dims)                                                                                                   \
  LazyConv##dims##d::LazyConv##dims##d(Integer out_channels, const Sizes& kernel_size, const ConvLayerOptions& o)             \
      : Lazy(o.groups, channels_of("LazyConv" #dims "d", dims),                                                               \
             [=](int64_t in, Generator* generator) { return Conv##dims##d(in, out_channels, kernel_size, o, generator); }) {} \
  LazyConvTranspose##dims##d::LazyConvTranspose##dims##d(Integer out_channels, const Sizes& kernel_size,                      \
                                                         const ConvTransposeLayerOptions& o)                                  \
      : Lazy(o.groups, channels_of("LazyConvTranspose" #dims "d", dims), [=](int64_t in, Generator* generator) {              \
          return ConvTranspose##dims##d(in, out_channels, kernel_size, o, generator);                                         \
        }) {}                                                                                                                 \
  Tensor LazyConvTranspose##dims##d::forward(const Tensor& x, const Dims& output_size) {                                      \
    initialize_parameters(x);                                                                                                 \
    return ConvTransposeNd::forward(x, output_size);                                                                          \
  }                                                                                                                           \
  LazyBatchNorm##dims##d::LazyBatchNorm##dims##d(const BatchNormOptions& o)                                                   \
      : Lazy(1, batch_channels_of("LazyBatchNorm" #dims "d", dims),                                                           \
             [=](int64_t n, Generator*) { return BatchNorm##dims##d(n, o); }) {}                                              \
  LazyInstanceNorm##dims##d::LazyInstanceNorm##dims##d(const InstanceNormOptions& o)                                          \
      : Lazy(1, channels_of("LazyInstanceNorm" #dims "d", dims),                                                              \
             [=](int64_t n, Generator*) { return InstanceNorm##dims##d(n, o); }) {}
HALFSTEP_LAZY(1)
HALFSTEP_LAZY(2)
HALFSTEP_LAZY(3)
#undef HALFSTEP_LAZY

}  // namespace halfstep
