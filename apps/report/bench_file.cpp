// SPDX-License-Identifier: Apache-2.0
#include "apps/report/bench_file.h"

#include <algorithm>
#include <limits>

#include "apps/examine/bench_baseline.h"
#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

// Reads one arm's values and checks their types.
struct ArmReader {
  const Json& arm;
  const std::string& file;

  void require(bool holds, const std::string& key, const char* kind) const {
    if (!holds)
      fail<DataError>("report", file, ": the arm ", arm["arm"].dump(), " must have ", kind, " as \"", key, "\", got ",
                      line_of(arm.value(key, Json())));
  }
  double number(const Json& value, const std::string& key) const {
    require(value.is_number() || value.is_null(), key, "a number");
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  }
  double number(const char* key) const { return number(arm.value(key, Json()), key); }
  Points list(const char* key) const {
    Points out;
    const Json values = arm.value(key, Json::array());
    require(values.is_array(), key, "a list of numbers");
    for (const Json& v : values) out.push_back({double(out.size() + 1), number(v, key)});
    return out;
  }
  std::string text(const char* key) const {
    const Json value = arm.value(key, Json(""));
    require(value.is_string(), key, "a text");
    return value.get<std::string>();
  }
};

MeasuredArm read_arm(const Json& arm, const std::string& file) {
  const ArmReader reader{arm, file};
  MeasuredArm out{.name = reader.text("arm"),
                  .refused = reader.text("refused"),
                  .median_ms = reader.number("median_ms"),
                  .fastest_ms = reader.number("fastest_ms"),
                  .p90_ms = reader.number("p90_ms"),
                  .speedup = reader.number("speedup"),
                  .peak_bytes = reader.number("peak_bytes"),
                  .planned_bytes = reader.number("planned_peak_bytes"),
                  .difference = reader.number("loss_difference"),
                  .tolerance = reader.number("loss_tolerance"),
                  .agrees = arm.value("losses_agree", Json(true)) == true,
                  .steps = reader.number("steps"),
                  .skipped = reader.number("skipped"),
                  .plain_products = reader.number("plain_products"),
                  .step_ms = reader.list("step_ms"),
                  .losses = reader.list("losses")};
  const Json memory = arm.value("peak_bytes_by_tag", Json::object());
  reader.require(memory.is_object(), "peak_bytes_by_tag", "bytes by purpose");
  for (const auto& [purpose, bytes] : memory.items()) {
    out.memory.emplace_back(purpose, reader.number(bytes, "peak_bytes_by_tag"));
    reader.require(out.memory.back().second >= 0, "peak_bytes_by_tag", "bytes by purpose");
  }
  return out;
}

}  // namespace

const MeasuredArm* Measurement::reference() const {
  const MeasuredArm* out = nullptr;
  for (const MeasuredArm& arm : arms)
    if (!arm.losses.empty() && (!out || arm.name == "float32")) out = &arm;
  return out;
}

Measurement read_measurement(const std::filesystem::path& file) {
  Json json;
  try {
    json = read_json<Json>(read_file(file, kMostBenchBytes));
  } catch (const JsonError&) {}  // reported below
  check<DataError>(is_bench(json), "report", file.string(), " must be a run's folder, or what `halfstep bench mlp --json` printed");
  Measurement out{.name = file.filename().string(), .settings = Json::object(), .arms = {}};
  for (const Json& arm : json["arms"]) out.arms.push_back(read_arm(arm, file.string()));
  for (const auto& [key, value] : json.items())
    if (key != "arms") out.settings[key] = value;
  return out;
}

}  // namespace halfstep::app
