// SPDX-License-Identifier: Apache-2.0
// Results of several tensors with PyTorch's names, which also work as pairs or tuples:
//   x.max(1).values    auto [values, indices] = x.max(1)    std::get<1>(x.max(1))    std::tie(values, indices) = x.max(1)
// Assigning to a name does not change the pair.
#pragma once

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "framework/tensor/tensor.h"

namespace halfstep {

struct ValuesIndices : std::pair<Tensor, Tensor> {
  using Parts = std::pair<Tensor, Tensor>;
  ValuesIndices(const Tensor& v, const Tensor& i) : Parts(v, i), values(v), indices(i) {}
  ValuesIndices(const Parts& both) : ValuesIndices(both.first, both.second) {}
  Tensor values, indices;
};
struct MinMax : std::pair<Tensor, Tensor> {
  using Parts = std::pair<Tensor, Tensor>;
  MinMax(const Tensor& lo, const Tensor& hi) : Parts(lo, hi), min(lo), max(hi) {}
  Tensor min, max;
};

template <class T>
concept NamedParts = !std::is_const_v<T> && !std::is_volatile_v<T> && requires { typename T::Parts; } &&
                     std::derived_from<T, typename T::Parts>;

}  // namespace halfstep

// Support structured bindings.
template <halfstep::NamedParts T>
struct std::tuple_size<T> : std::tuple_size<typename T::Parts> {};
template <size_t i, halfstep::NamedParts T>
struct std::tuple_element<i, T> : std::tuple_element<i, typename T::Parts> {};
