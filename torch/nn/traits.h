// SPDX-License-Identifier: Apache-2.0
// What libtorch's templates ask of types: is it a module, and what does its forward return.
#pragma once

#include "torch/nn/module.h"

namespace torch {
namespace detail {

template <class M>
using is_module = std::is_base_of<nn::Module, std::decay_t<M>>;
template <class M, class T = void>
using enable_if_module_t = std::enable_if_t<is_module<M>::value, T>;
template <class M>
inline constexpr bool kHasForward = requires {
  &M::forward;
};
template <class M>
struct has_forward : std::bool_constant<kHasForward<M>> {};

// Whether no type is a reference to something that may change.
template <class... T>
constexpr bool check_not_lvalue_references() {
  return ((!std::is_lvalue_reference_v<T> || std::is_const_v<std::remove_reference_t<T>>)&&...);
}

template <class M, class... Args>
struct return_type_of_forward {
  using type = void;
};
template <class M, class... Args>
requires kHasForward<M>
struct return_type_of_forward<M, Args...> {
  using type = decltype(std::declval<M>().forward(std::declval<Args>()...));
};
template <class M, class... Args>
using return_type_of_forward_t = typename return_type_of_forward<M, Args...>::type;

}  // namespace detail

// Calls f with each argument.
template <class F, class... Args>
void apply(F f, Args&&... args) {
  (f(std::forward<Args>(args)), ...);
}

}  // namespace torch
