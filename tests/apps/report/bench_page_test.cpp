// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "apps/report/report.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

Json arm(const std::string& name, double ms, const std::vector<double>& step_ms, const std::vector<double>& losses) {
  return {{"arm", name},        {"median_ms", ms},        {"fastest_ms", ms},
          {"p90_ms", ms},       {"speedup", 1},           {"peak_bytes", 30},
          {"step_ms", step_ms}, {"losses", losses},       {"steps", losses.size()},
          {"skipped", 0},       {"loss_tolerance", 0.01}, {"peak_bytes_by_tag", {{"data", 10}, {"workspace", 20}}}};
}

int occurrences(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("report: what `bench mlp --json` prints becomes a page about its precisions") {
  const TempDir dir;
  const std::string bench = "bench mlp --device cpu --threads 1 --batch 8 --width 16 --batches 2 --epochs 2 --warmup 1 --json ";
  write(dir / "old.json", run(dir, bench).out);
  write(dir / "new.json", run(dir, bench + "--baseline old.json").out);
  const Ran one = run(dir, "report new.json --out one.html");
  CHECK_MESSAGE(one.code == 0, one.err);
  CHECK_MESSAGE(contains(one.out, "one.html: 1 measurement, "), one.out);
  const std::string page = read(dir / "one.html");
  for (const char* part : {"<title>halfstep bench mlp</title>", "3 x Linear(16, 16), batch 8, 2 batches, 2 epochs", "float32",
                           "bfloat16", "float16", "the reference", "Time of each step", "Memory of tensors at the peak",
                           "workspace", "Loss of each step", "agrees with float32", "against old.json", "&quot;threads&quot;: 1"})
    CHECK_MESSAGE(contains(page, part), part);
  for (const char* never : {"http:", "https:", "nan", "inf<", "src=", "@import", "url("})
    CHECK_MESSAGE(!contains(page, never), never);

  const Ran two = run(dir, "report old.json new.json --out two.html");
  CHECK_MESSAGE(contains(two.out, "two.html: 2 measurements, "), two.out);
  for (const char* part : {"2 measurements", "old.json: float32", "new.json: float16"})
    CHECK_MESSAGE(contains(read(dir / "two.html"), part), part);
}

TEST_CASE("report of a measurement: each step is a dot, one far beyond an arrow; disagreement and refusal are said") {
  const TempDir dir;
  Json json{{"bench", "mlp"},
            {"arms",
             {arm("float32", 2, {2, 2, 2, 90}, {4, 2}),
              arm("bfloat16", 1, {1, 1}, {4, 3}),
              {{"arm", "float16"}, {"refused", "the device <has> none"}}}}};
  json["arms"][1]["losses_agree"] = false;
  json["arms"][1]["loss_difference"] = 0.5;
  write(dir / "b.json", json.dump());
  const std::string page = bench_page({read_measurement(dir / "b.json")});
  const std::string strips =
      page.substr(page.find("Time of each step"), page.find("Memory of tensors") - page.find("Time of each step"));
  CHECK(occurrences(strips, "<circle") == 5);
  CHECK(occurrences(strips, "<path") == 1);
  CHECK(contains(page, "bfloat16 does not agree with float32: the losses are 0.5 of their value apart at most, tolerated 0.01."));
  CHECK(contains(page, "float16 was not measured: the device &lt;has&gt; none"));
  CHECK(contains(page, R"("y":[0.5])"));  // the difference of the second step; none of the first lies on a logarithmic axis
  json["arms"][1]["losses"] = {4, nullptr};
  json["arms"][1]["loss_difference"] = nullptr;
  write(dir / "b.json", json.dump());
  CHECK(contains(bench_page({read_measurement(dir / "b.json")}), "bfloat16 does not agree with float32: losses are not finite"));
}

TEST_CASE("report of a measurement: what fits no page is named") {
  const Folder dir;
  Json json{{"bench", "mlp"}, {"arms", Json::array({arm("float32", 2, {2}, {4})})}};
  const auto said = [&](const std::string& text, const std::string& more = "") {
    write(dir / "b.json", text);
    const Ran ran = run(dir, "report b.json " + more + " --out page.html");
    CHECK(ran.code == (more.empty() ? 3 : 2));
    CHECK_FALSE(fs::exists(dir / "page.html"));
    return ran.err;
  };
  const char* rule = "[report] b.json must be a run's folder, or what `halfstep bench mlp --json` printed";
  for (const char* text : {"", "{", "[]", "{\"bench\": \"ops\", \"arms\": []}", "{\"bench\": \"mlp\", \"arms\": [{\"arm\": 1}]}"})
    CHECK_MESSAGE(contains(said(text), rule), text);
  json["arms"][0]["losses"] = "many";
  CHECK(contains(said(json.dump()), R"(b.json: the arm "float32" must have a list of numbers as "losses", got "many")"));
  json["arms"][0]["losses"] = {1, "x"};
  CHECK(contains(said(json.dump()), R"(must have a number as "losses", got [1,"x"])"));
  json["arms"][0]["losses"] = Json::array();
  json["arms"][0]["peak_bytes_by_tag"] = {{"data", -1}};
  CHECK(contains(said(json.dump()), R"(must have bytes by purpose as "peak_bytes_by_tag", got {"data":-1})"));
  fs::create_directory(dir / "run");
  CHECK(
      contains(said("{}", "run"), "all must be folders of runs, or all files of `halfstep bench mlp --json`, got b.json and run"));
}
