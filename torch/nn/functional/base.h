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
// Returns the target with the input's shape where they differ only in sizes of 1, as ATen's binary_cross_entropy takes the
// [N, 1, 1, 1] of a discriminator with N labels; else the target.
inline hs::Tensor shaped_as(const hs::Tensor& x, const hs::Tensor& target) {
  if (!x.defined() || !target.defined() || target.dim() == 0 || x.squeeze().shape() != target.squeeze().shape()) return target;
  return target.reshape(x.shape());
}
}  // namespace detail

}  // namespace torch::nn::functional
