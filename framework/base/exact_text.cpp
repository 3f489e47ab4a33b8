// SPDX-License-Identifier: Apache-2.0
#include "framework/base/exact_text.h"

#include <cmath>

#include "framework/base/number_text.h"

namespace halfstep {

std::string exact_text(Number value) {
  if (!value.is_floating()) return std::to_string(value.whole());
  const double v = value.floating();
  if (std::isnan(v)) return "nan";
  constexpr int kFew = 6, kAll = 17;
  int digits = kFew;
  while (digits < kAll && number_of(general_text(v, digits)) != v) ++digits;
  return general_text(v, digits);
}

}  // namespace halfstep
