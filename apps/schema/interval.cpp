// SPDX-License-Identifier: Apache-2.0
#include "apps/schema/interval.h"

#include <cmath>
#include <string>

#include "apps/schema/schema.h"
#include "framework/base/text_stream.h"

namespace halfstep::app {

std::optional<Interval> parse_interval(const Json& value) {
  using Unit = Interval::Unit;
  Interval out;
  std::string unit = "steps";
  if (value.is_number()) {
    out.count = value.get<double>();
  } else if (value.is_string()) {
    const std::string text = value.get<std::string>();
    if (text == "never") return out;
    TextReader in(text);
    std::string rest;
    if (!(in >> out.count)) {
      in.clear(), in.str(text), in.seekg(0);
      out.count = 1;  // "epoch"
    }
    unit.clear();
    in >> unit;
    if (unit.empty() || (in >> rest)) return {};
  } else {
    return {};
  }
  if (unit == "step" || unit == "steps") {
    out.unit = Unit::steps;
  } else if (unit == "epoch" || unit == "epochs") {
    out.unit = Unit::epochs;
  } else if (unit == "s" || unit == "sec" || unit == "second" || unit == "seconds") {
    out.unit = Unit::seconds;
  } else if (unit == "min" || unit == "minute" || unit == "minutes") {
    out.unit = Unit::seconds, out.count *= 60;
  } else if (unit == "h" || unit == "hour" || unit == "hours") {
    out.unit = Unit::seconds, out.count *= 3600;
  } else {
    return {};
  }
  const bool is_valid_count = out.unit == Unit::seconds || out.count == std::floor(out.count);
  if (!(out.count > 0) || out.count > kMaxCount || !is_valid_count) return {};
  return out;
}

}  // namespace halfstep::app
