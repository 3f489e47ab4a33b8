// SPDX-License-Identifier: Apache-2.0
// Convolutions and padding.
#pragma once

#include "torch/nn/modules/layer.h"

namespace torch::nn {

template <size_t D, class Derived>
class ConvNdImpl : public Cloneable<Derived> {
 public:
  explicit ConvNdImpl(ConvOptions<D> o);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& out) const override;
  Tensor forward(const Tensor& x);
  ConvOptions<D> options;
  Tensor weight, bias;
};

template <size_t D, class Derived>
class ConvTransposeNdImpl : public Cloneable<Derived> {
 public:
  explicit ConvTransposeNdImpl(ConvTransposeOptions<D> o);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& out) const override;
  Tensor forward(const Tensor& x, const std::optional<IntArrayRef>& output_size = {});
  ConvTransposeOptions<D> options;
  Tensor weight, bias;

 private:
  hs::Dims extra_for(const Tensor& x, const std::optional<IntArrayRef>& output_size) const;

 public:
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(std::optional<IntArrayRef>())})
};

#define HS_TORCH_CONV(D)                                                                                                  \
  class Conv##D##dImpl : public ConvNdImpl<D, Conv##D##dImpl> {                                                           \
   public:                                                                                                                \
    Conv##D##dImpl(int64_t in, int64_t out, ExpandingArray<D> kernel) : ConvNdImpl(Conv##D##dOptions(in, out, kernel)) {} \
    explicit Conv##D##dImpl(Conv##D##dOptions o) : ConvNdImpl(std::move(o)) {}                                            \
  };                                                                                                                      \
  class ConvTranspose##D##dImpl : public ConvTransposeNdImpl<D, ConvTranspose##D##dImpl> {                                \
   public:                                                                                                                \
    ConvTranspose##D##dImpl(int64_t in, int64_t out, ExpandingArray<D> kernel)                                            \
        : ConvTransposeNdImpl(ConvTranspose##D##dOptions(in, out, kernel)) {}                                             \
    explicit ConvTranspose##D##dImpl(ConvTranspose##D##dOptions o) : ConvTransposeNdImpl(std::move(o)) {}                 \
  };                                                                                                                      \
  extern template class ConvNdImpl<D, Conv##D##dImpl>;                                                                    \
  extern template class ConvTransposeNdImpl<D, ConvTranspose##D##dImpl>;                                                  \
  HS_TORCH_HOLDER(Conv##D##d)                                                                                             \
  HS_TORCH_HOLDER(ConvTranspose##D##d)
HS_TORCH_CONV(1)
HS_TORCH_CONV(2)
HS_TORCH_CONV(3)
#undef HS_TORCH_CONV

// Padding by a mode: name, dimensions, mode.
#define HS_TORCH_PADS(ROW)                                                                                    \
  ROW(ReflectionPad1d, 1, kReflect)                                                                           \
  ROW(ReflectionPad2d, 2, kReflect)                                                                           \
  ROW(ReflectionPad3d, 3, kReflect) ROW(ReplicationPad1d, 1, kReplicate) ROW(ReplicationPad2d, 2, kReplicate) \
      ROW(ReplicationPad3d, 3, kReplicate) ROW(ZeroPad1d, 1, kConstant) ROW(ZeroPad2d, 2, kConstant) ROW(ZeroPad3d, 3, kConstant)
#define HS_TORCH_PAD(Name, D, mode)                                       \
  struct Name##Impl : Cloneable<Name##Impl> {                             \
    HS_TORCH_LAYER(Name);                                                 \
    Name##Impl(ExpandingArray<2 * D> p) : Name##Impl(Name##Options(p)) {} \
    Tensor forward(const Tensor& x);                                      \
  };                                                                      \
  HS_TORCH_HOLDER(Name)
    HS_TORCH_PADS(HS_TORCH_PAD)
#undef HS_TORCH_PAD
#define HS_TORCH_CONSTANT_PAD(D)                                                                                        \
  struct ConstantPad##D##dImpl : Cloneable<ConstantPad##D##dImpl> {                                                     \
    HS_TORCH_LAYER(ConstantPad##D##d);                                                                                  \
    ConstantPad##D##dImpl(ExpandingArray<2 * D> p, double v) : ConstantPad##D##dImpl(ConstantPad##D##dOptions(p, v)) {} \
    Tensor forward(const Tensor& x);                                                                                    \
  };                                                                                                                    \
  HS_TORCH_HOLDER(ConstantPad##D##d)
        HS_TORCH_CONSTANT_PAD(1) HS_TORCH_CONSTANT_PAD(2) HS_TORCH_CONSTANT_PAD(3)
#undef HS_TORCH_CONSTANT_PAD

}  // namespace torch::nn
