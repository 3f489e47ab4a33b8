// SPDX-License-Identifier: Apache-2.0
// torch::save and torch::load, of tensors, modules and optimizers, to files, streams and functions.
#pragma once

#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"
#include "torch/serialize/archive.h"

namespace torch {

serialize::OutputArchive& operator<<(serialize::OutputArchive& archive, const Tensor& t);
serialize::InputArchive& operator>>(serialize::InputArchive& archive, Tensor& t);
serialize::OutputArchive& operator<<(serialize::OutputArchive& archive, const std::vector<Tensor>& tensors);
serialize::InputArchive& operator>>(serialize::InputArchive& archive, std::vector<Tensor>& tensors);
serialize::OutputArchive& operator<<(serialize::OutputArchive& archive, const std::shared_ptr<nn::Module>& module);
serialize::InputArchive& operator>>(serialize::InputArchive& archive, const std::shared_ptr<nn::Module>& module);
serialize::OutputArchive& operator<<(serialize::OutputArchive& archive, const optim::Optimizer& optimizer);
serialize::InputArchive& operator>>(serialize::InputArchive& archive, optim::Optimizer& optimizer);

namespace detail {
// Returns what an archive takes: the module of a holder or of a pointer, or the value itself.
template <class V>
decltype(auto) archived(V& value) {
  if constexpr (nn::IsHolder<V>)
    return std::static_pointer_cast<nn::Module>(value.ptr());
  else if constexpr (requires { std::static_pointer_cast<nn::Module>(value); })
    return std::static_pointer_cast<nn::Module>(value);
  else
    return (value);
}
}  // namespace detail

template <class V, class... To>
void save(const V& value, To&&... to) {
  serialize::OutputArchive archive;
  archive << detail::archived(value);
  archive.save_to(std::forward<To>(to)...);
}
template <class V, class... From>
void load(V& value, From&&... from) {
  serialize::InputArchive archive;
  archive.load_from(std::forward<From>(from)...);
  archive >> detail::archived(value);
}

}  // namespace torch
