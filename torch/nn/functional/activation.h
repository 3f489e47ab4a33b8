// SPDX-License-Identifier: Apache-2.0
// Activations and dropout.
#pragma once

#include "torch/nn/functional/base.h"

namespace torch::nn::functional {

// ---- activations
using ELUFuncOptions = ELUOptions;
using SELUFuncOptions = SELUOptions;
using GELUFuncOptions = GELUOptions;
using GLUFuncOptions = GLUOptions;
using HardshrinkFuncOptions = HardshrinkOptions;
using HardtanhFuncOptions = HardtanhOptions;
using LeakyReLUFuncOptions = LeakyReLUOptions;
using ReLUFuncOptions = ReLUOptions;
using ReLU6FuncOptions = ReLU6Options;
using CELUFuncOptions = CELUOptions;
using SoftplusFuncOptions = SoftplusOptions;
using SoftshrinkFuncOptions = SoftshrinkOptions;
using ThresholdFuncOptions = ThresholdOptions;
struct RReLUFuncOptions {
  HS_TORCH_ARG(double, lower, 1. / 8);
  HS_TORCH_ARG(double, upper, 1. / 3);
  HS_TORCH_ARG(bool, training, false);
  HS_TORCH_ARG(bool, inplace, false);
};
#define HS_SOFT(Name)                                             \
  struct Name {                                                   \
    Name(int64_t d) : dim_(d) {}                                  \
    TORCH_ARG(int64_t, dim);                                      \
    HS_TORCH_ARG(std::optional<ScalarType>, dtype, std::nullopt); \
  };
HS_SOFT(SoftmaxFuncOptions)
HS_SOFT(SoftminFuncOptions)
HS_SOFT(LogSoftmaxFuncOptions)
#undef HS_SOFT
struct GumbelSoftmaxFuncOptions {
  HS_TORCH_ARG(double, tau, 1.0);
  HS_TORCH_ARG(bool, hard, false);
  HS_TORCH_ARG(int, dim, -1);
};

// In place: the values are written into x, as libtorch's functions with a trailing underscore do.
#define HS_ACT(name, expr, Options)                     \
  inline Tensor name(Tensor x, const Options& o = {}) { \
    const Tensor y = expr;                              \
    return o.inplace() ? x.copy_(y) : y;                \
  }
HS_ACT(elu, Tensor(hs::elu(x.h(), o.alpha())), ELUFuncOptions)
HS_ACT(selu, x.selu(), SELUFuncOptions)
HS_ACT(celu, Tensor(hs::celu(x.h(), o.alpha())), CELUFuncOptions)
HS_ACT(hardtanh, Tensor(hs::hardtanh(x.h(), o.min_val(), o.max_val())), HardtanhFuncOptions)
HS_ACT(leaky_relu, Tensor(hs::leaky_relu(x.h(), o.negative_slope())), LeakyReLUFuncOptions)
HS_ACT(relu, x.relu(), ReLUFuncOptions)
HS_ACT(relu6, x.relu6(), ReLU6FuncOptions)
HS_ACT(rrelu, Tensor(hs::rrelu(x.h(), o.lower(), o.upper(), o.training())), RReLUFuncOptions)
#undef HS_ACT
inline Tensor threshold(Tensor x, const ThresholdFuncOptions& o) {
  const Tensor y = hs::threshold(x.h(), o.threshold(), o.value());
  return o.inplace() ? x.copy_(y) : y;
}
inline Tensor glu(const Tensor& x, const GLUFuncOptions& o = {}) {
  TORCH_CHECK(x.dim() != 0, "glu does not suppport scalars because halving size must be even");
  return hs::glu(x.h(), o.dim());
}
inline Tensor hardshrink(const Tensor& x, const HardshrinkFuncOptions& o = {}) { return hs::hardshrink(x.h(), o.lambda()); }
inline Tensor softshrink(const Tensor& x, const SoftshrinkFuncOptions& o = {}) { return hs::softshrink(x.h(), o.lambda()); }
inline Tensor softplus(const Tensor& x, const SoftplusFuncOptions& o = {}) { return hs::softplus(x.h(), o.beta(), o.threshold()); }
inline Tensor logsigmoid(const Tensor& x) { return x.logsigmoid(); }
inline Tensor gelu(const Tensor& x, const GELUFuncOptions& o = {}) { return x.gelu(o.approximate()); }
inline Tensor silu(const Tensor& x) { return x.silu(); }
inline Tensor mish(const Tensor& x) { return x.mish(); }
inline Tensor prelu(const Tensor& x, const Tensor& w) { return hs::prelu(x.h(), w.h()); }
inline Tensor softsign(const Tensor& x) { return x.softsign(); }
inline Tensor tanhshrink(const Tensor& x) { return hs::tanhshrink(x.h()); }
inline Tensor softmax(const Tensor& x, const SoftmaxFuncOptions& o) { return x.softmax(o.dim(), o.dtype()); }
inline Tensor softmin(const Tensor& x, const SoftminFuncOptions& o) { return x.neg().softmax(o.dim(), o.dtype()); }
inline Tensor log_softmax(const Tensor& x, const LogSoftmaxFuncOptions& o) { return x.log_softmax(o.dim(), o.dtype()); }
inline Tensor gumbel_softmax(const Tensor& x, const GumbelSoftmaxFuncOptions& o = {}) {
  return hs::gumbel_softmax(x.h(), o.tau(), o.hard(), o.dim());
}

// ---- dropout
struct DropoutFuncOptions {
  HS_TORCH_ARG(double, p, 0.5);
  HS_TORCH_ARG(bool, training, true);
  HS_TORCH_ARG(bool, inplace, false);
};
using Dropout2dFuncOptions = DropoutFuncOptions;
using Dropout3dFuncOptions = DropoutFuncOptions;
struct AlphaDropoutFuncOptions {
  HS_TORCH_ARG(double, p, 0.5);
  HS_TORCH_ARG(bool, training, false);
  HS_TORCH_ARG(bool, inplace, false);
};
using FeatureAlphaDropoutFuncOptions = AlphaDropoutFuncOptions;
namespace detail {
inline void check_probability(double p) {
  TORCH_CHECK(p >= 0. && p <= 1., "dropout probability has to be between 0 and 1, but got ", p);
}
// Draws a mask [N, C, 1...] of x [N, C, ...], which is 0 with probability p and 1 otherwise.
inline Tensor feature_mask(const Tensor& x, double p) {
  std::vector<int64_t> shape(size_t(x.dim()), 1);
  shape[0] = x.size(0);
  if (x.dim() > 1) shape[1] = x.size(1);
  return Tensor(hs::bernoulli(hs::full(D(shape), 1 - p))).to(x.scalar_type());
}
// Replaces the elements where the mask is 0 by alpha, and scales and shifts all so that mean 0 and variance 1 remain.
inline Tensor alpha_dropped(const Tensor& x, const Tensor& mask, double p) {
  constexpr double alpha = -1.7580993408473766;  // limit of SELU at -infinity: -scale alpha (Klambauer et al. 2017)
  const double a = 1 / std::sqrt((alpha * alpha * p + 1) * (1 - p)), b = -a * alpha * p;
  return (x * mask + alpha * (1 - mask)) * a + b;
}
// Returns y, or x after y was written into it.
inline Tensor put(bool inplace, const Tensor& x, const Tensor& y) { return inplace ? x.copy_(y) : y; }
}  // namespace detail
inline Tensor dropout(Tensor x, const DropoutFuncOptions& o = {}) {
  detail::check_probability(o.p());
  return detail::put(o.inplace(), x, hs::dropout(x.h(), o.p(), o.training()));
}
inline Tensor dropout2d(Tensor x, const Dropout2dFuncOptions& o = {}) {
  detail::check_probability(o.p());
  if (!o.training() || o.p() == 0) return x;
  return detail::put(o.inplace(), x, o.p() == 1 ? x * 0 : x * detail::feature_mask(x, o.p()) / (1 - o.p()));
}
inline Tensor dropout3d(Tensor x, const Dropout3dFuncOptions& o = {}) { return dropout2d(x, o); }
inline Tensor alpha_dropout(Tensor x, const AlphaDropoutFuncOptions& o = {}) {
  detail::check_probability(o.p());
  if (!o.training() || o.p() == 0) return x;
  if (o.p() == 1) return detail::put(o.inplace(), x, x * 0);
  const Tensor mask = Tensor(hs::bernoulli(hs::full(x.h().shape(), 1 - o.p()))).to(x.scalar_type());
  return detail::put(o.inplace(), x, detail::alpha_dropped(x, mask, o.p()));
}
inline Tensor feature_alpha_dropout(Tensor x, const FeatureAlphaDropoutFuncOptions& o = {}) {
  detail::check_probability(o.p());
  if (!o.training() || o.p() == 0) return x;
  if (o.p() == 1) return detail::put(o.inplace(), x, x * 0);
  return detail::put(o.inplace(), x, detail::alpha_dropped(x, detail::feature_mask(x, o.p()), o.p()));
}

// The same with plain arguments, as libtorch's modules call them.
namespace detail {
inline Tensor alpha_dropout(Tensor x, double p, bool training, bool inplace) {
  return functional::alpha_dropout(x, AlphaDropoutFuncOptions().p(p).training(training).inplace(inplace));
}
inline Tensor feature_alpha_dropout(Tensor x, double p, bool training, bool inplace) {
  return functional::feature_alpha_dropout(x, FeatureAlphaDropoutFuncOptions().p(p).training(training).inplace(inplace));
}
}  // namespace detail

}  // namespace torch::nn::functional
