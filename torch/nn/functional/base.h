// SPDX-License-Identifier: Apache-2.0
// What the functions share.
#pragma once

#include "torch/nn/options/layers.h"
#include "torch/nn/options/losses.h"
#include "torch/tensor/network.h"

namespace torch::nn::functional {

namespace detail {
using namespace ::torch::detail;
template <class V>
hs::Reduction reduction(const V& r) {
  return ::torch::detail::reduction(enumtype::reduction_get_enum(r));
}
inline Tensor in_place(bool inplace, Tensor& x, const Tensor& y) {
  if (inplace) return x = Tensor(y), x;
  return y;
}
}  // namespace detail

}  // namespace torch::nn::functional
