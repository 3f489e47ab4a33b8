// SPDX-License-Identifier: Apache-2.0
#include "apps/report/report.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>

#include "apps/report/chart.h"
#include "apps/report/compare.h"
#include "framework/base/check.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

int count_of(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// A run's folder with these lines of metrics.jsonl.
fs::path written_run(const TempDir& dir, const std::string& name, const std::string& lines) {
  fs::create_directories(dir / name);
  write(dir / name / "config.resolved.json",
        R"({"name": "x", "amp": {"enabled": true, "dtype": "float16"}, "optimizer": {"type": "SGD", "lr": 0.1},
    "checkpoint": {"monitor": "val/loss", "mode": "min"}})");
  write(dir / name / "metrics.jsonl", lines);
  return dir / name;
}

}  // namespace

TEST_CASE("report: one run and several, without an address, a number that is none, or a curve that says nothing") {
  const Folder dir;
  REQUIRE(
      dir.train("--set train.grad_norm=true --set amp.dtype=float16 --set amp.enabled=true --set 'metrics=[\"confusion_matrix\"]'")
          .code == 0);
  REQUIRE(dir.train("--set output_dir=s --set optimizer.lr=0.2").code == 0);
  const Ran one = run(dir, "report r --out one.html");
  CHECK_MESSAGE(one.code == 0, one.err);
  CHECK(contains(one.out, "one.html: 1 run, "));
  const std::string page = read(dir / "one.html");
  for (const char* part : {"<title>r</title>", "float16", "Training loss", "Validation loss", "Norm of the gradients",
                           "Confusion matrix", "parameters", "<i>peak memory</i>", "The same throughout: Learning rate 0.1",
                           "Every op of a step", "&quot;type&quot;: &quot;Linear&quot;"})
    CHECK_MESSAGE(contains(page, part), part);
  for (const char* never : {"http:", "https:", "nan", "inf<", "src=", "@import", "url("})
    CHECK_MESSAGE(!contains(page, never), never);
  for (const char* tag : {"figure", "table", "div", "svg", "details", "main", "body", "html", "script", "style", "tr", "td", "th"})
    CHECK_MESSAGE(count_of(page, std::string("<") + tag) >= count_of(page, std::string("</") + tag + ">"), tag);

  REQUIRE(run(dir, "report r s --no-plan --out two.html").code == 0);
  const std::string two = read(dir / "two.html");
  for (const char* part : {"<title>2 runs</title>", "What differs", "optimizer.lr", "amp.enabled"})
    CHECK_MESSAGE(contains(two, part), part);
  // The line below the title says only what is true of all runs.
  CHECK(contains(page, "<p class=\"soft\">SGD, lr 0.1, batch "));
  CHECK(contains(two, "<p class=\"soft\">SGD, batch "));
  CHECK(run(dir, "report nothing").code == 3);
  CHECK(run(dir, "report").code == 2);

  const Ran text = run(dir, "compare r s");
  for (const char* part : {"configs differ in", "optimizer.lr", "0.2", "(best)", "val/loss", "▁"})
    CHECK_MESSAGE(contains(text.out, part), text.out);
  const Json json = run(dir, "compare r s --json").json();
  CHECK(json["runs"][1]["values"]["val/loss"].is_number());
  CHECK(json["differences"]["optimizer.lr"] == Json({0.1, 0.2}));
  CHECK(run(dir, "compare r").code == 2);
}

TEST_CASE("report: without a metric a classifier has its confusion matrix, and numbers are in the units of the file") {
  const Folder dir;
  REQUIRE(dir.train().code == 0);
  REQUIRE(run(dir, "report r --out one.html").code == 0);
  CHECK(contains(read(dir / "one.html"), "Confusion matrix"));
  CHECK(contains(read(dir / "one.html"), "data.val at step "));

  std::string rows = "a,b\n";
  for (int i = 0; i < 40; ++i) rows += halfstep::joined(i, ',', 1000 * i, '\n');
  write(dir / "t.csv", rows);
  write(dir / "t.json", R"({"name": "t", "output_dir": "t", "device": "cpu", "data": {"root": ".", "standardize_target": true,
    "standardize": true, "task": "regression", "train": {"type": "CSV", "path": "t.csv"}, "val": {"type": "CSV", "path": "t.csv"},
    "loader": {"batch_size": 8}}, "model": {"type": "Linear", "out_features": "auto"}, "loss": "MSELoss",
    "optimizer": {"type": "SGD", "lr": 1e-4}, "train": {"epochs": 1}})");
  REQUIRE(run(dir, "train t.json --quiet").code == 0);
  const Mistakes found = find_mistakes(dir / "t", 3, 60);
  if (found.fault.empty()) CHECK(found.rmse.value() > 100);
  REQUIRE(run(dir, "report t --out t.html").code == 0);
  const std::string page = read(dir / "t.html");
  CHECK(contains(page, "<th class=\"n\">val/rmse</th><th class=\"n\">val/r2</th><th class=\"n\">val/loss</th>"));
  CHECK(contains(page, "<i>val/rmse</i><span>1"));  // some ten thousand
}

