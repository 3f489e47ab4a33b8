// SPDX-License-Identifier: Apache-2.0
// Norms.
#pragma once

#include "torch/nn/modules/layer.h"

namespace torch::nn {

template <class Derived, class Options>
class NormImplBase : public Cloneable<Derived> {
 public:
  explicit NormImplBase(const Options& o);
  void reset() override;
  void reset_running_stats();
  void reset_parameters();
  Options options;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 protected:
  void print(std::ostream& out, const char* type) const;
};

#define HS_TORCH_NORM(n)                                                                          \
  class BatchNorm##n##Impl : public NormImplBase<BatchNorm##n##Impl, BatchNormOptions> {          \
   public:                                                                                        \
    explicit BatchNorm##n##Impl(const BatchNormOptions& o) : NormImplBase(o) {}                   \
    void pretty_print(std::ostream& out) const override;                                          \
    Tensor forward(const Tensor& x);                                                              \
  };                                                                                              \
  class InstanceNorm##n##Impl : public NormImplBase<InstanceNorm##n##Impl, InstanceNormOptions> { \
   public:                                                                                        \
    explicit InstanceNorm##n##Impl(const InstanceNormOptions& o) : NormImplBase(o) {}             \
    void pretty_print(std::ostream& out) const override;                                          \
    Tensor forward(const Tensor& x);                                                              \
  };                                                                                              \
  extern template class NormImplBase<BatchNorm##n##Impl, BatchNormOptions>;                       \
  extern template class NormImplBase<InstanceNorm##n##Impl, InstanceNormOptions>;                 \
  HS_TORCH_HOLDER(BatchNorm##n)                                                                   \
  HS_TORCH_HOLDER(InstanceNorm##n)
HS_TORCH_NORM(1d)
HS_TORCH_NORM(2d) HS_TORCH_NORM(3d)
#undef HS_TORCH_NORM

    struct LayerNormImpl : Cloneable<LayerNormImpl> {
  HS_TORCH_LAYER(LayerNorm);
  LayerNormImpl(std::vector<int64_t> shape) : LayerNormImpl(LayerNormOptions(std::move(shape))) {}
  void reset_parameters();
  Tensor forward(const Tensor& x);
  Tensor weight, bias;
};
HS_TORCH_HOLDER(LayerNorm)

struct GroupNormImpl : Cloneable<GroupNormImpl> {
  HS_TORCH_LAYER(GroupNorm);
  GroupNormImpl(int64_t num_groups, int64_t num_channels) : GroupNormImpl(GroupNormOptions(num_groups, num_channels)) {}
  void reset_parameters();
  Tensor forward(const Tensor& x);
  Tensor weight, bias;
};
HS_TORCH_HOLDER(GroupNorm)

struct LocalResponseNormImpl : Cloneable<LocalResponseNormImpl> {
  HS_TORCH_LAYER(LocalResponseNorm);
  LocalResponseNormImpl(int64_t size) : LocalResponseNormImpl(LocalResponseNormOptions(size)) {}
  Tensor forward(const Tensor& x);
};
HS_TORCH_HOLDER(LocalResponseNorm)

struct CrossMapLRN2dImpl : Cloneable<CrossMapLRN2dImpl> {
  HS_TORCH_LAYER(CrossMapLRN2d);
  CrossMapLRN2dImpl(int64_t size) : CrossMapLRN2dImpl(CrossMapLRN2dOptions(size)) {}
  Tensor forward(const Tensor& x);
};
HS_TORCH_HOLDER(CrossMapLRN2d)

}  // namespace torch::nn
