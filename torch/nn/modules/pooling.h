// SPDX-License-Identifier: Apache-2.0
// Pooling.
#pragma once

#include "torch/nn/modules/layer.h"

namespace torch::nn {

#define HS_TORCH_POOLS(n, D)                                                                                             \
  struct MaxPool##n##Impl : Cloneable<MaxPool##n##Impl> {                                                                \
    HS_TORCH_LAYER(MaxPool##n);                                                                                          \
    MaxPool##n##Impl(ExpandingArray<D> kernel) : MaxPool##n##Impl(MaxPool##n##Options(kernel)) {}                        \
    Tensor forward(const Tensor& x);                                                                                     \
    std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);                                                    \
  };                                                                                                                     \
  HS_TORCH_HOLDER(MaxPool##n)                                                                                            \
  struct AvgPool##n##Impl : Cloneable<AvgPool##n##Impl> {                                                                \
    HS_TORCH_LAYER(AvgPool##n);                                                                                          \
    AvgPool##n##Impl(ExpandingArray<D> kernel) : AvgPool##n##Impl(AvgPool##n##Options(kernel)) {}                        \
    Tensor forward(const Tensor& x);                                                                                     \
  };                                                                                                                     \
  HS_TORCH_HOLDER(AvgPool##n)                                                                                            \
  struct LPPool##n##Impl : Cloneable<LPPool##n##Impl> {                                                                  \
    HS_TORCH_LAYER(LPPool##n);                                                                                           \
    LPPool##n##Impl(double p, ExpandingArray<D> kernel) : LPPool##n##Impl(LPPool##n##Options(float(p), kernel)) {}       \
    Tensor forward(const Tensor& x);                                                                                     \
  };                                                                                                                     \
  HS_TORCH_HOLDER(LPPool##n)                                                                                             \
  struct MaxUnpool##n##Impl : Cloneable<MaxUnpool##n##Impl> {                                                            \
    HS_TORCH_LAYER(MaxUnpool##n);                                                                                        \
    MaxUnpool##n##Impl(ExpandingArray<D> kernel) : MaxUnpool##n##Impl(MaxUnpool##n##Options(kernel)) {}                  \
    Tensor forward(const Tensor& x, const Tensor& indices, const std::optional<std::vector<int64_t>>& output_size = {}); \
    FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(std::optional<std::vector<int64_t>>())})                                       \
  };                                                                                                                     \
  HS_TORCH_HOLDER(MaxUnpool##n)                                                                                          \
  struct AdaptiveAvgPool##n##Impl : Cloneable<AdaptiveAvgPool##n##Impl> {                                                \
    HS_TORCH_LAYER(AdaptiveAvgPool##n);                                                                                  \
    AdaptiveAvgPool##n##Impl(AdaptiveAvgPool##n##Options::size_type s)                                                   \
        : AdaptiveAvgPool##n##Impl(AdaptiveAvgPool##n##Options(s)) {}                                                    \
    Tensor forward(const Tensor& x);                                                                                     \
  };                                                                                                                     \
  HS_TORCH_HOLDER(AdaptiveAvgPool##n)                                                                                    \
  struct AdaptiveMaxPool##n##Impl : Cloneable<AdaptiveMaxPool##n##Impl> {                                                \
    HS_TORCH_LAYER(AdaptiveMaxPool##n);                                                                                  \
    AdaptiveMaxPool##n##Impl(AdaptiveMaxPool##n##Options::size_type s)                                                   \
        : AdaptiveMaxPool##n##Impl(AdaptiveMaxPool##n##Options(s)) {}                                                    \
    Tensor forward(const Tensor& x);                                                                                     \
    std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);                                                    \
  };                                                                                                                     \
  HS_TORCH_HOLDER(AdaptiveMaxPool##n)
HS_TORCH_POOLS(1d, 1)
HS_TORCH_POOLS(2d, 2) HS_TORCH_POOLS(3d, 3)
#undef HS_TORCH_POOLS

#define HS_TORCH_FRACTIONAL(n, D)                                                                                               \
  struct FractionalMaxPool##n##Impl : Cloneable<FractionalMaxPool##n##Impl> {                                                   \
    HS_TORCH_LAYER(FractionalMaxPool##n);                                                                                       \
    FractionalMaxPool##n##Impl(ExpandingArray<D> kernel) : FractionalMaxPool##n##Impl(FractionalMaxPool##n##Options(kernel)) {} \
    Tensor forward(const Tensor& x);                                                                                            \
    std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);                                                           \
    Tensor _random_samples;                                                                                                     \
  };                                                                                                                            \
  HS_TORCH_HOLDER(FractionalMaxPool##n)
    HS_TORCH_FRACTIONAL(2d, 2) HS_TORCH_FRACTIONAL(3d, 3)
#undef HS_TORCH_FRACTIONAL

}  // namespace torch::nn
