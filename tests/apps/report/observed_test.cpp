// SPDX-License-Identifier: Apache-2.0
#include "apps/report/observed.h"

#include <doctest/doctest.h>

#include <sstream>

#include "tests/apps/tiny_run.h"

using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("report: observed steps become curves; what is no line of one is left out") {
  const TempDir dir;
  write(dir / "observed.jsonl",
        R"({"step": 10, "scale": 4, "room": 2.5, "layers": {"a": {"zero": 0.25, "lost": 0.125}, "b": {"zero": 0.5}}}
no line
{"step": 11}
{"step": 20, "scale": 4, "layers": {"a": {"zero": 0.125, "lost": 0.75}}}
)");
  RecordedRun r;
  add_observed(r, dir / "observed.jsonl");
  REQUIRE(r.observed.has_value());
  CHECK(r.observed->step == 20);
  CHECK(r.values.at("observed/room").size() == 1);
  REQUIRE(r.values.at("observed/zero").size() == 2);
  CHECK(r.values.at("observed/zero")[0].y == 0.5);  // of the parameter with the most
  CHECK(r.values.at("observed/lost")[1].y == 0.75);
}

TEST_CASE("report: updates that are lost at the end of a schedule are no fault") {
  const TempDir dir;
  const auto line = [](int step, const char* lr, const char* lost) {
    return joined(R"({"step": )", step, lr, R"(, "scale": 1, "layers": {"a": {"lost": )", lost, "}}}\n");
  };
  write(dir / "observed.jsonl", line(1, R"(, "lr": 0)", "1") + line(2, R"(, "lr": 0.1)", "0.25") +
                                    line(3, R"(, "lr": 0.004)", "0.75") + line(4, R"(, "lr": 1e-9)", "1"));
  RecordedRun r;
  add_observed(r, dir / "observed.jsonl");
  REQUIRE(r.observed.has_value());
  CHECK(r.observed->step == 2);
  CHECK(r.values.at("observed/lost").size() == 1);
  std::ostringstream out;
  write_observed(out, r, false);
  CHECK_FALSE(contains(out.str(), " bad\""));
  CHECK(contains(out.str(), "Later observed steps, 2, had a learning rate below 5 %"));
  // A file of an older halfstep has no rates: those of metrics.jsonl count.
  write(dir / "observed.jsonl", line(2, "", "0.25") + line(4, "", "1"));
  RecordedRun old{.values = {{"lr", {{1, 0.1}, {3, 1e-9}}}}};
  add_observed(old, dir / "observed.jsonl");
  CHECK(old.observed->step == 2);
}

TEST_CASE("report: the table of an observed step") {
  const TempDir dir;
  write(dir / "observed.jsonl", R"({"step": 20, "scale": 1024, "layers": {"<a>": )"
                                R"({"grad": {"first": -36, "counts": [0, 1, 0, 4, 1]}, "zero": 0.125, "lost": 0.75}}})");
  RecordedRun r{.name = "r", .config = {{"amp", {{"enabled", true}, {"dtype", "float16"}}}}};
  add_observed(r, dir / "observed.jsonl");
  REQUIRE(r.observed.has_value());
  std::ostringstream out;
  write_observed(out, r, false);
  const std::string page = out.str();
  CHECK(contains(page, "from 2^-35 to 2^-31"));
  CHECK(contains(page, "left of the mark"));  // 2^-24 / 1024
  CHECK(contains(page, "<title>2^-33: 4</title>"));
  CHECK(contains(page, "&lt;a&gt;"));
  CHECK(contains(page, "12.5 %"));
  CHECK(contains(page, "<td class=\"n bad\">75 %"));
  r.config["amp"]["dtype"] = "bfloat16";
  out.str("");
  write_observed(out, r, false);
  CHECK_FALSE(contains(out.str(), "left of the mark"));
}

TEST_CASE("report: a run shows its observed steps, and a short one its speed and memory") {
  const Folder dir;
  REQUIRE(
      dir.train("--set 'diagnostics.every=\"4 steps\"' --set logging.every=1000 --set 'checkpoint.monitor=\"val/loss\"'").code ==
      0);
  const RecordedRun r = read_run(dir / "r");
  REQUIRE(r.observed.has_value());
  CHECK(r.observed->step == 12);
  CHECK_FALSE(r.values.contains("samples_per_second"));
  CHECK(r.last.at("samples_per_second") > 0);
  CHECK(r.last.at("peak_bytes") > 0);
  REQUIRE(run(dir, "report r --out page.html").code == 0);
  const std::string page = read(dir / "page.html");
  CHECK(contains(page, "Gradients of an observed step"));
  CHECK(contains(page, "Step 12."));
  REQUIRE(dir.train("--set output_dir=s").code == 0);
  const Json values = run(dir, "compare r s --json").json()["runs"];
  CHECK(values[0]["values"]["samples_per_second"].is_number());
  CHECK(values[0]["values"]["peak_bytes"].is_number());
}