TEST_CASE("report and compare: what repeats, and defaults of other types, are folded") {
  const auto run_of = [](const char* name, const char* data) {
    return RecordedRun{.name = name, .config = {{"data", Json::parse(data)}, {"seed", 1}}};
  };
  const std::vector<RecordedRun> runs = {
      run_of("a", R"({"train": {"type": "CSV", "path": "a.csv", "classification": 1, "fill": 0.0},
                      "val": {"type": "CSV", "path": "a.csv", "fill": 0.0}})"),
      run_of("b", R"({"train": {"type": "Digits", "size": 7}, "val": {"type": "Digits", "size": 9}})")};
  const FoldedDifferences found = folded(differences(runs), runs);
  std::vector<std::string> keys;
  for (const Difference& d : found.shown) keys.push_back(d.key);
  CHECK(keys == std::vector<std::string>{"data.train.classification", "data.train, val.path", "data.train.size",
                                         "data.train, val.type", "data.val.size"});
  REQUIRE(found.defaults.size() == 1);
  CHECK(found.defaults[0].key == "data.train, val.fill");
  // Lists of the same layers differ in keys of these, other lists in their types.
  const auto with_layers = [](const char* layers) { return RecordedRun{.config = {{"layers", Json::parse(layers)}}}; };
  const RecordedRun small = with_layers(R"([{"type": "Linear", "out": 4}, {"type": "ReLU"}])"),
                    wide = with_layers(R"([{"type": "Linear", "out": 8}, {"type": "ReLU"}])"),
                    single = with_layers(R"([{"type": "Linear", "out": 8}])");
  const auto layers = folded(differences({small, wide}), {small, wide}).shown;
  REQUIRE(layers.size() == 1);
  CHECK(layers[0].key == "layers.0.out");
  CHECK(layers[0].values == std::vector<Json>{4, 8});
  const auto lists = folded(differences({small, single}), {small, single}).shown;
  REQUIRE(lists.size() == 1);
  CHECK(value_words(lists[0].values[0], 40) == "Linear, ReLU");
  CHECK(value_words(lists[0].values[0], 9) == "Linear...");
  std::ostringstream text;
  print_comparison(text, runs, 60);
  CHECK(contains(text.str(), "and 1 key that has its default"));
}

TEST_CASE("logging.report writes the page at the end of a run, and a new run takes it away") {
  const Folder dir;
  const Ran trained = run(dir, "train tiny.json --threads 1 --set logging.report=html");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  CHECK_MESSAGE(contains(trained.out, "report: r/report.html"), trained.out);
  CHECK(contains(read(dir / "r/report.html"), "Training loss"));
  CHECK(dir.train("--overwrite").code == 0);
  CHECK(!fs::exists(dir / "r/report.html"));
  const Ran wrong = run(dir, "train tiny.json --overwrite --set logging.report=pdf");
  CHECK(wrong.code == 2);
  CHECK_MESSAGE(contains(wrong.err, "logging.report: must be \"html\", got \"pdf\""), wrong.err);
}

