// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/bench_baseline.h"

#include <doctest/doctest.h>

#include "framework/base/check.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// What an arm of one timing has: no spread.
Json exact_arm(const std::string& arm, double ms) { return {{"arm", arm}, {"median_ms", ms}, {"fastest_ms", ms}, {"p90_ms", ms}}; }

}  // namespace

TEST_CASE("bench --baseline: an arm is slower if its median is larger by more than both spreads") {
  const Json baseline{{"arms", Json::array({{{"arm", "float32"}, {"median_ms", 10}, {"fastest_ms", 9}, {"p90_ms", 11}},
                                            {{"arm", "bfloat16"}, {"refused", "the device has none"}},
                                            {{"arm", "float16"}, {"median_ms", 10}, {"fastest_ms", 10}, {"p90_ms", 10}}})}};
  const auto found = [&](double median, double fastest, double p90) {
    BenchArm arm;
    arm.precision = Precision::float32, arm.median_ms = median, arm.fastest_ms = fastest, arm.p90_ms = p90;
    BenchArm other = arm;
    other.precision = Precision::bfloat16;
    const std::vector<ArmComparison> all = compare_arms({other, arm}, baseline);
    REQUIRE(all.size() == 1);  // an arm that was refused is not compared
    return all[0];
  };
  CHECK_FALSE(found(12, 12, 12).is_slower());  // 2 ms, the spread of the baseline
  CHECK(found(12.1, 12, 12).is_slower());
  CHECK_FALSE(found(13, 11, 14).is_slower());  // 3 ms, its own spread
  CHECK(found(13, 11, 13.9).is_slower());
  CHECK_FALSE(found(5, 5, 5).is_slower());
  CHECK(found(13, 11, 13.5).text() == "float32: 13 ms, 1.3 of 10 ms: SLOWER by 3 ms (spreads 2.5 ms and 2 ms)");
  CHECK(found(5, 5, 5).text() == "float32: 5 ms, 0.5 of 10 ms: not slower (spreads 0 ms and 2 ms)");
}

TEST_CASE("bench --baseline: a line for each arm and code 6, or what does not fit") {
  const TempDir dir;
  const std::string bench = "bench mlp --device cpu --threads 1 --batch 8 --width 16 --batches 1 --epochs 1 --warmup 0 ";
  const Ran first = run(dir, bench + "--json");
  REQUIRE(first.code == 0);
  Json old = first.json();
  const auto with = [&](const Json& arms) {
    old["arms"] = arms;
    write(dir / "old.json", old.dump());
  };
  with({exact_arm("float32", 1e9), exact_arm("float16", 1e9)});
  const Ran fine = run(dir, bench + "--baseline old.json");
  CAPTURE(fine.err);
  CHECK(fine.code == 0);
  CHECK(fine.err.empty());
  CHECK(contains(fine.out, "\nagainst old.json: float32: "));
  CHECK(contains(fine.out, " of 1e+09 ms: not slower (spreads 0 ms and 0 ms)\nagainst old.json: float16: "));
  CHECK_FALSE(contains(fine.out, "against old.json: bfloat16"));

  with({exact_arm("float32", 1e9), exact_arm("float16", 1e-9)});
  const Ran slower = run(dir, bench + "--baseline old.json");
  CHECK(slower.code == 6);
  CHECK(contains(slower.out, " of 1e-09 ms: SLOWER by "));
  const Ran json = run(dir, bench + "--baseline old.json --json");
  CHECK(json.code == 6);
  const Json arms = json.json()["baseline"]["arms"];
  REQUIRE(arms.size() == 2);
  CHECK(arms[0]["slower"] == false);
  CHECK(arms[1]["slower"] == true);
  CHECK(arms[1]["arm"] == "float16");
  CHECK(run(dir, bench + "--baseline old.json --arms float32").code == 0);

  const Ran none = run(dir, bench + "--baseline old.json --arms bfloat16");
  CHECK(none.code == 2);
  CHECK(contains(none.err, "[bench] the baseline must have one of the arms, got none in old.json"));
  const Ran batch = run(dir, bench + "--baseline old.json --layers 4");
  CHECK(batch.code == 2);
  CHECK(contains(batch.err, "[bench] the baseline must have the same layers, which is 4 here, got 3 in old.json"));
  old["description"] = "another machine";
  with(Json::array({exact_arm("float32", 1e9)}));
  const Ran elsewhere = run(dir, bench + "--baseline old.json");
  CHECK(elsewhere.code == 0);
  CHECK(contains(elsewhere.err, "warning: old.json is of another machine or library: \"another machine\""));
  for (const char* text : {"", "[]", "{}", R"({"bench": "mlp", "arms": [{"arm": "float32", "median_ms": "fast"}]})"}) {
    CAPTURE(text);
    write(dir / "bad.json", text);
    const Ran bad = run(dir, bench + "--baseline bad.json");
    CHECK(bad.code == 2);
    CHECK(contains(bad.err, "[bench] --baseline must be what `halfstep bench mlp --json` printed, got bad.json"));
  }
  CHECK(
      contains(run(dir, bench + "--baseline none.json").err, "[bench] --baseline must be a readable file; cannot read none.json"));
}
