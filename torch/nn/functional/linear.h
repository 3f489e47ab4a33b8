// SPDX-License-Identifier: Apache-2.0
// Products, embeddings, convolutions and norms.
#pragma once

#include "torch/nn/functional/base.h"

namespace torch::nn::functional {

// ---- linear, embedding
inline Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {}) { return hs::linear(x.h(), w.h(), b.h()); }
inline Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& w, const Tensor& bias = {}) {
  return hs::bilinear(a.h(), b.h(), w.h(), bias.h());
}
inline Tensor one_hot(const Tensor& x, int64_t n = -1) { return hs::one_hot(x.h(), n); }
namespace detail {
inline void check_dense(bool sparse) {
  TORCH_CHECK(!sparse, "sparse gradients are not in halfstep: leave out sparse(true), the gradient is dense");
}
}  // namespace detail
struct EmbeddingFuncOptions {
  HS_TORCH_ARG(std::optional<int64_t>, padding_idx, std::nullopt);
  HS_TORCH_ARG(std::optional<double>, max_norm, std::nullopt);
  HS_TORCH_ARG(double, norm_type, 2.);
  HS_TORCH_ARG(bool, scale_grad_by_freq, false);
  HS_TORCH_ARG(bool, sparse, false);
};
inline Tensor embedding(const Tensor& i, const Tensor& w, const EmbeddingFuncOptions& o = {}) {
  detail::check_dense(o.sparse());
  return hs::embedding(w.h(), i.h(), o.padding_idx(), o.scale_grad_by_freq(), o.max_norm(), o.norm_type());
}
struct EmbeddingBagFuncOptions {
  HS_TORCH_ARG(Tensor, offsets, Tensor());
  HS_TORCH_ARG(std::optional<double>, max_norm, std::nullopt);
  HS_TORCH_ARG(double, norm_type, 2.);
  HS_TORCH_ARG(bool, scale_grad_by_freq, false);
  HS_TORCH_ARG(bag_mode_t, mode, kMean);
  HS_TORCH_ARG(bool, sparse, false);
  HS_TORCH_ARG(Tensor, per_sample_weights, Tensor());
  HS_TORCH_ARG(bool, include_last_offset, false);
  HS_TORCH_ARG(std::optional<int64_t>, padding_idx, std::nullopt);
};
inline Tensor embedding_bag(const Tensor& i, const Tensor& w, const EmbeddingBagFuncOptions& o = {}) {
  detail::check_dense(o.sparse());
  const std::string m = enumtype::get_enum_name(o.mode());
  hs::EmbeddingBagOptions e;
  e.mode = m == "kSum" ? hs::BagMode::sum : m == "kMean" ? hs::BagMode::mean : hs::BagMode::max;
  e.max_norm = o.max_norm();
  e.norm_type = o.norm_type();
  e.scale_grad_by_freq = o.scale_grad_by_freq();
  e.per_sample_weights = o.per_sample_weights().h();
  e.include_last_offset = o.include_last_offset();
  e.padding_idx = o.padding_idx();
  return hs::embedding_bag(w.h(), i.h(), o.offsets().h(), e);
}

// ---- convolutions
template <size_t D>
struct ConvFuncOptions {
  using padding_t = std::variant<ExpandingArray<D>, enumtype::kValid, enumtype::kSame>;
  auto& padding(std::initializer_list<int64_t> p) {
    padding_ = ExpandingArray<D>(p);
    return *this;
  }
  HS_TORCH_ARG(Tensor, bias, Tensor());
  HS_TORCH_ARG(ExpandingArray<D>, stride, 1);
  HS_TORCH_ARG(padding_t, padding, ExpandingArray<D>(0));
  HS_TORCH_ARG(ExpandingArray<D>, dilation, 1);
  HS_TORCH_ARG(int64_t, groups, 1);
};
using Conv1dFuncOptions = ConvFuncOptions<1>;
using Conv2dFuncOptions = ConvFuncOptions<2>;
using Conv3dFuncOptions = ConvFuncOptions<3>;
template <size_t D>
struct ConvTransposeFuncOptions {
  HS_TORCH_ARG(Tensor, bias, Tensor());
  HS_TORCH_ARG(ExpandingArray<D>, stride, 1);
  HS_TORCH_ARG(ExpandingArray<D>, padding, 0);
  HS_TORCH_ARG(ExpandingArray<D>, output_padding, 0);
  HS_TORCH_ARG(int64_t, groups, 1);
  HS_TORCH_ARG(ExpandingArray<D>, dilation, 1);
};
using ConvTranspose1dFuncOptions = ConvTransposeFuncOptions<1>;
using ConvTranspose2dFuncOptions = ConvTransposeFuncOptions<2>;
using ConvTranspose3dFuncOptions = ConvTransposeFuncOptions<3>;
namespace detail {
template <class P>
hs::ConvPadding conv_padding(const P& p) {
  if (std::holds_alternative<enumtype::kSame>(p)) return "same";
  if (std::holds_alternative<enumtype::kValid>(p)) return "valid";
  return std::get<0>(p).d();
}
}  // namespace detail
#define HS_CONV(n, D)                                                                                            \
  inline Tensor conv##n(const Tensor& x, const Tensor& w, const ConvFuncOptions<D>& o = {}) {                    \
    return hs::conv##n(x.h(), w.h(), o.bias().h(),                                                               \
                       {.stride = o.stride().d(),                                                                \
                        .padding = detail::conv_padding(o.padding()),                                            \
                        .dilation = o.dilation().d(),                                                            \
                        .groups = o.groups()});                                                                  \
  }                                                                                                              \
  inline Tensor conv_transpose##n(const Tensor& x, const Tensor& w, const ConvTransposeFuncOptions<D>& o = {}) { \
    return hs::conv_transpose##n(x.h(), w.h(), o.bias().h(),                                                     \
                                 {.stride = o.stride().d(),                                                      \
                                  .padding = o.padding().d(),                                                    \
                                  .output_padding = o.output_padding().d(),                                      \
                                  .groups = o.groups(),                                                          \
                                  .dilation = o.dilation().d()});                                                \
  }
