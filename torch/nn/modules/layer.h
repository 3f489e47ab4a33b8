// SPDX-License-Identifier: Apache-2.0
// What declares a layer: its class, whose functions are compiled into the library, and its holder.
#pragma once

#include "torch/nn/containers.h"
#include "torch/nn/functional/activation.h"
#include "torch/nn/functional/attention.h"
#include "torch/nn/functional/linear.h"
#include "torch/nn/functional/loss.h"
#include "torch/nn/functional/pooling.h"
#include "torch/nn/functional/vision.h"

namespace torch::nn {

namespace F = ::torch::nn::functional;

}  // namespace torch::nn

// The members of each layer with options.
#define HS_TORCH_LAYER(Name)                           \
  explicit Name##Impl(const Name##Options& o);         \
  void reset() override;                               \
  void pretty_print(std::ostream& out) const override; \
  Name##Options options
// The same for a layer whose options may be left out.
#define HS_TORCH_LAYER_DEFAULT(Name)                   \
  explicit Name##Impl(const Name##Options& o = {});    \
  void reset() override;                               \
  void pretty_print(std::ostream& out) const override; \
  Name##Options options
// A layer that is a function of one tensor, with options.
#define HS_TORCH_FUNCTION_LAYER(Name)         \
  struct Name##Impl : Cloneable<Name##Impl> { \
    HS_TORCH_LAYER_DEFAULT(Name);             \
    Tensor forward(const Tensor& x);          \
  };                                          \
  HS_TORCH_HOLDER(Name)
#define HS_TORCH_HOLDER(Name)                  \
  extern template class Cloneable<Name##Impl>; \
  TORCH_MODULE(Name);
