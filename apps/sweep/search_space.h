// SPDX-License-Identifier: Apache-2.0
// The values that a sweep gives to a key of a config: those of a list, or of a range.
//
//   [0.1, 0.01]   {"from": 1e-4, "to": 0.1, "scale": "log", "count": 4}   {"from": 16, "to": 64, "step": 16}
//
// A range whose two ends are written as whole numbers (1, not 1.0) has whole numbers only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/schema/issues.h"
#include "apps/schema/json.h"

namespace halfstep::app {

// A key of the config, with dots, and its value.
struct Setting {
  std::string key;
  Json value;
};
using Settings = std::vector<Setting>;

inline constexpr int64_t kMaxSweepMembers = 9999;

// All values of a grid's key, in order. What is wrong is added to `issues` at `path`, and nothing is returned.
std::vector<Json> grid_values(const Json& given, const std::string& path, Issues& issues);

// What random draws of a key choose from.
void check_drawable(const Json& given, const std::string& path, Issues& issues);
// The value of a key in draw number `draw`. It depends on nothing else: more draws, or more keys, leave it as it is. Numbers
// between the ends of a range have six digits.
Json drawn_value(const Json& given, const std::string& key, uint64_t seed, int64_t draw);

}  // namespace halfstep::app
