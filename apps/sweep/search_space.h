// SPDX-License-Identifier: Apache-2.0
// Values that a sweep gives to a config's key: a list or a range.
//
//   [0.1, 0.01]   {"from": 1e-4, "to": 0.1, "scale": "log", "count": 4}   {"from": 16, "to": 64, "step": 16}
//
// A range whose two ends are written as integers (1, not 1.0) has integers only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/schema/issues.h"
#include "apps/schema/json.h"

namespace halfstep::app {

// A dotted key of the config, and its value.
struct Setting {
  std::string key;
  Json value;
};
using Settings = std::vector<Setting>;

inline constexpr int64_t kMaxSweepMembers = 9999;

// Returns all values of a grid's key, in order. Adds errors to `issues` at `path`, and then returns nothing.
std::vector<Json> grid_values(const Json& values, const std::string& path, Issues& issues);

// Checks the list or range from which a key's random values are drawn.
void check_drawable(const Json& values, const std::string& path, Issues& issues);
// Draws the value of a key for draw number `draw`. It depends on nothing else: more draws or keys do not change it. Numbers within
// a range have six digits.
Json drawn_value(const Json& values, const std::string& key, uint64_t seed, int64_t draw);

}  // namespace halfstep::app
