// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/bench_baseline.h"

#include <algorithm>
#include <utility>

#include "apps/terminal/quantity_text.h"
#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

// Returns the values of a measured arm; null if it is missing.
const Json* arm_of(const Json& baseline, const std::string& arm) {
  for (const Json& a : baseline["arms"])
    if (a["arm"] == arm && !a.contains("refused")) return &a;
  return nullptr;
}

bool is_measured(const Json& arm) {
  for (const char* key : {"median_ms", "fastest_ms", "p90_ms"})
    if (!arm.value(key, Json()).is_number() || !(arm[key].get<double>() > 0)) return false;
  return true;
}

}  // namespace

bool is_bench(const Json& json) {
  if (!json.is_object() || json.value("bench", Json()) != "mlp" || !json.value("arms", Json()).is_array()) return false;
  return std::all_of(json["arms"].begin(), json["arms"].end(), [](const Json& arm) {
    return arm.is_object() && arm.value("arm", Json()).is_string() && (arm.contains("refused") || is_measured(arm));
  });
}

bool ArmComparison::is_slower() const { return median_ms - baseline_ms > std::max(spread_ms, baseline_spread_ms); }

std::string ArmComparison::text() const {
  const auto ms = [](double v) { return number_text(v, 4) + " ms"; };
  return arm + ": " + ms(median_ms) + ", " + number_text(ratio(), 3) + " of " + ms(baseline_ms) +
         (is_slower() ? ": SLOWER by " + ms(median_ms - baseline_ms) : ": not slower") + " (spreads " + ms(spread_ms) + " and " +
         ms(baseline_spread_ms) + ")";
}

Json read_baseline(const std::filesystem::path& file, const BenchOptions& options, int threads) {
  Json out;
  try {
    out = read_json<Json>(read_file(file, kMostBenchBytes));
  } catch (const IoError& e) {
    const std::string why = e.what();
    fail<ConfigError>("bench", "--baseline must be a readable file; ", why.substr(why.find(']') + 2));
  } catch (const JsonError&) {}  // reported below
  check<ConfigError>(is_bench(out), "bench", "--baseline must be what `halfstep bench mlp --json` printed, got ", file.string());
  const std::pair<const char*, Json> settings[] = {
      {"device", name(options.device.type)}, {"batch", options.batch}, {"width", options.width}, {"layers", options.layers},
      {"batches", options.batches},          {"inner", options.inner}, {"threads", threads}};
  for (const auto& [key, now] : settings)
    check<ConfigError>(out.value(key, Json()) == now, "bench", "the baseline must have the same ", key, ", which is ", now.dump(),
                       " here, got ", out.value(key, Json()).dump(), " in ", file.string());
  const bool has_arm = std::any_of(options.arms.begin(), options.arms.end(), [&](Precision p) { return arm_of(out, name(p)); });
  check<ConfigError>(has_arm, "bench", "the baseline must have one of the arms, got none in ", file.string());
  return out;
}

std::vector<ArmComparison> compare_arms(const std::vector<BenchArm>& arms, const Json& baseline) {
  std::vector<ArmComparison> out;
  for (const BenchArm& a : arms) {
    const Json* const old = arm_of(baseline, name(a.precision));
    if (!old || !a.refused.empty()) continue;
    const auto ms = [&](const char* key) { return (*old)[key].get<double>(); };
    out.push_back({name(a.precision), a.median_ms, a.p90_ms - a.fastest_ms, ms("median_ms"), ms("p90_ms") - ms("fastest_ms")});
  }
  return out;
}

Json comparisons_json(const std::vector<ArmComparison>& comparisons) {
  Json out = Json::array();
  for (const ArmComparison& c : comparisons)
    out.push_back({{"arm", c.arm},
                   {"median_ms", c.median_ms},
                   {"spread_ms", c.spread_ms},
                   {"baseline_ms", c.baseline_ms},
                   {"baseline_spread_ms", c.baseline_spread_ms},
                   {"ratio", c.ratio()},
                   {"slower", c.is_slower()}});
  return out;
}

}  // namespace halfstep::app
