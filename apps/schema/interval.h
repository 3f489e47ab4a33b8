// SPDX-License-Identifier: Apache-2.0
// "500 steps", "1 epoch", "10 min", 500, "never".
#pragma once

#include <cstdint>
#include <optional>

#include "apps/schema/json.h"

namespace halfstep::app {

struct Interval {
  enum class Unit : uint8_t { never, steps, epochs, seconds };
  Unit unit = Unit::never;
  double count = 0;  // steps and epochs: whole
};

// Nothing when the value is none of these.
std::optional<Interval> parse_interval(const Json& value);

}  // namespace halfstep::app
