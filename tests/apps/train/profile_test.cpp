// SPDX-License-Identifier: Apache-2.0
// `halfstep train --profile`: tables, files, and a run that keeps its bits.
#include "apps/train/profile.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <map>
#include <sstream>
#include <vector>

#include "framework/base/layer_path.h"
#include "tests/apps/small_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::string unzipped(const std::filesystem::path& path) {
  std::string out(1 << 22, '\0');
  gzFile file = gzopen(path.c_str(), "rb");
  REQUIRE(file != nullptr);
  const int got = gzread(file, out.data(), unsigned(out.size()));
  gzclose(file);
  REQUIRE(got > 0);
  out.resize(size_t(got));
  return out;
}

// Chrome's trace format: complete events with a name, times in microseconds that are inside of one another or apart on each
// thread, and metadata.
void check_trace(const Json& trace) {
  REQUIRE(trace.at("traceEvents").is_array());
  std::map<int, std::vector<std::pair<double, double>>> open;
  for (const Json& e : trace["traceEvents"]) {
    CAPTURE(e.dump());
    REQUIRE(e.at("name").is_string());
    REQUIRE(e.at("pid").is_number_integer());
    REQUIRE(e.at("tid").is_number_integer());
    if (e.at("ph") == "M") continue;
    REQUIRE(e.at("ph") == "X");
    REQUIRE(e.at("cat").is_string());
    const double begin = e.at("ts"), end = begin + e.at("dur").get<double>();
    CHECK(begin >= 0);
    CHECK(end >= begin);
    auto& around = open[e["tid"]];
    constexpr double kRounding = 2e-3;  // times are written in microseconds, as doubles
    while (!around.empty() && around.back().second <= begin + kRounding) around.pop_back();
    if (!around.empty()) CHECK(end <= around.back().second + kRounding);
    around.push_back({begin, end});
  }
}

}  // namespace

TEST_CASE("a profiled run prints where its time goes, writes a trace, and keeps its bits") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  REQUIRE(run(dir, "train small.json --quiet --set output_dir=plain").code == 0);
  const Ran r = run(dir, "train small.json --profile 2 --set output_dir=profiled");
  CAPTURE(r.out);
  CAPTURE(r.err);
  REQUIRE(r.code == 0);
  CHECK(identity(dir / "plain") == identity(dir / "profiled"));
  for (const char* word : {"profile: 2 steps of ", " of it in calls", "floor:", "optimizer", "backward", "between", "floor/time",
                           "https://ui.perfetto.dev"})
    CHECK_MESSAGE(r.out.find(word) != std::string::npos, word);
  std::istringstream lines(r.out.substr(r.out.find("pass      layer")));
  for (std::string line; std::getline(lines, line) && !line.starts_with("profile");) CHECK(line.size() <= 100);

  const Json profile = Json::parse(read(dir / "profiled/profile/profile.json"));
  CHECK(profile["steps"] == 2);
  for (const Json& row : profile["calls"]) {
    // Every call is one of the plan's.
    const std::string op = row["op"];
    if (row["pass"] != "wait" && op != "grad_norm") CHECK_MESSAGE(row.contains("floor_seconds"), row.dump());
  }
  CHECK(profile["seconds_between"] > 0);
  CHECK(profile["seconds_in_calls"] < profile["step_seconds"]["slowest"]);
  const Json trace = Json::parse(unzipped(dir / "profiled/profile/trace.json.gz"));
  check_trace(trace);
  size_t steps = 0;
  for (const Json& e : trace["traceEvents"]) steps += e.value("cat", "") == "step";
  CHECK(steps == 2);
}

TEST_CASE("--profile: too few steps, and wrong numbers") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const Ran few =
      run(dir, "train small.json --profile 5 --set train.epochs=null --set train.max_steps=2 --set scheduler=null --no-amp");
  CHECK(few.code == 0);
  CHECK(few.err.find("no profile: it needs 5 steps, the first 3 to warm up and then every other one, and this process took 2") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(dir / "runs/small/profile"));
  for (const char* wrong : {"0", "-3", "many"}) CHECK(run(dir, std::string("train small.json --profile ") + wrong).code == 2);
}

TEST_CASE("medians over steps, with the plan's work beside them") {
  struct Fixed : MachineRates {
    Fixed() : MachineRates(Device::cpu) {}
    double product_seconds(DType, int64_t, int64_t, int64_t, int64_t batch) override { return 2.0 * double(batch); }
    double copy_seconds(double bytes) override { return bytes; }
  } rates;
  LoggedCall call;
  call.op = "linear", call.layer = "fc";
  call.products = {{.dtype = DType::f32, .batch = 3, .m = 2, .n = 5, .k = 7}};
  call.bytes_read = 3, call.bytes_written = 2;
  call.casts = {{DType::f32, DType::f16, 1, false}, {DType::f32, DType::f16, 1, true}};  // 6 bytes in all, of which it has 5
  call.bytes_read += 6;
  LoggedCall update;
  update.op = "sgd", update.layer = "ignored", update.pass = StepPass::update, update.bytes_read = 4;
  const PlannedCalls planned = planned_calls({call, call, update, update}, rates);
  REQUIRE(planned.size() == 3);
  const PlannedWork linear = planned.at({StepPass::forward, "fc", "linear"});
  CHECK(linear.flops == 2 * 2 * 3 * 2 * 5 * 7);
  CHECK(linear.bytes == 10);
  CHECK(linear.floor_seconds == 2 * 6.0);
  CHECK(planned.at({StepPass::forward, "fc", "autocast"}).bytes == 12);
  CHECK(planned.at({StepPass::update, "", "optimizer"}).floor_seconds == 8);
}
