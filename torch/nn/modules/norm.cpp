// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/modules/norm.h"

#include "torch/nn/init.h"
#include "torch/nn/modules/define.h"

namespace torch::nn {

template <class Derived, class Options>
NormImplBase<Derived, Options>::NormImplBase(const Options& o) : options(o) {
  NormImplBase::reset();
}
template <class Derived, class Options>
void NormImplBase<Derived, Options>::reset() {
  const int64_t n = options.num_features();
  const bool affine = options.affine(), track = options.track_running_stats();
  weight = this->register_parameter("weight", affine ? torch::empty({n}) : Tensor(), affine);
  bias = this->register_parameter("bias", affine ? torch::empty({n}) : Tensor(), affine);
  running_mean = this->register_buffer("running_mean", track ? torch::zeros({n}) : Tensor());
  running_var = this->register_buffer("running_var", track ? torch::ones({n}) : Tensor());
  num_batches_tracked = this->register_buffer("num_batches_tracked", track ? torch::zeros({}, kLong) : Tensor());
  reset_parameters();
}
template <class Derived, class Options>
void NormImplBase<Derived, Options>::reset_running_stats() {
  if (!options.track_running_stats()) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}
template <class Derived, class Options>
void NormImplBase<Derived, Options>::reset_parameters() {
  NoGradGuard off;
  reset_running_stats();
  if (!options.affine()) return;
  init::ones_(weight);
  init::zeros_(bias);
}
template <class Derived, class Options>
void NormImplBase<Derived, Options>::print(std::ostream& out, const char* type) const {
  out << std::boolalpha << "torch::nn::" << type << "(" << options.num_features() << ", eps=" << options.eps() << ", momentum=";
  if constexpr (std::is_same_v<Options, BatchNormOptions>) {
    if (options.momentum())
      out << *options.momentum();
    else
      out << "None";
  } else {
    out << options.momentum();
  }
  out << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats() << ")";
}

namespace {

void check_rank(const Tensor& x, int least, int most) {
  if (least == most)
    TORCH_CHECK(x.dim() == least, "expected ", least, "D input (got ", x.dim(), "D input)");
  else
    TORCH_CHECK(x.dim() >= least && x.dim() <= most, "expected ", least, "D or ", most, "D input (got ", x.dim(), "D input)");
}
template <class Norm>
Tensor batch_norm_of(Norm& m, const Tensor& x) {
  const auto& o = m.options;
  double factor = o.momentum().value_or(0);
  if (m.is_training() && o.track_running_stats()) {
    m.num_batches_tracked += 1;
    if (!o.momentum()) factor = 1.0 / m.num_batches_tracked.template item<double>();
  }
  return F::batch_norm(x, m.running_mean, m.running_var,
                       F::BatchNormFuncOptions()
                           .weight(m.weight)
                           .bias(m.bias)
                           .training(m.is_training() || !o.track_running_stats())
                           .momentum(factor)
                           .eps(o.eps()));
}
template <class Norm>
Tensor instance_norm_of(Norm& m, const Tensor& x) {
  return F::instance_norm(x, F::InstanceNormFuncOptions()
                                 .running_mean(m.running_mean)
                                 .running_var(m.running_var)
                                 .weight(m.weight)
                                 .bias(m.bias)
                                 .use_input_stats(m.is_training() || !m.options.track_running_stats())
                                 .momentum(m.options.momentum())
                                 .eps(m.options.eps()));
}

}  // namespace

#define HS_TORCH_NORM(n, least, most)                                                                  \
  void BatchNorm##n##Impl::pretty_print(std::ostream& out) const { print(out, "BatchNorm" #n); }       \
  Tensor BatchNorm##n##Impl::forward(const Tensor& x) {                                                \
    check_rank(x, least, most);                                                                        \
    return batch_norm_of(*this, x);                                                                    \
  }                                                                                                    \
  void InstanceNorm##n##Impl::pretty_print(std::ostream& out) const { print(out, "InstanceNorm" #n); } \
  Tensor InstanceNorm##n##Impl::forward(const Tensor& x) {                                             \
    check_rank(x, most, most);                                                                         \
    return instance_norm_of(*this, x);                                                                 \
  }                                                                                                    \
  template class Cloneable<BatchNorm##n##Impl>;                                                        \
  template class Cloneable<InstanceNorm##n##Impl>;                                                     \
  template class NormImplBase<BatchNorm##n##Impl, BatchNormOptions>;                                   \
  template class NormImplBase<InstanceNorm##n##Impl, InstanceNormOptions>;
HS_TORCH_NORM(1d, 2, 3)
HS_TORCH_NORM(2d, 4, 4) HS_TORCH_NORM(3d, 5, 5)
#undef HS_TORCH_NORM

    HS_TORCH_DEFINE(LayerNorm) void LayerNormImpl::reset() {
  const bool a = options.elementwise_affine();
  weight = register_parameter("weight", a ? torch::empty(options.normalized_shape()) : Tensor(), a);
  bias = register_parameter("bias", a ? torch::empty(options.normalized_shape()) : Tensor(), a);
  reset_parameters();
}
void LayerNormImpl::reset_parameters() {
  if (!options.elementwise_affine()) return;
  init::ones_(weight);
  init::zeros_(bias);
}
HS_TORCH_PRINT(LayerNorm, "(" << IntArrayRef(options.normalized_shape()) << ", eps=" << options.eps()
                              << ", elementwise_affine=" << options.elementwise_affine() << ")")
Tensor LayerNormImpl::forward(const Tensor& x) {
  return F::layer_norm(x, F::LayerNormFuncOptions(options.normalized_shape()).weight(weight).bias(bias).eps(options.eps()));
}

HS_TORCH_DEFINE(GroupNorm)
void GroupNormImpl::reset() {
  const bool a = options.affine();
  weight = register_parameter("weight", a ? torch::empty(options.num_channels()) : Tensor(), a);
  bias = register_parameter("bias", a ? torch::empty(options.num_channels()) : Tensor(), a);
  reset_parameters();
}
void GroupNormImpl::reset_parameters() {
  if (!options.affine()) return;
  init::ones_(weight);
  init::zeros_(bias);
}
HS_TORCH_PRINT(GroupNorm, "(" << options.num_groups() << ", " << options.num_channels() << ", eps=" << options.eps()
                              << ", affine=" << options.affine() << ")")
Tensor GroupNormImpl::forward(const Tensor& x) {
  return F::group_norm(x, F::GroupNormFuncOptions(options.num_groups()).weight(weight).bias(bias).eps(options.eps()));
}

HS_TORCH_DEFINE_FUNCTION(LocalResponseNorm,
                         "(" << options.size() << ", alpha=" << options.alpha() << ", beta=" << options.beta()
                             << ", k=" << options.k() << ")",
                         F::local_response_norm(x, options))
HS_TORCH_DEFINE_FUNCTION(CrossMapLRN2d,
                         "(" << options.size() << ", alpha=" << options.alpha() << ", beta=" << options.beta()
                             << ", k=" << options.k() << ")",
                         hs::local_response_norm(x.h(), options.size(), options.alpha(), options.beta(), double(options.k())))

}  // namespace torch::nn
