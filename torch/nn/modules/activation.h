// SPDX-License-Identifier: Apache-2.0
// Activations and dropout.
#pragma once

#include "torch/nn/modules/layer.h"

namespace torch::nn {

// Layers without options: name, function of x.
#define HS_TORCH_PLAIN_LAYERS(ROW) \
  ROW(LogSigmoid, x.logsigmoid())  \
  ROW(Sigmoid, x.sigmoid())        \
  ROW(Softsign, x.softsign()) ROW(Tanh, x.tanh()) ROW(Tanhshrink, F::tanhshrink(x)) ROW(SiLU, x.silu()) ROW(Mish, x.mish())
#define HS_TORCH_PLAIN(Name, function)                   \
  struct Name##Impl : Cloneable<Name##Impl> {            \
    void reset() override;                               \
    void pretty_print(std::ostream& out) const override; \
    Tensor forward(const Tensor& x);                     \
  };                                                     \
  HS_TORCH_HOLDER(Name)
HS_TORCH_PLAIN_LAYERS(HS_TORCH_PLAIN)
HS_TORCH_PLAIN(Softmax2d, )
#undef HS_TORCH_PLAIN

// Layers that may write into their input: name, function, what they print of their options.
#define HS_TORCH_INPLACE_LAYERS(ROW)                                                                                \
  ROW(ReLU, relu, "")                                                                                               \
  ROW(ReLU6, relu6, "")                                                                                             \
  ROW(SELU, selu, "") ROW(ELU, elu, str("alpha=", options.alpha())) ROW(CELU, celu, str("alpha=", options.alpha())) \
      ROW(Hardtanh, hardtanh, str("min_val=", options.min_val(), ", max_val=", options.max_val()))                  \
          ROW(LeakyReLU, leaky_relu, str("negative_slope=", options.negative_slope()))
#define HS_TORCH_INPLACE(Name, function, shown) \
  struct Name##Impl : Cloneable<Name##Impl> {   \
    HS_TORCH_LAYER_DEFAULT(Name);               \
    Tensor forward(Tensor x);                   \
  };                                            \
  HS_TORCH_HOLDER(Name)
HS_TORCH_INPLACE_LAYERS(HS_TORCH_INPLACE)
HS_TORCH_INPLACE(RReLU, , )
#undef HS_TORCH_INPLACE

HS_TORCH_FUNCTION_LAYER(GELU)
HS_TORCH_FUNCTION_LAYER(GLU)
HS_TORCH_FUNCTION_LAYER(Hardshrink)
HS_TORCH_FUNCTION_LAYER(Softshrink)
HS_TORCH_FUNCTION_LAYER(Softplus)

struct ThresholdImpl : Cloneable<ThresholdImpl> {
  HS_TORCH_LAYER(Threshold);
  ThresholdImpl(double threshold, double value) : ThresholdImpl(ThresholdOptions(threshold, value)) {}
  Tensor forward(Tensor x);
};
HS_TORCH_HOLDER(Threshold)

#define HS_TORCH_SOFT(Name)                                     \
  struct Name##Impl : Cloneable<Name##Impl> {                   \
    HS_TORCH_LAYER(Name);                                       \
    Name##Impl(int64_t dim) : Name##Impl(Name##Options(dim)) {} \
    Tensor forward(const Tensor& x);                            \
  };                                                            \
  HS_TORCH_HOLDER(Name)
HS_TORCH_SOFT(Softmax)
HS_TORCH_SOFT(Softmin)
HS_TORCH_SOFT(LogSoftmax)
#undef HS_TORCH_SOFT

    struct PReLUImpl : Cloneable<PReLUImpl> {
  HS_TORCH_LAYER_DEFAULT(PReLU);
  Tensor forward(const Tensor& x);
  Tensor weight;
};
HS_TORCH_HOLDER(PReLU)

#define HS_TORCH_DROPS(ROW) \
  ROW(Dropout, dropout)     \
  ROW(Dropout2d, dropout2d) \
  ROW(Dropout3d, dropout3d) ROW(AlphaDropout, alpha_dropout) ROW(FeatureAlphaDropout, feature_alpha_dropout)
#define HS_TORCH_DROP(Name, function)                      \
  struct Name##Impl : Cloneable<Name##Impl> {              \
    HS_TORCH_LAYER_DEFAULT(Name);                          \
    Name##Impl(double p) : Name##Impl(Name##Options(p)) {} \
    Tensor forward(Tensor x);                              \
  };                                                       \
  HS_TORCH_HOLDER(Name)
HS_TORCH_DROPS(HS_TORCH_DROP)
#undef HS_TORCH_DROP

}  // namespace torch::nn
