// SPDX-License-Identifier: Apache-2.0
#include "framework/base/narrow.h"

#include <cmath>
#include <string>

#include "framework/base/check.h"
#include "framework/base/exact_text.h"

namespace halfstep {
namespace {

bool has_int64(Number value) { return !value.is_floating() || has_number<int64_t>(value.floating()); }

// Returns what helps where a number was written into a dtype, or read as one, that does not have it.
std::string_view help_for_writing(std::string_view op, Number value, DType dtype) {
  if (op == "item") return "read it as double, as in item<double>()";
  if (halfstep::is_floating(dtype)) return "use an infinity, finfo(dtype).max or a wider dtype";
  if (value.is_floating() && !std::isfinite(value.floating())) return "integers have no NaN and no infinity: use a floating dtype";
  return has_int64(value) ? "use a number in its range or a wider dtype" : "use a number in its range or a floating dtype";
}

}  // namespace

void fail_narrow(const char* where, Number value, bool is_signed, int bits) {
  fail<ValueError>(
      where, "the number does not fit ", is_signed ? "int" : "uint", bits, ", got ", exact_text(value),
      Help{has_int64(value) ? "read it as double or int64_t, as in item<double>()" : "read it as double, as in item<double>()"});
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
  fail<ValueError>(op, "the number does not fit ", dtype, ", got ", exact_text(value), Help{help_for_writing(op, value, dtype)});
}

}  // namespace halfstep
