// SPDX-License-Identifier: Apache-2.0
#include "apps/use/answer_text.h"

#include <algorithm>
#include <cmath>

#include "apps/terminal/quantity_text.h"

namespace halfstep::app {
namespace {

const ColumnScale& scale_of(const DataForm& form, size_t i) {
  return form.scale.each.empty() ? form.scale : form.scale.each[i % form.scale.each.size()];
}

// Returns how many digits show a thousandth of the deviation, at least `digits`; just these if the targets were not scaled.
int digits_of(double value, const ColumnScale& scale, int digits) {
  constexpr int kMost = 15, kBehind = 4;  // digits of a double; those for a thousandth of 1
  const double times = std::abs(value) / scale.std;
  if (scale == ColumnScale() || !std::isfinite(times) || times < 1) return digits;
  return std::max(digits, std::min(kMost, int(std::floor(std::log10(times))) + kBehind));
}

}  // namespace

std::string answer_text(const DataForm& form, size_t i, double value, int digits) {
  return number_text(value, digits_of(value, scale_of(form, i), digits));
}

bool needs_double(const DataForm& form) {
  constexpr int kOfFloat = 7;  // digits
  for (size_t i = 0; i < std::max<size_t>(1, form.scale.each.size()); ++i)
    if (const ColumnScale& scale = scale_of(form, i); digits_of(scale.mean, scale, kOfFloat) > kOfFloat) return true;
  return false;
}

}  // namespace halfstep::app
