// SPDX-License-Identifier: Apache-2.0
// Intervals: "500 steps", "1 epoch", "10 min", 500, "never".
#pragma once

#include <cstdint>
#include <optional>

#include "apps/schema/json.h"

namespace halfstep::app {

struct Interval {
  enum class Unit : uint8_t { never, steps, epochs, seconds };
  Unit unit = Unit::never;
  double count = 0;  // of steps and epochs: an integer
};

// Parses an interval; nothing for other values.
std::optional<Interval> parse_interval(const Json& value);

}  // namespace halfstep::app
