// SPDX-License-Identifier: Apache-2.0
// A run that continues with another config: its place in the data and in the schedule, and its averages.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "tests/apps/support.h"
#include "tests/data/array_files.h"

using namespace halfstep;
using namespace halfstep::app::testing;
using nlohmann::json;

namespace {

// 60 samples of two classes.
void prepare(const TempDir& dir) {
  std::string x, y;
  for (int i = 0; i < 60; ++i) {
    for (int k = 0; k < 3; ++k) {
      const float value = float(std::sin(i * 3 + k)) + float(i % 2);
      x.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    const int64_t label = i % 2;
    y.append(reinterpret_cast<const char*>(&label), sizeof label);
  }
  write(dir / "x.npy", halfstep::testing::npy("<f4", "(60, 3)", x));
  write(dir / "y.npy", halfstep::testing::npy("<i8", "(60,)", y));
  write(dir / "c.json", R"({"version": 1, "name": "c", "output_dir": "r", "amp": false,
    "data": {"root": ".", "train": {"type": "NPY", "input": "x.npy", "target": "y.npy"}, "loader": {"batch_size": 10}},
    "model": {"type": "Linear", "out_features": "auto"}, "loss": {"type": "CrossEntropyLoss"},
    "optimizer": {"type": "SGD", "lr": 1.0}, "scheduler": "CosineAnnealingLR", "train": {"epochs": 8},
    "logging": {"every": 1}})");
}

// The lines of the run's metrics that have this key, in their order.
std::vector<json> lines(const TempDir& dir, const std::string& key) {
  std::vector<json> out;
  std::ifstream in(dir / "r/metrics.jsonl");
  for (std::string line; std::getline(in, line);)
    if (json one = json::parse(line); one.contains(key)) out.push_back(std::move(one));
  return out;
}

double cosine(double step, double total) { return (1 + std::cos(std::numbers::pi * step / total)) / 2; }

}  // namespace

TEST_CASE("a run that continues with another batch size reads each sample once an epoch, from the middle of one too") {
  for (const std::string size : {"4", "15", "60"}) {
    CAPTURE(size);
    const TempDir dir;
    prepare(dir);
    REQUIRE(run(dir, "train c.json --quiet --set train.max_steps=9").code == 0);  // 30 samples into the second epoch
    const Ran r = run(dir, "train c.json --resume auto --set train.epochs=3 --set data.loader.batch_size=" + size);
    CAPTURE(r.err);
    REQUIRE(r.code == 0);
    CHECK(lines(dir, "samples").back()["samples"] == 180);
    std::vector<json> rates = lines(dir, "lr");
    std::erase_if(rates, [](const json& line) { return line["step"] <= 9; });  // of the run before, which ended at 0
    CHECK(std::all_of(rates.begin(), rates.end() - 1, [](const json& line) { return line["lr"] > 0; }));
    CHECK(rates.back()["lr"] == 0);
  }
}

TEST_CASE("a run that continues with other steps an epoch keeps its place in the schedule by its share of the run") {
  for (const auto& entry : {std::pair("5", 12), std::pair("30", 2), std::pair("20", 3)}) {
    const auto& size = entry.first;
    const auto& steps = entry.second;
    CAPTURE(size);
    const TempDir dir;
    prepare(dir);
    REQUIRE(run(dir, "train c.json --quiet --set train.epochs=6").code == 0);
    const Ran r = run(dir, joined("train c.json --resume auto --set data.loader.batch_size=", size));
    REQUIRE(r.code == 0);
    const double total = 8 * steps;
    const std::string says = joined("an epoch has ", steps,
                                    " steps, before 6: the learning rates that follow are those of a run that "
                                    "had ",
                                    steps, " from its start, from its step ", 6 * steps, " of ", 8 * steps, " on; ");
    CHECK_MESSAGE(contains(r.err, says), r.err);
    std::vector<double> rates;
    for (const json& line : lines(dir, "lr"))
      if (line["step"] > 36) rates.push_back(line["lr"]);
    REQUIRE(rates.size() == size_t(2 * steps));
    for (size_t i = 0; i < rates.size(); ++i)
      CHECK(rates[i] == doctest::Approx(cosine(6 * steps + double(i) + 1, total)).epsilon(1e-9));
    CHECK(contains(r.out, joined(36 + 2 * steps, " steps, ", steps, " an epoch")));
    // Once more, without a change: nothing is said, and the counts hold.
    const Ran again = run(dir, joined("train c.json --resume auto --set train.epochs=9 --set data.loader.batch_size=", size));
    CHECK(again.code == 0);
    CHECK(!contains(again.err, "an epoch has"));
  }
}

TEST_CASE("a schedule that a run gets when it continues is where it would be from the start, and one line says so") {
  const TempDir dir;
  prepare(dir);
  REQUIRE(run(dir, "train c.json --quiet --set scheduler=null --set train.epochs=6").code == 0);
  const Ran r = run(dir, "train c.json --resume auto");
  REQUIRE(r.code == 0);
  const std::string says = "the run had no schedule before: the learning rates that follow are those of a run that had it from its "
                           "start, from its step 36 of 48 on; ";
  CHECK_MESSAGE(contains(r.err, says), r.err);
  std::vector<double> rates;
  for (const json& line : lines(dir, "lr"))
    if (line["step"] > 36) rates.push_back(line["lr"]);
  REQUIRE(rates.size() == 12);
  for (size_t i = 0; i < rates.size(); ++i) CHECK(rates[i] == doctest::Approx(cosine(36 + double(i) + 1, 48)).epsilon(1e-9));
}

TEST_CASE("averages that are switched or of another kind when a run continues are one error with the key") {
  const TempDir dir;
  prepare(dir);
  const auto refused = [&](const std::string& first, const std::string& then, const std::string& says) {
    CAPTURE(first + then);
    REQUIRE(run(dir, "train c.json --quiet --overwrite --set train.epochs=1 " + first).code == 0);
    const Ran r = run(dir, "train c.json --resume auto --set train.epochs=2 " + then);
    CHECK(r.code == 2);
    CHECK_MESSAGE(contains(r.err, says), r.err);
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') <= 4);
  };
  refused("--set train.ema=true", "", "[resume] train.ema must be as in the run that continues, where it is on, got off");
  refused("", "--set train.swa=true", "[resume] train.swa must be as in the run that continues, where it is off, got on");
  refused("--set train.ema=true", "--set train.swa=true",
          "train.ema must be as in the run that continues, where it is on, got off");
  refused("--set train.lookahead=true", "", "train.lookahead must be as in the run that continues");
  const Ran r = run(dir, "train c.json --resume auto --set train.epochs=2 --set train.lookahead=true");
  CHECK(r.code == 0);
}
