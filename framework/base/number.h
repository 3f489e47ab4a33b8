// SPDX-License-Identifier: Apache-2.0
// A number in a call, with its C++ kind: integer, floating or bool. So x + 1 stays an integer tensor if x is one, x * 2.0 is
// float32, and an integer keeps all its 64 bits.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "framework/base/dtype.h"

namespace halfstep {

template <class T>
concept PlainNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

class Number {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  constexpr Number(T value) : floating_(double(value)) {
    if constexpr (std::is_same_v<T, bool>) dtype_ = DType::boolean;
    if constexpr (std::is_integral_v<T>) {
      whole_ = int64_t(value);
      // Stores integers beyond int64 as doubles.
      const bool fits = std::is_signed_v<T> || uint64_t(value) <= uint64_t(std::numeric_limits<int64_t>::max());
      if (!std::is_same_v<T, bool> && fits) dtype_ = DType::i64;
    }
  }
  // Accepts types that convert to a number, such as f16 and a reference to a bit.
  template <class T>
    requires(!std::is_arithmetic_v<T> && std::is_convertible_v<const T&, double>)
  constexpr Number(const T& value) : Number(std::conditional_t<std::is_enum_v<T>, int64_t, double>(value)) {}

  // Returns boolean, i64 or f64.
  constexpr DType dtype() const { return dtype_; }
  constexpr bool is_floating() const { return dtype_ == DType::f64; }
  // Returns the dtype of a tensor of this number alone: bool, int64 or float32.
  constexpr DType natural_dtype() const { return is_floating() ? DType::f32 : dtype_; }
  constexpr double floating() const { return floating_; }
  constexpr int64_t whole() const { return whole_; }  // only if it is not floating

 private:
  double floating_;
  int64_t whole_ = 0;
  DType dtype_ = DType::f64;
};

}  // namespace halfstep
