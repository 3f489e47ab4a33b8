// SPDX-License-Identifier: Apache-2.0
// Series of several columns with gaps, by the program: what init writes, and what validate, inspect, train, eval and predict say.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::string day(int i) {
  const std::chrono::year_month_day at{std::chrono::sys_days{std::chrono::year{2024} / 1 / 1} + std::chrono::days{i}};
  char text[32];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", int(at.year()), unsigned(at.month()), unsigned(at.day()));
  return text;
}
std::string heat(int i) { return std::to_string(15 + 10 * std::sin(i * 0.3)); }
std::string rain(int i) { return std::to_string(500 + 300 * std::cos(i * 0.3)); }

// Days with two numbers and a text; `missing` has an empty cell, and ten rows are lacking from `gap` on.
std::string weather(int n, int missing = -1, int gap = -1) {
  std::string out = "day,heat,rain,sky\n";
  for (int i = 0; i < n; ++i)
    if (gap < 0 || i < gap || i >= gap + 10)
      out += day(i) + ',' + (i == missing ? "" : heat(i)) + ',' + rain(i) + (i % 3 ? ",clear\n" : ",cloudy\n");
  return out;
}

}  // namespace

TEST_CASE("init: a date that grows evenly and several numbers are a series, unless something else is wished") {
  const TempDir dir;
  write(dir / "w.csv", weather(168, 40, 100));
  const Ran made = run(dir, "init w.csv --out w.json");
  REQUIRE_MESSAGE(made.code == 0, made.err);
  const std::string config = read(dir / "w.json");
  for (const char* part :
       {R"("columns": ["heat", "rain"])", R"("time": "day")", R"("missing": "interpolate")", R"("range": [0.8, 1])"})
    CHECK_MESSAGE(contains(config, part), config);
  const std::string said = made.out + made.err;
  for (const char* part :
       {"left out: sky has texts", "--target COLUMN predicts one", "--task regression|classification makes a table"})
    CHECK_MESSAGE(contains(said, part), said);
  CHECK(contains(run(dir, "init w.csv --target rain").out, R"("target": "rain")"));
  CHECK(contains(run(dir, "init w.csv --target rain --task regression").out, R"("type": "CSV")"));
  CHECK(contains(run(dir, "init w.csv --target sky").out, R"("task": "classification")"));
  // Times that follow no rhythm, or come several at once, are those of a table.
  std::string orders = "day,price,size\n", panel = "day,price,size\n", falling = "day,price,size\n";
  for (int i = 0; i < 60; ++i) {
    const std::string values = ',' + std::to_string(i * 7 % 50) + ".5," + std::to_string(i * i % 17) + '\n';
    orders += day(i * i) + values, panel += day(i / 2) + values, falling += day(100 - i) + values;
  }
  write(dir / "orders.csv", orders);
  write(dir / "panel.csv", panel);
  write(dir / "falling.csv", falling);
  CHECK(contains(run(dir, "init orders.csv").out, R"("type": "CSV")"));
  CHECK(contains(run(dir, "init panel.csv").out, R"("type": "CSV")"));
  const Ran reversed = run(dir, "init falling.csv");
  CHECK(reversed.code == 3);
  CHECK(contains(reversed.err, "the newest row is the first"));
  // A time that is there twice is left out by its line, and a time in several columns is found.
  std::string twice = "day,v\n", parts = "year,quarter,gdp,cpi\n";
  for (int i = 0; i < 60; ++i) {
    twice += day(i) + ',' + std::to_string(i % 7) + '\n';
    if (i == 30) twice += day(i) + ",5\n";
    parts += std::to_string(1990 + i / 4) + ".0," + std::to_string(1 + i % 4) + ".0," + std::to_string(100 + i) + ".5," +
             std::to_string(i * i) + '\n';
  }
  std::string nights = "at,price,sold\n";  // seven hours a day: a rhythm that has pauses
  for (int i = 0; i < 140; ++i)
    nights +=
        day(i / 7) + ' ' + std::to_string(10 + i % 7) + ":30," + std::to_string(i % 9) + ',' + std::to_string(i * i % 13) + '\n';
  write(dir / "nights.csv", nights);
  const Ran paused = run(dir, "init nights.csv");
  CHECK(contains(paused.out, R"("columns": ["price", "sold"])"));
  CHECK(contains(paused.err, "at: 19 steps of 18 hours where 120 have 1"));
  write(dir / "twice.csv", twice);
  write(dir / "parts.csv", parts);
  const Ran skips = run(dir, "init twice.csv");
  CHECK(contains(skips.out, R"("skip_rows": [33])"));
  CHECK(contains(skips.err, "left out, since the row before has the same day: line 33"));
  CHECK(contains(run(dir, "init parts.csv").out, R"("time": ["year", "quarter"])"));
}

