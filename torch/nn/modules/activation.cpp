// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/modules/activation.h"

#include "torch/nn/modules/define.h"

namespace torch::nn {

#define HS_TORCH_PLAIN(Name, ...)       \
  template class Cloneable<Name##Impl>; \
  void Name##Impl::reset() {}           \
  HS_TORCH_PRINT(Name, "()")            \
  Tensor Name##Impl::forward(const Tensor& x) { return __VA_ARGS__; }
HS_TORCH_PLAIN_LAYERS(HS_TORCH_PLAIN)
#undef HS_TORCH_PLAIN

template class Cloneable<Softmax2dImpl>;
void Softmax2dImpl::reset() {}
HS_TORCH_PRINT(Softmax2d, "()")
Tensor Softmax2dImpl::forward(const Tensor& x) {
  TORCH_CHECK(x.dim() == 4 || x.dim() == 3, "Softmax2d requires a 3D or 4D tensor as input");
  return x.softmax(-3);
}

namespace {

template <class Options>
void check_bounds(const Options& o) {
  if constexpr (requires { o.min_val(); }) TORCH_CHECK(o.min_val() < o.max_val(), "max_val must be greater than min_val");
}
void print_inplace(std::ostream& out, const char* name, const std::string& shown, bool inplace) {
  out << "torch::nn::" << name << "(" << shown;
  if (inplace) out << (shown.empty() ? "" : ", ") << "inplace=true";
  out << ")";
}

}  // namespace

#define HS_TORCH_INPLACE(Name, function, shown)                                                                   \
  HS_TORCH_DEFINE(Name)                                                                                           \
  void Name##Impl::reset() { check_bounds(options); }                                                             \
  void Name##Impl::pretty_print(std::ostream& out) const { print_inplace(out, #Name, shown, options.inplace()); } \
  Tensor Name##Impl::forward(Tensor x) { return F::function(std::move(x), options); }
HS_TORCH_INPLACE_LAYERS(HS_TORCH_INPLACE)
#undef HS_TORCH_INPLACE

HS_TORCH_DEFINE(RReLU)
void RReLUImpl::reset() {}
void RReLUImpl::pretty_print(std::ostream& out) const {
  print_inplace(out, "RReLU", str("lower=", options.lower(), ", upper=", options.upper()), options.inplace());
}
Tensor RReLUImpl::forward(Tensor x) {
  return F::rrelu(
      std::move(x),
      F::RReLUFuncOptions().lower(options.lower()).upper(options.upper()).training(is_training()).inplace(options.inplace()));
}

HS_TORCH_DEFINE_FUNCTION(GELU, "()", F::gelu(x, options))
HS_TORCH_DEFINE_FUNCTION(GLU, "(dim=" << options.dim() << ")", F::glu(x, options))
HS_TORCH_DEFINE_FUNCTION(Hardshrink, "(" << options.lambda() << ")", F::hardshrink(x, options))
HS_TORCH_DEFINE_FUNCTION(Softshrink, "(" << options.lambda() << ")", F::softshrink(x, options))
HS_TORCH_DEFINE_FUNCTION(Softplus, "(beta=" << options.beta() << ", threshold=" << options.threshold() << ")",
                         F::softplus(x, options))

HS_TORCH_DEFINE(Threshold)
void ThresholdImpl::reset() {}
void ThresholdImpl::pretty_print(std::ostream& out) const {
  print_inplace(out, "Threshold", str("threshold=", options.threshold(), ", value=", options.value()), options.inplace());
}
Tensor ThresholdImpl::forward(Tensor x) { return F::threshold(std::move(x), options); }

#define HS_TORCH_SOFT(Name, function) HS_TORCH_DEFINE_FUNCTION(Name, "(dim=" << options.dim() << ")", F::function(x, options.dim()))
HS_TORCH_SOFT(Softmax, softmax)
HS_TORCH_SOFT(Softmin, softmin)
HS_TORCH_SOFT(LogSoftmax, log_softmax)
#undef HS_TORCH_SOFT

HS_TORCH_DEFINE(PReLU)
void PReLUImpl::reset() { weight = register_parameter("weight", torch::full(options.num_parameters(), options.init())); }
HS_TORCH_PRINT(PReLU, "(num_parameters=" << options.num_parameters() << ")")
Tensor PReLUImpl::forward(const Tensor& x) { return F::prelu(x, weight); }

#define HS_TORCH_DROP(Name, function)                                                                                           \
  HS_TORCH_DEFINE(Name)                                                                                                         \
  void Name##Impl::reset() { F::detail::check_probability(options.p()); }                                                       \
  HS_TORCH_PRINT(Name, "(p=" << options.p() << ", inplace=" << options.inplace() << ")")                                        \
  Tensor Name##Impl::forward(Tensor x) {                                                                                        \
    return F::function(std::move(x), F::Name##FuncOptions().p(options.p()).training(is_training()).inplace(options.inplace())); \
  }
HS_TORCH_DROPS(HS_TORCH_DROP)
#undef HS_TORCH_DROP

}  // namespace torch::nn
