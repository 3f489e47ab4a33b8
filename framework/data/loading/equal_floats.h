// SPDX-License-Identifier: Apache-2.0
// Detects different numbers that are equal in float32. Not a public header.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "framework/base/check.h"

namespace halfstep {

// Returns "200 different numbers become 3 in float32" for numbers that lie so close together, far from 0, that float32 has fewer
// than 256 values in their range; "" if all stay different, and for others. at(i): number i; those that are not finite are left
// out.
template <class At>
std::string equal_in_float(int64_t count, const At& at) {
  constexpr double kFewSteps = 256;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (int64_t i = 0; i < count; ++i) {
    const double value = at(i);
    if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
  }
  const double step = std::max(std::abs(low), std::abs(high)) * double(std::numeric_limits<float>::epsilon());
  if (!(high > low) || high - low >= kFewSteps * step) return "";
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    if (const double value = at(i); std::isfinite(value)) values.push_back(value);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  const auto are_equal = [](double a, double b) { return float(a) == float(b); };
  const size_t different = values.size();
  values.erase(std::unique(values.begin(), values.end(), are_equal), values.end());
  if (values.size() == different) return "";
  return joined(different, " different numbers become ", values.size(), " in float32");
}

}  // namespace halfstep
