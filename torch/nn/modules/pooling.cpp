// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/modules/pooling.h"

#include "torch/nn/modules/define.h"

namespace torch::nn {

#define HS_TORCH_POOLS(n)                                                                                                      \
  HS_TORCH_DEFINE_FUNCTION(MaxPool##n,                                                                                         \
                           "(kernel_size=" << options.kernel_size() << ", stride=" << options.stride()                         \
                                           << ", padding=" << options.padding() << ", dilation=" << options.dilation()         \
                                           << ", ceil_mode=" << options.ceil_mode() << ")",                                    \
                           F::max_pool##n(x, options))                                                                         \
  std::tuple<Tensor, Tensor> MaxPool##n##Impl::forward_with_indices(const Tensor& x) {                                         \
    return F::max_pool##n##_with_indices(x, options);                                                                          \
  }                                                                                                                            \
  HS_TORCH_DEFINE_FUNCTION(                                                                                                    \
      AvgPool##n,                                                                                                              \
      "(kernel_size=" << options.kernel_size() << ", stride=" << options.stride() << ", padding=" << options.padding() << ")", \
      F::avg_pool##n(x, options))                                                                                              \
  HS_TORCH_DEFINE_FUNCTION(LPPool##n,                                                                                          \
                           "(norm_type=" << options.norm_type() << ", kernel_size=" << options.kernel_size()                   \
                                         << ", stride=" << options.stride() << ", ceil_mode=" << options.ceil_mode() << ")",   \
                           F::lp_pool##n(x, options))                                                                          \
  HS_TORCH_DEFINE(MaxUnpool##n)                                                                                                \
  void MaxUnpool##n##Impl::reset() {}                                                                                          \
  HS_TORCH_PRINT(MaxUnpool##n, "(kernel_size=" << options.kernel_size() << ", stride=" << options.stride()                     \
                                               << ", padding=" << options.padding() << ")")                                    \
  Tensor MaxUnpool##n##Impl::forward(const Tensor& x, const Tensor& indices,                                                   \
                                     const std::optional<std::vector<int64_t>>& output_size) {                                 \
    F::MaxUnpool##n##FuncOptions o(options.kernel_size());                                                                     \
    o.stride(options.stride()).padding(options.padding()).output_size(output_size);                                            \
    return F::max_unpool##n(x, indices, o);                                                                                    \
  }                                                                                                                            \
  HS_TORCH_DEFINE_FUNCTION(AdaptiveAvgPool##n, "(output_size=" << options.output_size() << ")",                                \
                           F::adaptive_avg_pool##n(x, options))                                                                \
  HS_TORCH_DEFINE_FUNCTION(AdaptiveMaxPool##n, "(output_size=" << options.output_size() << ")",                                \
                           F::adaptive_max_pool##n(x, options))                                                                \
  std::tuple<Tensor, Tensor> AdaptiveMaxPool##n##Impl::forward_with_indices(const Tensor& x) {                                 \
    return F::adaptive_max_pool##n##_with_indices(x, options);                                                                 \
  }
HS_TORCH_POOLS(1d)
HS_TORCH_POOLS(2d) HS_TORCH_POOLS(3d)
#undef HS_TORCH_POOLS

    namespace {

  template <class Options>
  void check_fractional(const char* name, const Options& o) {
    TORCH_CHECK(o.output_size() || o.output_ratio(), name, " requires specifying either an output size, or a pooling ratio");
    TORCH_CHECK(!(o.output_size() && o.output_ratio()), "only one of output_size and output_ratio may be specified");
    if (!o.output_ratio()) return;
    for (double r : **o.output_ratio()) {
      TORCH_CHECK(0 < r && r < 1, "output_ratio must be between 0 and 1 (got ", *o.output_ratio(), ")");
    }
  }

}  // namespace

#define HS_TORCH_FRACTIONAL(n)                                                                   \
  HS_TORCH_DEFINE(FractionalMaxPool##n)                                                          \
  void FractionalMaxPool##n##Impl::reset() {                                                     \
    _random_samples = register_buffer("_random_samples", options._random_samples());             \
    check_fractional("FractionalMaxPool" #n, options);                                           \
  }                                                                                              \
  HS_TORCH_PRINT(FractionalMaxPool##n, "()")                                                     \
  std::tuple<Tensor, Tensor> FractionalMaxPool##n##Impl::forward_with_indices(const Tensor& x) { \
    auto o = options;                                                                            \
    return F::fractional_max_pool##n##_with_indices(x, o._random_samples(_random_samples));      \
  }                                                                                              \
  Tensor FractionalMaxPool##n##Impl::forward(const Tensor& x) { return std::get<0>(forward_with_indices(x)); }
HS_TORCH_FRACTIONAL(2d) HS_TORCH_FRACTIONAL(3d)
#undef HS_TORCH_FRACTIONAL

}  // namespace torch::nn
