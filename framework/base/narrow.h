// SPDX-License-Identifier: Apache-2.0
// Conversions of numbers to types and dtypes that may not have them: an error instead of another number, as in PyTorch.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "framework/base/number.h"

namespace halfstep {

template <class T>
concept CheckedInteger = std::integral<T> && !std::same_as<T, bool>;

// Returns whether T has the whole part of a number; not for NaN, nor for a negative fraction of an unsigned T.
template <CheckedInteger T>
constexpr bool has_number(double value) {
  constexpr double past = 2.0 * double(uint64_t(1) << (std::numeric_limits<T>::digits - 1));  // the largest one is not exact
  return value >= double(std::numeric_limits<T>::min()) && value < past;
}
template <CheckedInteger T>
constexpr bool has_number(int64_t value) {
  if (value < 0) return std::is_signed_v<T> && value >= int64_t(std::numeric_limits<T>::min());
  return uint64_t(value) <= uint64_t(std::numeric_limits<T>::max());
}

// Throws ValueError: what `where` reads is no integer of this kind.
[[noreturn]] void fail_narrow(const char* where, Number value, bool is_signed, int bits);

// Converts a number that `where` reads. Floating types and bool take every number.
template <class T, class From>
T number_as(From value, const char* where) {
  if constexpr (CheckedInteger<T>) {
    if (!has_number<T>(value)) [[unlikely]]
      fail_narrow(where, value, std::is_signed_v<T>, int(8 * sizeof(T)));
  }
  return T(value);
}

// Returns whether a tensor of this dtype can hold the number: an integer dtype its whole part, a floating one the number rounded,
// infinity and NaN. uint8 takes -1 as 255, down to -255, as in PyTorch.
bool fits(Number value, DType dtype);
// Throws ValueError naming `op` unless it fits.
void check_fits(std::string_view op, Number value, DType dtype);

}  // namespace halfstep
