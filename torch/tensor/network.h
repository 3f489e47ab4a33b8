// SPDX-License-Identifier: Apache-2.0
// What libtorch has of networks outside of torch::nn, with all arguments in order.
#pragma once

#include "torch/tensor/linalg.h"

namespace torch {

// ---- what at:: has of networks, with all its arguments in order
namespace detail {
inline hs::MaxPoolOptions max_pool(IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool ceil) {
  return {.stride = D(stride), .padding = D(padding), .dilation = D(dilation), .ceil_mode = ceil};
}
// Returns the target with the input's shape where they differ only in sizes of 1, as ATen's binary_cross_entropy takes the
// [N, 1, 1, 1] of a discriminator with N labels; else the target.
inline hs::Tensor shaped_as(const hs::Tensor& x, const hs::Tensor& target) {
  if (!x.defined() || !target.defined() || target.dim() == 0 || x.squeeze().shape() != target.squeeze().shape()) return target;
  return target.reshape(x.shape());
}
}  // namespace detail
#define HS_TORCH_POOL(n)                                                                                                         \
  inline Tensor max_pool##n(const Tensor& x, IntArrayRef k, IntArrayRef stride = {}, IntArrayRef padding = 0,                    \
                            IntArrayRef dilation = 1, bool ceil = false) {                                                       \
    return hs::max_pool##n(x.h(), detail::D(k), detail::max_pool(stride, padding, dilation, ceil));                              \
  }                                                                                                                              \
  inline std::tuple<Tensor, Tensor> max_pool##n##_with_indices(const Tensor& x, IntArrayRef k, IntArrayRef stride = {},          \
                                                               IntArrayRef padding = 0, IntArrayRef dilation = 1,                \
                                                               bool ceil = false) {                                              \
    return detail::two(hs::max_pool##n##_with_indices(x.h(), detail::D(k), detail::max_pool(stride, padding, dilation, ceil)));  \
  }                                                                                                                              \
  inline Tensor avg_pool##n(const Tensor& x, IntArrayRef k, IntArrayRef stride = {}, IntArrayRef padding = 0, bool ceil = false, \
                            bool count_include_pad = true, std::optional<int64_t> divisor = {}) {                                \
    return hs::avg_pool##n(x.h(), detail::D(k),                                                                                  \
                           {.stride = detail::D(stride),                                                                         \
                            .padding = detail::D(padding),                                                                       \
                            .ceil_mode = ceil,                                                                                   \
                            .count_include_pad = count_include_pad,                                                              \
                            .divisor_override = divisor});                                                                       \
  }                                                                                                                              \
  inline Tensor conv##n(const Tensor& x, const Tensor& w, const Tensor& b = {}, IntArrayRef stride = 1, IntArrayRef padding = 0, \
                        IntArrayRef dilation = 1, int64_t groups = 1) {                                                          \
    return hs::conv##n(                                                                                                          \
        x.h(), w.h(), b.h(),                                                                                                     \
        {.stride = detail::D(stride), .padding = detail::D(padding), .dilation = detail::D(dilation), .groups = groups});        \
  }                                                                                                                              \
  inline Tensor conv_transpose##n(const Tensor& x, const Tensor& w, const Tensor& b = {}, IntArrayRef stride = 1,                \
                                  IntArrayRef padding = 0, IntArrayRef output_padding = 0, int64_t groups = 1,                   \
                                  IntArrayRef dilation = 1) {                                                                    \
    return hs::conv_transpose##n(x.h(), w.h(), b.h(),                                                                            \
                                 {.stride = detail::D(stride),                                                                   \
                                  .padding = detail::D(padding),                                                                 \
                                  .output_padding = detail::D(output_padding),                                                   \
                                  .groups = groups,                                                                              \
                                  .dilation = detail::D(dilation)});                                                             \
  }                                                                                                                              \
  inline Tensor adaptive_avg_pool##n(const Tensor& x, IntArrayRef s) {                                                           \
    return hs::adaptive_avg_pool##n(x.h(), hs::OutputSize(s.begin(), s.end()));                                                  \
  }
