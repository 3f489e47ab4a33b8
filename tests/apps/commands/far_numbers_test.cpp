// SPDX-License-Identifier: Apache-2.0
// What the program says of data that it cannot take as the training data: numbers far from its, filled in, or equal in float32, and
// columns that are there twice.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "framework/data/formats/npy.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// A table of 60 ships. scale: of the weight's unit.
std::string ships(int begin, double scale = 1, const char* harbour = "3", bool with_target = true) {
  std::string out = with_target ? "built,weight,harbour,speed\n" : "built,weight,harbour\n";
  for (int i = begin; i < begin + 60; ++i) {
    out += joined("20", 10 + i % 13, "-0", 1 + i % 9, "-11,", scale * (5000 + i * 7 % 40), ',', harbour);
    out += with_target ? joined(',', 12 + i * 7 % 40 * 0.1, '\n') : "\n";
  }
  return out;
}

std::string ships_config(const std::string& more) {
  return R"({"version": 1, "name": "s", "output_dir": "r", "metrics": ["rmse"],
    "data": {"root": ".", "type": "CSV", "task": "regression", "dates": ["built"], "target": "speed", )" +
         more + R"(
             "train": {"path": "train.csv"}, "val": {"path": "val.csv"}},
    "model": {"type": "MLP", "hidden": [8]}, "loss": "MSELoss", "optimizer": {"type": "Adam", "lr": 0.02},
    "train": {"epochs": 2}})";
}

std::string all_of(const Ran& ran) { return ran.out + ran.err; }

// Returns what validate says of c.json with these sets.
std::string validated(const TempDir& dir, const std::string& sets = "") {
  const Ran ran = run(dir, "validate c.json" + sets);
  CHECK_MESSAGE(ran.code == 0, ran.err);
  return all_of(ran);
}

}  // namespace

TEST_CASE("a table in other units, with empty cells, or with a column that was constant: train, eval, predict and report say it") {
  const TempDir dir;
  write(dir / "train.csv", ships(0));
  write(dir / "val.csv", ships(60));
  write(dir / "c.json", ships_config(R"("standardize": true, "missing": "median",)"));
  const Ran trained = run(dir, "train c.json --quiet");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  for (const char* command : {"eval r", "predict r val.csv", "report r", "validate c.json", "eval r --split train"}) {
    const std::string said = all_of(run(dir, command));
    for (const char* words : {"far outside", "constant in", "filled in", "mean nothing"})
      CHECK_MESSAGE(!contains(said, words), said);
  }
  CHECK(!contains(all_of(trained), "far outside"));

  write(dir / "grams.csv", ships(60, 1e6));
  const Ran evaluated = run(dir, "eval r --set data.val.path=grams.csv");
  CHECK(evaluated.code == 0);
  CHECK_MESSAGE(
      contains(evaluated.err,
               "data.val: 60 values are far outside of the training data's, such as weight is 5.02e+09 in line 2, where the "
               "training data has 5000 to 5039: answers there may mean nothing"),
      evaluated.err);
  CHECK(contains(validated(dir, " --set data.val.path=grams.csv"), "60 values are far outside of the training data's"));

  write(dir / "moved.csv", ships(60, 1, "4"));
  const std::string constant =
      "60 values differ in a column that is constant in the training data, of which the model has learnt "
      "nothing: harbour is 4 in ";
  CHECK_MESSAGE(
      contains(run(dir, "eval r --set data.val.path=moved.csv").err, constant + "line 2, where the training data always has 3"),
      run(dir, "eval r --set data.val.path=moved.csv").err);
  CHECK_MESSAGE(contains(run(dir, "predict r moved.csv").err, constant + "row 1, where the training data always has 3"),
                run(dir, "predict r moved.csv").err);

  write(dir / "holes.csv", "built,weight,harbour\n2012-01-11,5001,3\n2012-01-11,,3\n,,3\n");
  const Ran filled = run(dir, "predict r holes.csv");
  CHECK(filled.code == 0);
  CHECK_MESSAGE(contains(filled.err, "3 missing values filled in, such as weight in row 2"), filled.err);
  write(dir / "hole.csv", "built,weight,harbour\n2012-01-11,,3\n");
  CHECK(contains(run(dir, "predict r hole.csv").err, "1 missing value filled in: weight in row 1"));
}