TEST_CASE("report: skipped steps are marked, what is no line of metrics is counted") {
  const TempDir dir;
  const fs::path folder = written_run(dir, "r", R"({"step": 1, "skipped": 0, "train/loss": 3, "scale": 1024, "val/loss": 2}
{"step": 2, "skipped": 2, "train/loss": null, "scale": 256}
no line of metrics
{"step": 3, "skipped": 2, "train/loss": 1, "scale": 256, "val/loss": 1}
{"step": 4, "skipped": 2, "train/loss": 2, "val/loss": 4}
)");
  const RecordedRun r = read_run(folder);
  CHECK(r.precision() == "float16");
  CHECK(r.skips == std::vector<double>{2});
  CHECK(r.lines_left_out == 1);
  CHECK(r.values.at("train/loss").size() == 3);
  REQUIRE(r.best().has_value());
  CHECK(r.best()->point.x == 3);
  const std::string page = report_page({r}, {});
  CHECK(count_of(page, "class=\"skip\"") == 1);
  CHECK(contains(page, "2^10"));
  CHECK(contains(page, "1 lines of metrics.jsonl are no metrics"));
  CHECK(contains(page, R"("x":[1.0,3.0,4.0],"y":[3.0,1.0,2.0])"));  // what the pointer shows
}

TEST_CASE("report: the best train/loss is that of an epoch, where lines have it") {
  const TempDir dir;
  const fs::path folder = written_run(dir, "r", R"({"step": 1, "train/loss": 0.1}
{"step": 2, "train/loss": 0.9, "train/epoch_loss": 0.5}
{"step": 3, "train/loss": 0.3}
{"step": 4, "train/loss": 0.5, "train/epoch_loss": 0.4}
)");
  RecordedRun r = read_run(folder, /*with_checkpoints=*/false);
  r.config["checkpoint"]["monitor"] = "train/loss";
  REQUIRE(r.best().has_value());
  CHECK(r.best()->point.x == 4);
  CHECK(r.best()->point.y == 0.4);
  r.values.erase("train/epoch_loss");  // of an older halfstep
  CHECK(r.best()->point.x == 1);
}

TEST_CASE("report: a run of a million lines is small, quick to write, and keeps its peaks") {
  Points points;
  for (int i = 0; i < 1000000; ++i) points.push_back({double(i), i == 123456 ? 50 : 2 + std::sin(i * 0.001)});
  const Points few = thinned(points, 0, 1e6, 500);
  CHECK(few.size() <= 1002);
  CHECK(std::any_of(few.begin(), few.end(), [](const Point& p) { return p.y == 50; }));
  RecordedRun r{.name = "long", .config = Json::object()};
  for (const char* key : {"train/loss", "grad_norm", "samples_per_second"}) r.values[key] = points;
  const auto began = std::chrono::steady_clock::now();
  const std::string page = report_page({r}, {});
  CHECK(page.size() < 2000000);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(20));  // a tenth of a second on an idle machine
}

TEST_CASE("charts: round ticks, and text that cannot leave its place") {
  // One value is a dot, as it makes no line.
  CHECK(chart("loss", {{.name = "a", .points = {{7, 0.5}}}}, "c").find("<circle") != std::string::npos);
  CHECK(chart("loss", {{.name = "a", .points = {{7, 0.5}, {8, 0.4}}}}, "c").find("<circle") == std::string::npos);
  CHECK(ticks(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(ticks(0.93, 0.98, 5).size() == 6);
  CHECK(ticks(1, 1, 5).empty());
  // Labels of an axis have as many digits as make them differ.
  const std::string bytes = chart("t", {{.name = "a", .points = {{1, 12.1e6}, {2, 12.3e6}}}}, "c", {.unit = ValueUnit::bytes});
  for (const char* label : {">12.10 MB<", ">12.15 MB<", ">12.20 MB<"}) CHECK(contains(bytes, label));
  const std::string shares = chart("t", {{.name = "a", .points = {{1, 0.99991}, {2, 0.99999}}}}, "c", {.unit = ValueUnit::share});
  CHECK(contains(shares, ">99.998 %<"));
  CHECK(contains(chart("t", {{.name = "a", .points = {{1234560, 1}, {1234620, 2}}}}, "c"), ">1234.58k<"));
  CHECK(chart("t", {{"a", {{1, NAN}}}}, "d").empty());
  const std::string hostile = chart("</figure><b>", {{"</script><script>alert(1)", {{1, 2}, {2, 3}}}}, "d");
  CHECK(!contains(hostile, "</script><script>"));
  CHECK(!contains(hostile, "</figure><b>"));
  CHECK(small_curve({{0, 0}, {1, 1}, {2, NAN}, {3, 2}}, 10) == "▁▅█");
  CHECK(small_curve({}, 10).empty());
}