HS_TORCH_POOL(1d)
HS_TORCH_POOL(2d)
HS_TORCH_POOL(3d)
#undef HS_TORCH_POOL
    inline Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {}) {
  return hs::linear(x.h(), w.h(), b.h());
}
inline Tensor& linear_out(Tensor& out, const Tensor& x, const Tensor& w, const Tensor& b = {}) {
  return out.copy_(linear(x, w, b));
}
inline Tensor dropout(const Tensor& x, double p, bool training) { return hs::dropout(x.h(), p, training); }
inline Tensor embedding(const Tensor& w, const Tensor& i, int64_t padding_idx = -1, bool scale = false, bool sparse = false) {
  TORCH_CHECK(!sparse, "sparse gradients are not in halfstep: the gradient of an embedding is dense");
  return hs::embedding(w.h(), i.h(), padding_idx < 0 ? std::nullopt : std::optional<int64_t>(padding_idx), scale);
}
inline Tensor batch_norm(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& mean, const Tensor& var, bool training,
                         double momentum, double eps, bool = true) {
  return hs::batch_norm(x.h(), mean.h(), var.h(), w.h(), b.h(), training, momentum, eps);
}
inline Tensor layer_norm(const Tensor& x, IntArrayRef s, const Tensor& w = {}, const Tensor& b = {}, double eps = 1e-5,
                         bool = true) {
  return hs::layer_norm(x.h(), detail::D(s), w.h(), b.h(), eps);
}
inline Tensor group_norm(const Tensor& x, int64_t g, const Tensor& w = {}, const Tensor& b = {}, double eps = 1e-5, bool = true) {
  return hs::group_norm(x.h(), g, w.h(), b.h(), eps);
}
inline Tensor nll_loss(const Tensor& x, const Tensor& t, const Tensor& w = {}, int64_t r = Reduction::Mean, int64_t ignore = -100) {
  return hs::nll_loss(x.h(), t.h(), {.weight = w.h(), .ignore_index = ignore, .reduction = detail::reduction(r)});
}
inline Tensor mse_loss(const Tensor& x, const Tensor& t, int64_t r = Reduction::Mean) {
  return hs::mse_loss(x.h(), t.h(), detail::reduction(r));
}
inline Tensor l1_loss(const Tensor& x, const Tensor& t, int64_t r = Reduction::Mean) {
  return hs::l1_loss(x.h(), t.h(), detail::reduction(r));
}
inline Tensor huber_loss(const Tensor& x, const Tensor& t, int64_t r = Reduction::Mean, double delta = 1) {
  return hs::huber_loss(x.h(), t.h(), detail::reduction(r), delta);
}
inline Tensor pixel_shuffle(const Tensor& x, int64_t factor) { return hs::pixel_shuffle(x.h(), factor); }
inline Tensor pixel_unshuffle(const Tensor& x, int64_t factor) { return hs::pixel_unshuffle(x.h(), factor); }
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& t, int64_t r = Reduction::Mean, double beta = 1) {
  return hs::smooth_l1_loss(x.h(), t.h(), detail::reduction(r), beta);
}
inline Tensor binary_cross_entropy(const Tensor& x, const Tensor& t, const Tensor& w = {}, int64_t r = Reduction::Mean) {
  return hs::binary_cross_entropy(x.h(), detail::shaped_as(x.h(), t.h()), w.h(), detail::reduction(r));
}
inline Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& t, const Tensor& w = {}, const Tensor& pos = {},
                                               int64_t r = Reduction::Mean) {
  return hs::binary_cross_entropy_with_logits(x.h(), t.h(),
                                              {.weight = w.h(), .pos_weight = pos.h(), .reduction = detail::reduction(r)});
}
inline Tensor cross_entropy_loss(const Tensor& x, const Tensor& t, const Tensor& w = {}, int64_t r = Reduction::Mean,
                                 int64_t ignore = -100) {
  return hs::cross_entropy(x.h(), t.h(), {.weight = w.h(), .ignore_index = ignore, .reduction = detail::reduction(r)});
}
inline Tensor leaky_relu(const Tensor& x, Scalar s = 0.01) { return hs::leaky_relu(x.h(), s.toDouble()); }
inline Tensor elu(const Tensor& x, Scalar alpha = 1, Scalar scale = 1, Scalar input_scale = 1) {
  return where(x.gt(0), x * scale, (x * input_scale).expm1() * alpha * scale);
}
inline std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(const Tensor& w, const Tensor& i, const Tensor& offsets, bool scale,
                                                                int64_t mode, bool sparse, const Tensor& per_sample = {},
                                                                bool include_last = false, int64_t padding_idx = -1) {
  TORCH_CHECK(!sparse, "sparse gradients are not in halfstep: the gradient of an embedding is dense");
  hs::EmbeddingBagOptions e;
  e.mode = mode == 0 ? hs::BagMode::sum : mode == 1 ? hs::BagMode::mean : hs::BagMode::max;
  e.scale_grad_by_freq = scale;
  e.per_sample_weights = per_sample.h();
  e.include_last_offset = include_last;
  if (padding_idx >= 0) e.padding_idx = padding_idx;
  return {hs::embedding_bag(w.h(), i.h(), offsets.h(), e), {}, {}, {}};  // the last three are what libtorch keeps for its backward
}
inline Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t d = 1, double eps = 1e-8) {
  return hs::cosine_similarity(a.h(), b.h(), d, eps);
}
inline Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6, bool keep = false) {
  return hs::pairwise_distance(a.h(), b.h(), p, eps, keep);
}
namespace special {
inline Tensor gammaln(const Tensor& x) { return lgamma(x); }
inline Tensor expit(const Tensor& x) { return sigmoid(x); }
}  // namespace special
inline std::vector<Tensor> broadcast_tensors(TensorList xs) {
  hs::Shape s;
  for (const Tensor& x : xs) s = hs::broadcast(s, x.h().shape(), "broadcast_tensors");
  std::vector<Tensor> out;
  for (const Tensor& x : xs) out.push_back(x.h().expand(s));
  return out;
}
namespace detail {
// Fills the gradient with zeros, or drops it.
void zero_grad(const Tensor& parameter, bool set_to_none);
}  // namespace detail

}  // namespace torch