TEST_CASE("predict: a NaN of an array takes the place of a missing value, and is counted") {
  const TempDir dir;
  std::string rows = "a,b,y\n";
  for (int i = 0; i < 40; ++i) rows += joined(i % 7 == 3 ? std::string() : std::to_string(i), ',', i % 5, ',', 3 * i + i % 4, '\n');
  write(dir / "t.csv", rows);
  REQUIRE(run(dir, "init t.csv --target y --task regression --out c.json").code == 0);
  const Ran trained = run(dir, "train c.json --quiet --set train.epochs=1");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  save_safetensors(dir / "x.safetensors", {{"x", from_vector<float>({1, 2, NAN, 2, NAN, 3}, {3, 2})}});
  const Ran ran = run(dir, "predict runs/t x.safetensors");
  CHECK(ran.code == 0);
  CHECK_MESSAGE(contains(ran.err, "x.safetensors: 2 numbers are NaN, filled in as missing values of the training data were"),
                ran.err);
  CHECK_MESSAGE(!contains(ran.err, "mean nothing"), ran.err);
  save_safetensors(dir / "x.safetensors", {{"x", from_vector<float>({1, 2, NAN, 2, INFINITY, 3}, {3, 2})}});
  CHECK(contains(run(dir, "predict runs/t x.safetensors").err, "1 of 3 samples hold infinity, the first is [2]"));
}

TEST_CASE("predict: a column that is there more often than in the training data is an error") {
  const TempDir dir;
  write(dir / "train.csv", ships(0));
  write(dir / "val.csv", ships(60));
  write(dir / "c.json", ships_config(R"("standardize": true,)"));
  REQUIRE(run(dir, "train c.json --quiet").code == 0);
  const auto with_header = [&](const std::string& header, const std::string& more) {
    std::istringstream in(ships(60));
    std::string out, line;
    for (int n = 0; std::getline(in, line); ++n) out += n == 0 ? header + '\n' : more + ',' + line + '\n';
    write(dir / "new.csv", out);
    return run(dir, "predict r new.csv");
  };
  for (const char* name : {"weight", "built", " weight "}) {
    const Ran ran = with_header(joined(name, ",built,weight,harbour,speed"), "7");
    CHECK(ran.code == 3);
    CHECK_MESSAGE(contains(ran.err, "new.csv has 2 columns \""), ran.err);
    CHECK_MESSAGE(contains(ran.err, "of which the model takes 1\nhelp: rename the others in the file's first row, or delete them"),
                  ran.err);
    CHECK(ran.out.empty());
  }
  const Ran targets = with_header("speed,built,weight,harbour,speed", "1");
  CHECK(targets.code == 3);
  CHECK_MESSAGE(contains(targets.err, "new.csv has 2 columns \"speed\", of which the model takes 1"), targets.err);
  // The remedy, and other columns of one name.
  CHECK(with_header("old speed,built,weight,harbour,speed", "1").code == 0);
  CHECK(with_header("note,note,built,weight,harbour,speed", "1,2").code == 0);
}

TEST_CASE("a series far from 0: the errors of no change, and of values in other units") {
  const TempDir dir;
  const auto meter = [](int i) { return 900000000.0 + 3 * i + i * 7 % 5 * 0.5; };
  std::string rows = "meter\n", other = rows;
  for (int i = 0; i < 200; ++i) {
    char text[64];
    std::snprintf(text, sizeof text, "%.1f\n", meter(i));
    rows += text;
    std::snprintf(text, sizeof text, "%.4f\n", meter(i) / 1000);
    other += text;
  }
  write(dir / "m.csv", rows);
  write(dir / "k.csv", other);
  write(dir / "c.json", R"({"version": 1, "name": "m", "output_dir": "r",
    "data": {"root": ".", "type": "TimeSeries", "column": "meter", "window": 5,
             "train": {"path": "m.csv", "range": [0, 0.8]}, "val": {"path": "m.csv", "range": [0.8, 1]}},
    "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": "auto"}]}, "loss": "MSELoss",
    "metrics": ["mae"], "optimizer": {"type": "Adam", "lr": 0.01}, "train": {"epochs": 2}})");
  const Ran trained = run(dir, "train c.json --quiet");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  double squares = 0, sizes = 0;
  for (int i = 160; i < 200; ++i)
    squares += std::pow(meter(i) - meter(i - 1), 2) / 40, sizes += std::abs(meter(i) - meter(i - 1)) / 40;
  const Json found = run(dir, "eval r --json").json();
  CHECK(found["val.rmse.last_value"].get<double>() == doctest::Approx(std::sqrt(squares)).epsilon(1e-3));
  CHECK(found["val.mae.last_value"].get<double>() == doctest::Approx(sizes).epsilon(1e-3));
  const Ran same = run(dir, "eval r");
  CHECK(!contains(same.err, "far outside"));
  const Ran predicted = run(dir, "predict r m.csv");
  CHECK_MESSAGE(contains(predicted.out, "m.csv: 9000"), predicted.out);
  const Ran far = run(dir, "eval r --set data.val.path=k.csv");
  CHECK_MESSAGE(contains(far.err, "data.val: meter has 45 values far outside of the training data's, such as "), far.err);
  // Unscaled, float32 has steps of 64 there.
  CHECK(!contains(validated(dir), "in float32"));
  const std::string unscaled = validated(dir, " --set data.standardize=false");
  CHECK_MESSAGE(contains(unscaled, "column \"meter\": 160 different numbers become "), unscaled);
  CHECK_MESSAGE(contains(unscaled, " in float32; \"standardize\": true keeps them apart"), unscaled);
}