TEST_CASE("a series of several columns: gaps are said, and all values are in the units of their columns") {
  const TempDir dir;
  write(dir / "w.csv", weather(168, -1, 100));
  const auto config = [&](const std::string& more) {
    write(dir / "c.json", R"({"version": 1, "name": "w", "output_dir": "out",
      "data": {"root": ".", "columns": ["heat", "rain"], "time": "day", "window": 8, "horizon": 2)" +
                              more + R"(,
               "train": {"type": "TimeSeries", "path": "w.csv", "range": [0, 0.8]},
               "val": {"type": "TimeSeries", "path": "w.csv", "range": [0.8, 1]}},
      "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": "auto"}]},
      "loss": "MSELoss", "metrics": ["rmse", "mae"], "optimizer": {"type": "Adam", "lr": 0.02}, "train": {"epochs": 40}})");
  };
  config("");
  const char* const gap = "day: 1 step of 11 days where";
  const char* const left = "left out: 9 windows across a place where rows are lacking";
  for (const char* command : {"validate c.json", "inspect data c.json", "train c.json --threads 1 --overwrite"}) {
    const Ran r = run(dir, command);
    REQUIRE_MESSAGE(r.code == 0, r.err);
    CHECK_MESSAGE(contains(r.out + r.err, gap), r.out, r.err);
    CHECK_MESSAGE(contains(r.out + r.err, left), r.out, r.err);
    if (std::string(command).starts_with("train")) {
      CHECK_MESSAGE(contains(r.out + r.err, " (last value: "), r.out, r.err);
      CHECK_MESSAGE(contains(r.out + r.err, "val rmse by column: heat "), r.out, r.err);
    }
  }
  const Ran inspected = run(dir, "inspect data c.json");
  CHECK(contains(inspected.out, "inputs, by column:"));
  const Json eval = run(dir, "eval out --json").json();
  CAPTURE(eval.dump());
  for (const char* column : {"heat", "rain"}) {
    const std::string key = std::string("val.rmse.") + column;
    const bool heat = std::string(column) == "heat";
    CHECK(eval[key].get<double>() < 0.5 * eval[key + ".last_value"].get<double>());
    // The rmse of no change over steps of 1 and 2, each equally often: the amplitude times sqrt of a mean of (1 - cos).
    const double wanted = (heat ? 10 : 300) * std::sqrt(((1 - std::cos(0.3)) + (1 - std::cos(0.6))) / 2);
    CHECK(eval[key + ".last_value"].get<double>() == doctest::Approx(wanted).epsilon(0.08));
  }
  CHECK(contains(run(dir, "eval out").out, "mae by column: heat "));
  // predict needs no training data, and finds the columns in another order.
  std::string later = "rain,day,heat\n";
  for (int i = 0; i < 12; ++i) later += rain(i) + ',' + day(400 + i) + ',' + heat(i) + '\n';
  write(dir / "later.csv", later);
  fs::rename(dir / "w.csv", dir / "moved.csv");
  const Json answer = run(dir, "predict out later.csv --json").json();
  CAPTURE(answer.dump());
  REQUIRE(answer["values"].size() == 4);
  CHECK(std::abs(answer["columns"]["heat"][1].get<double>() - (15 + 10 * std::sin(13 * 0.3))) < 3);
  CHECK(std::abs(answer["columns"]["rain"][0].get<double>() - (500 + 300 * std::cos(12 * 0.3))) < 90);
  CHECK(answer["values"][2] == answer["columns"]["heat"][1]);
  const Ran csv = run(dir, "predict out later.csv --csv");
  CHECK_MESSAGE(csv.out.starts_with("input,heat.1,rain.1,heat.2,rain.2,error\nlater.csv,"), csv.out);
  const Ran text = run(dir, "predict out later.csv");
  CHECK_MESSAGE(contains(text.out, "later.csv +2: heat "), text.out);
  // A gap among the last rows is no window, unless the run fills in.
  write(dir / "holes.csv", weather(40, -1, 27));
  CHECK(contains(run(dir, "predict out holes.csv").err,
                 "the last 8 rows must follow each other, but before line 29 rows are lacking"));
  fs::rename(dir / "moved.csv", dir / "w.csv");
  config(R"(, "missing": "interpolate")");
  REQUIRE(run(dir, "train c.json --quiet --threads 1 --overwrite").code == 0);
  const Ran filled = run(dir, "predict out holes.csv");
  CHECK_MESSAGE((filled.code == 0 && contains(filled.err, "10 lacking rows are filled in by interpolation")), filled.err);
}

