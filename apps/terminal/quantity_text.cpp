// SPDX-License-Identifier: Apache-2.0
#include "apps/terminal/quantity_text.h"

#include <cmath>
#include <cstdint>
#include <iterator>

#include "framework/base/check.h"
#include "framework/base/number_text.h"

namespace halfstep::app {
namespace {

std::string two_digits(int64_t number) { return joined(number < 10 ? "0" : "", number); }

}  // namespace

std::string duration_text(double seconds) {
  constexpr double kMostSeconds = 1e15;                 // far within the range of int64_t
  if (!(std::abs(seconds) < kMostSeconds)) return "?";  // also for NaN
  if (seconds < 60) return fixed_text(seconds, seconds < 10 ? 1 : 0) + " s";
  const auto s = int64_t(seconds + 0.5);
  if (s < 3600) return joined(s / 60, ':', two_digits(s % 60));
  return joined(s / 3600, ':', two_digits(s / 60 % 60), ':', two_digits(s % 60));
}

std::string bytes_text(double bytes, int decimals) {
  const char* units[] = {"bytes", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) bytes /= 1000, ++unit;
  return fixed_text(bytes, unit == 0 ? 0 : decimals) + ' ' + units[unit];
}

std::string count_text(double count) {
  if (count < 1000) return fixed_text(count, 0);
  return count < 1e6 ? fixed_text(count / 1e3, 1) + 'k' : fixed_text(count / 1e6, 2) + 'M';
}

std::string number_text(double value, int digits) { return std::isnan(value) ? "nan" : general_text(value, digits); }

}  // namespace halfstep::app