HS_CONV(1d, 1)
HS_CONV(2d, 2) HS_CONV(3d, 3)
#undef HS_CONV
    // ---- norms
    struct BatchNormFuncOptions {
  HS_TORCH_ARG(Tensor, weight, Tensor());
  HS_TORCH_ARG(Tensor, bias, Tensor());
  HS_TORCH_ARG(bool, training, false);
  HS_TORCH_ARG(double, momentum, 0.1);
  HS_TORCH_ARG(double, eps, 1e-5);
};
inline Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const BatchNormFuncOptions& o = {}) {
  return hs::batch_norm(x.h(), mean.h(), var.h(), o.weight().h(), o.bias().h(), o.training(), o.momentum(), o.eps());
}
struct InstanceNormFuncOptions {
  HS_TORCH_ARG(Tensor, running_mean, Tensor());
  HS_TORCH_ARG(Tensor, running_var, Tensor());
  HS_TORCH_ARG(Tensor, weight, Tensor());
  HS_TORCH_ARG(Tensor, bias, Tensor());
  HS_TORCH_ARG(bool, use_input_stats, true);
  HS_TORCH_ARG(double, momentum, 0.1);
  HS_TORCH_ARG(double, eps, 1e-5);
};
inline Tensor instance_norm(const Tensor& x, const InstanceNormFuncOptions& o = {}) {
  return hs::instance_norm(x.h(), o.running_mean().h(), o.running_var().h(), o.weight().h(), o.bias().h(), o.use_input_stats(),
                           o.momentum(), o.eps());
}
struct LayerNormFuncOptions {
  LayerNormFuncOptions(std::vector<int64_t> s) : normalized_shape_(std::move(s)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  HS_TORCH_ARG(Tensor, weight, Tensor());
  HS_TORCH_ARG(Tensor, bias, Tensor());
  HS_TORCH_ARG(double, eps, 1e-5);
};
inline Tensor layer_norm(const Tensor& x, const LayerNormFuncOptions& o) {
  return hs::layer_norm(x.h(), detail::D(o.normalized_shape()), o.weight().h(), o.bias().h(), o.eps());
}
struct GroupNormFuncOptions {
  GroupNormFuncOptions(int64_t g) : num_groups_(g) {}
  TORCH_ARG(int64_t, num_groups);
  HS_TORCH_ARG(Tensor, weight, Tensor());
  HS_TORCH_ARG(Tensor, bias, Tensor());
  HS_TORCH_ARG(double, eps, 1e-5);
};
inline Tensor group_norm(const Tensor& x, const GroupNormFuncOptions& o) {
  return hs::group_norm(x.h(), o.num_groups(), o.weight().h(), o.bias().h(), o.eps());
}
using LocalResponseNormFuncOptions = LocalResponseNormOptions;
inline Tensor local_response_norm(const Tensor& x, const LocalResponseNormFuncOptions& o) {
  return hs::local_response_norm(x.h(), o.size(), o.alpha(), o.beta(), o.k());
}
struct NormalizeFuncOptions {
  HS_TORCH_ARG(double, p, 2.0);
  HS_TORCH_ARG(int64_t, dim, 1);
  HS_TORCH_ARG(double, eps, 1e-12);
  HS_TORCH_ARG(std::optional<Tensor>, out, std::nullopt);
};
inline Tensor normalize(const Tensor& x, NormalizeFuncOptions o = {}) {
  const Tensor y = hs::normalize(x.h(), o.p(), {o.dim()}, o.eps());
  return o.out() ? o.out()->copy_(y) : y;
}

}  // namespace torch::nn::functional
