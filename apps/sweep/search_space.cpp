// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/search_space.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "apps/schema/schema.h"
#include "apps/terminal/progress.h"
#include "framework/base/check.h"
#include "framework/base/number_text.h"
#include "framework/io/files/checksum.h"
#include "framework/math/random.h"

namespace halfstep::app {
namespace {

constexpr double kMostWhole = 9007199254740992.0;  // 2^53: a double represents all integers up to here
constexpr double kLastStep = 1e-9;                 // share of a step: a range may miss its last step by this rounding error

struct ValueRange {
  double from, to;
  bool log, whole;
  std::optional<double> step;
  std::optional<int64_t> count;
  // Returns the number of steps after the first value.
  int64_t steps() const { return int64_t(std::floor((to - from) / *step + kLastStep)); }
};

const Section& range_section() {
  static const Section all{
      "range",
      {number("from", nullptr, "the smallest value").required(), number("to", nullptr, "the largest value").required(),
       choice("scale", "linear", {"linear", "log"}, "how values are spread"),
       number("step", nullptr, "between values of a linear range").above(0),
       integer("count", nullptr, "values of a grid, with both ends").at_least(2).at_most(kMaxSweepMembers)}};
  return all;
}

// Reads a range that was checked.
ValueRange range_of(const Json& given) {
  const Json scale = given.value("scale", Json("linear")), step = given.value("step", Json()), count = given.value("count", Json());
  ValueRange out{
      given["from"].get<double>(),
      given["to"].get<double>(),
      scale == "log",
      given["from"].is_number_integer() && given["to"].is_number_integer() && (step.is_null() || step.is_number_integer()),
      {},
      {}};
  if (!step.is_null()) out.step = step.get<double>();
  if (!count.is_null()) out.count = count.get<int64_t>();
  return out;
}

bool is_range(const Json& given) { return given.is_object() && (given.contains("from") || given.contains("to")); }

// Checks what lists and ranges of grids and of draws have in common. Returns false after an error.
bool check_values(const Json& given, const std::string& path, Issues& issues) {
  const int64_t before = issues.errors();
  if (given.is_array()) {
    if (given.empty()) issues.error(path, "must have at least one value");
  } else if (!is_range(given)) {
    issues.error(path, R"(must be a list of values, or a range such as {"from": 1e-4, "to": 0.1, "scale": "log"}, got )" +
                           std::string(given.is_object() ? "an object without \"from\"; keys of a config are written with dots"
                                                         : given.dump()));
  } else {
    validate(given, range_section(), path, issues);
    if (issues.errors() > before) return false;
    const ValueRange r = range_of(given);
    if (!(r.from < r.to)) issues.error(join_path(path, "to"), "must be larger than \"from\"");
    if (r.log && r.from <= 0) issues.error(join_path(path, "from"), "must be > 0 with \"scale\": \"log\"");
    if (r.log && r.step) issues.error(join_path(path, "step"), "is for linear ranges; with \"scale\": \"log\" give \"count\"");
    if (r.step && (r.to - r.from) / *r.step > kMostWhole) issues.error(join_path(path, "step"), "is too small for this range");
    if (r.whole && std::max(std::abs(r.from), std::abs(r.to)) > kMostWhole)
      issues.error(path, "whole numbers of a range must be at most 2^53");
  }
  return issues.errors() == before;
}

Json rounded(double v, int digits) { return halfstep::number_of(number_text(v, digits)).value_or(v); }

// Returns the value at a share of a range without "step": its first value at 0, its last at 1.
double at_share(const ValueRange& r, double share) {
  if (!r.log) return r.from + share * (r.to - r.from);
  return std::exp(std::log(r.from) + share * (std::log(r.to) - std::log(r.from)));
}

Json stepped_value(const ValueRange& r, int64_t k) {
  const double v = r.from + double(k) * *r.step;
  return r.whole ? Json(int64_t(v)) : rounded(v, 12);
}

}  // namespace

std::vector<Json> grid_values(const Json& given, const std::string& path, Issues& issues) {
  if (!check_values(given, path, issues)) return {};
  if (given.is_array()) return {given.begin(), given.end()};
  ValueRange r = range_of(given);
  if (r.whole && !r.log && !r.count && !r.step) r.step = 1;
  if (bool(r.step) == bool(r.count)) {
    issues.error(path, r.log ? "a range of a grid needs \"count\"" : "a range of a grid needs either \"step\" or \"count\"");
    return {};
  }
  if (r.step && r.steps() >= kMaxSweepMembers) {
    issues.error(join_path(path, "step"), joined("makes more than ", kMaxSweepMembers, " values"));
    return {};
  }
  std::vector<Json> out;
  for (int64_t k = 0; r.step && k <= r.steps(); ++k) out.push_back(stepped_value(r, k));
  for (int64_t k = 0; r.count && k < *r.count; ++k) {
    const double v = k == 0 ? r.from : k + 1 == *r.count ? r.to : at_share(r, double(k) / double(*r.count - 1));
    const Json value = r.whole ? Json(int64_t(std::round(v))) : rounded(v, 12);
    if (out.empty() || out.back() != value) out.push_back(value);
  }
  return out;
}

void check_drawable(const Json& given, const std::string& path, Issues& issues) {
  if (check_values(given, path, issues) && given.is_object() && given.contains("count"))
    issues.error(join_path(path, "count"), "is for grids; \"draws\" is the number of draws");
}

Json drawn_value(const Json& given, const std::string& key, uint64_t seed, int64_t draw) {
  const uint64_t stream = std::stoull(sha256(joined(seed, ' ', key)).substr(0, 15), nullptr, 16);
  const math::Random4 bits = math::philox(stream, uint64_t(draw));
  const double share = double((uint64_t(bits.v[0]) << 32 | bits.v[1]) >> 11) * 0x1p-53;  // [0, 1)
  if (given.is_array()) return given[size_t(share * double(given.size()))];
  const ValueRange r = range_of(given);
  if (r.step) return stepped_value(r, int64_t(share * double(r.steps() + 1)));
  if (!r.whole) return std::clamp(rounded(at_share(r, share), 6).get<double>(), r.from, r.to);
  if (!r.log) return int64_t(r.from) + int64_t(share * (r.to - r.from + 1));
  ValueRange wide = r;  // makes the ends as likely as the others
  wide.from -= 0.5, wide.to += 0.5;
  return int64_t(std::clamp(std::round(at_share(wide, share)), r.from, r.to));
}

}  // namespace halfstep::app
