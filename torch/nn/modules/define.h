// SPDX-License-Identifier: Apache-2.0
// What defines the functions that layer.h declares. Only the library's sources include it.
#pragma once

#include "torch/nn/modules/layer.h"

#define HS_TORCH_DEFINE(Name)           \
  template class Cloneable<Name##Impl>; \
  Name##Impl::Name##Impl(const Name##Options& o) : options(o) { Name##Impl::reset(); }
#define HS_TORCH_PRINT(Name, ...) \
  void Name##Impl::pretty_print(std::ostream& out) const { out << std::boolalpha << "torch::nn::" #Name << __VA_ARGS__; }
// A layer without parameters: what it prints, and its function of x.
#define HS_TORCH_DEFINE_FUNCTION(Name, shown, ...) \
  HS_TORCH_DEFINE(Name)                            \
  void Name##Impl::reset() {}                      \
  HS_TORCH_PRINT(Name, shown)                      \
  Tensor Name##Impl::forward(const Tensor& x) { return __VA_ARGS__; }
