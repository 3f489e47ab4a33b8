// SPDX-License-Identifier: Apache-2.0
#include "framework/base/narrow.h"

#include <cmath>
#include <string>

#include "framework/base/check.h"

namespace halfstep {
namespace {

std::string text_of(Number value) { return value.is_floating() ? joined(value.floating()) : std::to_string(value.whole()); }

}  // namespace

void fail_narrow(const char* where, Number value, bool is_signed, int bits) {
  fail<ValueError>(where, "the number does not fit ", is_signed ? "int" : "uint", bits, ", got ", text_of(value),
                   Help{"read it as double or int64_t, as in item<double>()"});
}

bool fits(Number value, DType dtype) {
  return dispatch(dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double>) {
      return true;
    } else if constexpr (std::is_integral_v<T>) {
      if (value.is_floating()) return has_number<T>(value.floating());
      const int64_t whole = value.whole();
      return has_number<T>(whole) || (std::is_unsigned_v<T> && whole < 0 && whole >= -int64_t(std::numeric_limits<T>::max()));
    } else {
      return !std::isfinite(value.floating()) || std::isfinite(float(T(float(value.floating()))));
    }
  });
}

void check_fits(std::string_view op, Number value, DType dtype) {
  if (fits(value, dtype)) [[likely]]
    return;
  const bool floating = halfstep::is_floating(dtype);
  fail<ValueError>(
      op, "the number does not fit ", dtype, ", got ", text_of(value),
      Help{floating ? "use an infinity, finfo(dtype).max or a wider dtype" : "use a number in its range or a wider dtype"});
}

}  // namespace halfstep
