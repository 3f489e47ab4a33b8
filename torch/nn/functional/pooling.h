// SPDX-License-Identifier: Apache-2.0
// Pooling.
#pragma once

#include "torch/nn/functional/base.h"

namespace torch::nn::functional {

// ---- pooling
#define HS_POOL(n, ND)                                                                                                           \
  using MaxPool##n##FuncOptions = MaxPoolOptions<ND>;                                                                            \
  using AvgPool##n##FuncOptions = AvgPoolOptions<ND>;                                                                            \
  using LPPool##n##FuncOptions = LPPoolOptions<ND>;                                                                              \
  using AdaptiveAvgPool##n##FuncOptions = AdaptiveAvgPool##n##Options;                                                           \
  using AdaptiveMaxPool##n##FuncOptions = AdaptiveMaxPool##n##Options;                                                           \
  struct MaxUnpool##n##FuncOptions {                                                                                             \
    MaxUnpool##n##FuncOptions(ExpandingArray<ND> k) : kernel_size_(k), stride_(k) {}                                             \
    TORCH_ARG(ExpandingArray<ND>, kernel_size);                                                                                  \
    TORCH_ARG(ExpandingArray<ND>, stride);                                                                                       \
    HS_TORCH_ARG(ExpandingArray<ND>, padding, 0);                                                                                \
    HS_TORCH_ARG(std::optional<std::vector<int64_t>>, output_size, std::nullopt);                                                \
  };                                                                                                                             \
  inline Tensor max_pool##n(const Tensor& x, const MaxPoolOptions<ND>& o) {                                                      \
    return hs::max_pool##n(                                                                                                      \
        x.h(), o.kernel_size().d(),                                                                                              \
        {.stride = o.stride().d(), .padding = o.padding().d(), .dilation = o.dilation().d(), .ceil_mode = o.ceil_mode()});       \
  }                                                                                                                              \
  inline std::tuple<Tensor, Tensor> max_pool##n##_with_indices(const Tensor& x, const MaxPoolOptions<ND>& o) {                   \
    return ::torch::detail::two(hs::max_pool##n##_with_indices(                                                                  \
        x.h(), o.kernel_size().d(),                                                                                              \
        {.stride = o.stride().d(), .padding = o.padding().d(), .dilation = o.dilation().d(), .ceil_mode = o.ceil_mode()}));      \
  }                                                                                                                              \
  inline Tensor avg_pool##n(const Tensor& x, const AvgPoolOptions<ND>& o) {                                                      \
    return hs::avg_pool##n(x.h(), o.kernel_size().d(),                                                                           \
                           {.stride = o.stride().d(),                                                                            \
                            .padding = o.padding().d(),                                                                          \
                            .ceil_mode = o.ceil_mode(),                                                                          \
                            .count_include_pad = o.count_include_pad(),                                                          \
                            .divisor_override = o.divisor_override()});                                                          \
  }                                                                                                                              \
  inline Tensor lp_pool##n(const Tensor& x, const LPPoolOptions<ND>& o) {                                                        \
    return hs::lp_pool##n(x.h(), o.norm_type(), o.kernel_size().d(), o.stride().d(), o.ceil_mode());                             \
  }                                                                                                                              \
  inline Tensor max_unpool##n(const Tensor& x, const Tensor& i, const MaxUnpool##n##FuncOptions& o) {                            \
    return hs::max_unpool##n(x.h(), i.h(), o.kernel_size().d(),                                                                  \
                             {.stride = o.stride().d(),                                                                          \
                              .padding = o.padding().d(),                                                                        \
                              .output_size = o.output_size() ? ::torch::detail::D(*o.output_size()) : hs::Dims()});              \
  }                                                                                                                              \
  inline Tensor adaptive_avg_pool##n(const Tensor& x, const AdaptiveAvgPool##n##Options& o) {                                    \
    return hs::adaptive_avg_pool##n(x.h(), hs::OutputSize((*o.output_size()).begin(), (*o.output_size()).end()));                \
  }                                                                                                                              \
  inline Tensor adaptive_max_pool##n(const Tensor& x, const AdaptiveMaxPool##n##Options& o) {                                    \
    return hs::adaptive_max_pool##n(x.h(), hs::OutputSize((*o.output_size()).begin(), (*o.output_size()).end()));                \
  }                                                                                                                              \
  inline std::tuple<Tensor, Tensor> adaptive_max_pool##n##_with_indices(const Tensor& x, const AdaptiveMaxPool##n##Options& o) { \
    return ::torch::detail::two(                                                                                                 \
        hs::adaptive_max_pool##n##_with_indices(x.h(), hs::OutputSize((*o.output_size()).begin(), (*o.output_size()).end())));   \
  }
HS_POOL(1d, 1)
HS_POOL(2d, 2) HS_POOL(3d, 3)
#undef HS_POOL
#define HS_FRACTIONAL(n, D)                                                                                                        \
  using FractionalMaxPool##n##FuncOptions = FractionalMaxPoolOptions<D>;                                                           \
  inline std::tuple<Tensor, Tensor> fractional_max_pool##n##_with_indices(const Tensor& x, const FractionalMaxPoolOptions<D>& o) { \
    hs::FractionalMaxPoolOptions f;                                                                                                \
    if (o.output_size()) f.output_size = o.output_size()->d();                                                                     \
    if (o.output_ratio()) f.output_ratio = std::vector<double>((**o.output_ratio()).begin(), (**o.output_ratio()).end());          \
    f.random_samples = o._random_samples().h();                                                                                    \
    return ::torch::detail::two(hs::fractional_max_pool##n##_with_indices(x.h(), o.kernel_size().d(), f));                         \
  }                                                                                                                                \
  inline Tensor fractional_max_pool##n(const Tensor& x, const FractionalMaxPoolOptions<D>& o) {                                    \
    return std::get<0>(fractional_max_pool##n##_with_indices(x, o));                                                               \
  }
    HS_FRACTIONAL(2d, 2) HS_FRACTIONAL(3d, 3)
#undef HS_FRACTIONAL

}  // namespace torch::nn::functional