TEST_CASE("predict warns of values far outside of the training data's, in tables and series, also as arrays") {
  const TempDir dir;
  std::string table = "mass,wing,y\n";
  for (int i = 0; i < 60; ++i) table += std::to_string(3000 + 7 * i) + ',' + heat(i) + ',' + rain(i) + '\n';
  write(dir / "t.csv", table);
  write(dir / "w.csv", weather(60));
  for (const char* name : {"t", "w"}) {
    const std::string n = name;
    REQUIRE(run(dir, "init " + n + ".csv --out " + n + ".json").code == 0);
    const Ran trained = run(dir, "train " + n + ".json --quiet --set train.epochs=1");
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
  }
  CHECK(!contains(run(dir, "predict runs/t t.csv").err, "far outside"));
  write(dir / "new.csv", "mass,wing\n3100,16\n3100,1e6\n");
  const Ran rows = run(dir, "predict runs/t new.csv");
  CHECK(rows.code == 0);
  CHECK_MESSAGE(
      contains(rows.err, "1 value is far outside of the training data's, such as wing is 1e+06 in row 2, where the training"),
      rows.err);
  save_safetensors(dir / "new.safetensors", {{"x", from_vector<float>({3100, 16, 3100, 1e6}, {2, 2})}});
  CHECK(contains(run(dir, "predict runs/t new.safetensors").err,
                 "1 of 2 samples, the first is [1], have numbers far outside of the"));
  std::string later = weather(60);
  later.replace(later.rfind(heat(59)), heat(59).size(), "9999999");
  write(dir / "w2.csv", later);
  const Ran series = run(dir, "predict runs/w w2.csv");
  CHECK(series.code == 0);
  CHECK_MESSAGE(contains(series.err, "heat has 1 value far outside of the training data's, such as 1e+07 in line 61"), series.err);
  CHECK(!contains(run(dir, "predict runs/w w.csv").err, "far outside"));
}

TEST_CASE("init: dates of which no day is above 12, years of two digits and Unix times") {
  const TempDir dir;
  const auto says = [&](const std::function<std::string(int)>& time, const std::vector<std::string>& parts, int columns = 1) {
    std::string table = columns == 1 ? "at,v\n" : "at,v,w\n";
    for (int i = 0; i < 60; ++i) table += time(i) + ',' + heat(i) + (columns == 1 ? "\n" : ',' + rain(i) + '\n');
    write(dir / "s.csv", table);
    const Ran r = run(dir, "init s.csv");
    for (const std::string& part : parts) CHECK_MESSAGE(contains(r.out + r.err, part), time(1), ": ", r.out, r.err);
  };
  const auto numbers = [](const char* format, int a, int b, int c) {
    char text[64];
    std::snprintf(text, sizeof text, format, a, b, c);
    return std::string(text);
  };
  const std::string series = R"("type": "TimeSeries")";
  for (const int columns : {1, 2}) {
    says([&](int i) { return numbers("%02d/01/%04d", 1 + i % 12, 2015 + i / 12, 0); },
         {series, "at: no day is above 12; dates are read month first, as \"02/01/2015\" is 2015-02-01, since so they are evenly"},
         columns);
    says([&](int i) { return numbers("%d/%d/%02d", 1 + i / 20, 1 + i % 20, 24); }, {series, "years have two digits"}, columns);
    says([](int i) { return std::to_string(1704067200 + 86400 * i); },
         {series, R"("time": "at")", "numbers are read as Unix times in seconds, \"1704067200\" is 2024-01-01"}, columns);
    says([](int i) { return std::to_string((1704067200 + 3600 * int64_t(i)) * 1000); }, {series, "Unix times in milliseconds"},
         columns);
  }
}
