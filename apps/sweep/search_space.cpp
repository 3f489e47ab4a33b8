// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/search_space.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "apps/schema/schema.h"
#include "apps/terminal/quantity_text.h"
#include "framework/base/check.h"
#include "framework/base/number_text.h"
#include "framework/io/files/checksum.h"
#include "framework/math/random.h"

namespace halfstep::app {
namespace {

constexpr double kMostWhole = 9007199254740992.0;  // 2^53: a double represents all integers up to here
constexpr double kLastStepError = 1e-9;            // share of a step by which rounding may miss the last one
constexpr int kGridDigits = 12, kDrawnDigits = 6;  // significant digits of values

struct ValueRange {
  double from, to;
  bool is_log, is_whole;
  std::optional<double> step;
  std::optional<int64_t> count;
  // Returns the number of steps after the first value.
  int64_t steps() const { return int64_t(std::floor((to - from) / *step + kLastStepError)); }
};

const Section& range_section() {
  static const Section section{
      "range",
      {number("from", nullptr, "the smallest value").required(), number("to", nullptr, "the largest value").required(),
       choice("scale", "linear", {"linear", "log"}, "how values are spread"),
       number("step", nullptr, "between values of a linear range").above(0),
       integer("count", nullptr, "values of a grid, with both ends").at_least(2).at_most(kMaxSweepMembers)}};
  return section;
}

// Reads a range that was checked.
ValueRange range_of(const Json& values) {
  const Json scale = values.value("scale", Json("linear")), step = values.value("step", Json()),
             count = values.value("count", Json());
  ValueRange out{
      values["from"].get<double>(),
      values["to"].get<double>(),
      scale == "log",
      values["from"].is_number_integer() && values["to"].is_number_integer() && (step.is_null() || step.is_number_integer()),
      {},
      {}};
  if (!step.is_null()) out.step = step.get<double>();
  if (!count.is_null()) out.count = count.get<int64_t>();
  return out;
}

bool is_range(const Json& values) { return values.is_object() && (values.contains("from") || values.contains("to")); }

// Checks what lists and ranges of grids and of draws have in common. Returns false after an error.
bool check_values(const Json& values, const std::string& path, Issues& issues) {
  const int64_t before = issues.errors();
  if (values.is_array()) {
    if (values.empty()) issues.error(path, "must have at least one value");
  } else if (!is_range(values)) {
    issues.error(path, R"(must be a list of values, or a range such as {"from": 1e-4, "to": 0.1, "scale": "log"}, got )" +
                           std::string(values.is_object() ? "an object without \"from\"; keys of a config are written with dots"
                                                          : values.dump()));
  } else {
    validate(values, range_section(), path, issues);
    if (issues.errors() > before) return false;
    const ValueRange range = range_of(values);
    if (!(range.from < range.to)) issues.error(join_path(path, "to"), "must be larger than \"from\"");
    if (range.is_log && range.from <= 0) issues.error(join_path(path, "from"), "must be > 0 with \"scale\": \"log\"");
    if (range.is_log && range.step)
      issues.error(join_path(path, "step"), "is for linear ranges; with \"scale\": \"log\" give \"count\"");
    if (range.step && (range.to - range.from) / *range.step > kMostWhole)
      issues.error(join_path(path, "step"), "is too small for this range");
    if (range.is_whole && std::max(std::abs(range.from), std::abs(range.to)) > kMostWhole)
      issues.error(path, "whole numbers of a range must be at most 2^53");
  }
  return issues.errors() == before;
}

Json rounded(double value, int digits) { return halfstep::number_of(number_text(value, digits)).value_or(value); }

// Returns the value at a share of a range without "step": its first value at 0, its last at 1.
double value_at(const ValueRange& range, double share) {
  if (!range.is_log) return range.from + share * (range.to - range.from);
  return std::exp(std::log(range.from) + share * (std::log(range.to) - std::log(range.from)));
}

// Returns the value after k steps.
Json stepped_value(const ValueRange& range, int64_t k) {
  const double value = range.from + double(k) * *range.step;
  return range.is_whole ? Json(int64_t(value)) : rounded(value, kGridDigits);
}

}  // namespace

std::vector<Json> grid_values(const Json& values, const std::string& path, Issues& issues) {
  if (!check_values(values, path, issues)) return {};
  if (values.is_array()) return {values.begin(), values.end()};
  ValueRange range = range_of(values);
  if (range.is_whole && !range.is_log && !range.count && !range.step) range.step = 1;
  if (bool(range.step) == bool(range.count)) {
    issues.error(path, range.is_log ? "a range of a grid needs \"count\"" : "a range of a grid needs either \"step\" or \"count\"");
    return {};
  }
  if (range.step && range.steps() >= kMaxSweepMembers) {
    issues.error(join_path(path, "step"), joined("makes more than ", kMaxSweepMembers, " values"));
    return {};
  }
  std::vector<Json> out;
  for (int64_t k = 0; range.step && k <= range.steps(); ++k) out.push_back(stepped_value(range, k));
  for (int64_t k = 0; range.count && k < *range.count; ++k) {
    const double v = k == 0 ? range.from : k + 1 == *range.count ? range.to : value_at(range, double(k) / double(*range.count - 1));
    const Json value = range.is_whole ? Json(int64_t(std::round(v))) : rounded(v, kGridDigits);
    if (out.empty() || out.back() != value) out.push_back(value);
  }
  return out;
}

void check_drawable(const Json& values, const std::string& path, Issues& issues) {
  if (check_values(values, path, issues) && values.is_object() && values.contains("count"))
    issues.error(join_path(path, "count"), "is for grids; \"draws\" is the number of draws");
}

Json drawn_value(const Json& values, const std::string& key, uint64_t seed, int64_t draw) {
  constexpr size_t kHexDigits = 15;  // fit into 64 bits
  const uint64_t stream = std::stoull(sha256(joined(seed, ' ', key)).substr(0, kHexDigits), nullptr, 16);
  const math::Random4 bits = math::philox(stream, uint64_t(draw));
  const double share = double((uint64_t(bits.v[0]) << 32 | bits.v[1]) >> 11) * 0x1p-53;  // [0, 1), of 53 bits
  if (values.is_array()) return values[size_t(share * double(values.size()))];
  const ValueRange range = range_of(values);
  if (range.step) return stepped_value(range, int64_t(share * double(range.steps() + 1)));
  if (!range.is_whole) return std::clamp(rounded(value_at(range, share), kDrawnDigits).get<double>(), range.from, range.to);
  if (!range.is_log) return int64_t(range.from) + int64_t(share * (range.to - range.from + 1));
  ValueRange wide = range;  // by half a number on each side: the ends are then as likely as the others
  wide.from -= 0.5, wide.to += 0.5;
  return int64_t(std::clamp(std::round(value_at(wide, share)), range.from, range.to));
}

}  // namespace halfstep::app