TEST_CASE("columns and targets whose numbers become equal in float32 are named, with what keeps them apart") {
  const TempDir dir;
  std::string rows = "ticks,small,speed\n";
  for (int i = 0; i < 60; ++i) rows += joined(1600000000000 + i * 7 % 60, ',', i * 11 % 60 / 7.0, ',', 2000000000 + i, '\n');
  write(dir / "train.csv", rows);
  write(dir / "val.csv", rows);
  std::string config = ships_config("");
  config.replace(config.find("\"dates\": [\"built\"], "), 20, "");
  write(dir / "c.json", config);
  const std::string plain = validated(dir);
  CHECK_MESSAGE(
      contains(plain, "column \"ticks\": 60 different numbers become 1 in float32; \"standardize\": true keeps them apart"), plain);
  CHECK_MESSAGE(
      contains(plain, "the target: 60 different numbers become 1 in float32; \"standardize_target\": true keeps them apart"),
      plain);
  CHECK(!contains(plain, "\"small\""));
  CHECK(!contains(validated(dir, " --set data.standardize=true --set data.standardize_target=true"), "in float32"));

  const auto arrays = [&](double offset) {
    std::vector<double> x, y;
    for (int i = 0; i < 60; ++i) x.insert(x.end(), {i * 0.01, offset + i}), y.push_back(i * 0.1);
    write_npz(dir / "d.npz", {{"x", from_vector<double>(x, {60, 2})}, {"y", from_vector<double>(y, {60})}});
    return all_of(run(dir, "init d.npz --out d.json --replace")) + all_of(run(dir, "validate d.json"));
  };
  const std::string close = arrays(1e12);
  CHECK_MESSAGE(contains(close, "inputs, column 1: 60 different numbers become 1 in float32; subtract their least value from them"),
                close);
  const std::string apart = arrays(0);
  CHECK_MESSAGE(!contains(apart, "in float32"), apart);
}

TEST_CASE("eval warns of arrays in other units than the training data") {
  const TempDir dir;
  manual_seed(3);
  const auto pair = [&](const char* name, double scale) {
    const Tensor x = rand({40, 3});
    save_safetensors(dir / name, {{"x", x * scale}, {"y", x.sum({1}, true)}});
  };
  pair("train.safetensors", 1), pair("val.safetensors", 1), pair("percent.safetensors", 100);
  write(dir / "c.json", R"({"version": 1, "name": "a", "output_dir": "r", "data": {"root": ".", "type": "Safetensors",
    "train": {"path": "train.safetensors"}, "val": {"path": "val.safetensors"}},
    "model": {"type": "Linear", "out_features": "auto"}, "loss": "MSELoss", "optimizer": {"type": "SGD", "lr": 0.1},
    "train": {"epochs": 1}})");
  REQUIRE(run(dir, "train c.json --quiet").code == 0);
  CHECK(!contains(run(dir, "eval r").err, "far outside"));
  const Ran far = run(dir, "eval r --set data.val.path=percent.safetensors");
  CHECK(far.code == 0);
  CHECK_MESSAGE(contains(far.err, "far outside of the training data's, which go from 0"), far.err);
  CHECK(contains(validated(dir, " --set data.val.path=percent.safetensors"), "far outside of the training data's"));
}
