// SPDX-License-Identifier: Apache-2.0
// n numbers as one option, as PyTorch's betas.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "framework/base/check.h"

namespace halfstep {

// .betas = {0.9, 0.999}, and betas[0] is the first. Another count does not compile.
template <size_t n>
class NumberTuple {
 public:
  template <std::convertible_to<double>... T>
  requires(sizeof...(T) == n) constexpr NumberTuple(T... numbers) : numbers_{double(numbers)...} {}
  constexpr NumberTuple(const std::pair<double, double>& numbers) requires(n == 2) : numbers_{numbers.first, numbers.second} {}
  // -1: the last. Throws IndexError.
  template <std::integral I>
  constexpr double& operator[](I i) {
    return numbers_[place(int64_t(i))];
  }
  template <std::integral I>
  constexpr const double& operator[](I i) const {
    return numbers_[place(int64_t(i))];
  }
  constexpr size_t size() const { return n; }
  constexpr double* begin() { return numbers_.data(); }
  constexpr const double* begin() const { return numbers_.data(); }
  constexpr double* end() { return begin() + n; }
  constexpr const double* end() const { return begin() + n; }
  bool operator==(const NumberTuple&) const = default;

 private:
  static constexpr size_t place(int64_t i) {
    const int64_t at = i < 0 ? i + int64_t(n) : i;
    if (at < 0 || at >= int64_t(n)) [[unlikely]]
      fail<IndexError>("options", "an option of ", n, " numbers has none at index ", i);
    return size_t(at);
  }
  std::array<double, n> numbers_;
};

}  // namespace halfstep
