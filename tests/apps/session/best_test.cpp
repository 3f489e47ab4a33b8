// SPDX-License-Identifier: Apache-2.0
// Which checkpoints of a run are the best.
#include "apps/session/best.h"

#include <doctest/doctest.h>

#include <cmath>

#include "framework/io/checkpoint/checkpoint.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// The steps of the best after these values, which steps 1, 2, ... had.
std::vector<int64_t> best_of(const BestRule& rule, const std::vector<double>& values) {
  BestCheckpoints bests;
  for (size_t i = 0; i < values.size(); ++i)
    if (const auto after = rule.with(bests, {values[i], int64_t(i) + 1, 1})) bests = *after;
  std::vector<int64_t> out;
  for (const BestCheckpoint& b : bests.list) out.push_back(b.step);
  return out;
}

using Steps = std::vector<int64_t>;

}  // namespace

TEST_CASE("best: of equal values the later is the best, of others the lower or the larger") {
  CHECK(best_of({}, {3, 1, 2, 1, 4}) == Steps{4});
  CHECK(best_of({.larger_is_better = true}, {3, 4, 2, 4, 1}) == Steps{4});
  CHECK(best_of({.larger_is_better = true}, {-3}) == Steps{1});
  CHECK(best_of({.keep = 3}, {5, 1, 3, 2, 9, 1, 2.5}) == Steps{6, 2, 4});
  CHECK(best_of({.keep = 2}, {1, 5, 4, 3}) == Steps{1, 4});
}

TEST_CASE("best: a share within a standard error of the highest so far is as good, and later") {
  // Of 100 samples 0.9 has an error of 0.03.
  const BestRule of_100{.larger_is_better = true, .samples = 100};
  CHECK(of_100.standard_error(0.9) == doctest::Approx(0.03).epsilon(1e-6));
  CHECK(best_of(of_100, {0.5, 0.9, 0.88, 0.86}) == Steps{3});
  CHECK(best_of(of_100, {0.9, 0.88, 0.95, 0.92}) == Steps{3});  // 0.95 has an error of 0.022
  CHECK(best_of({.larger_is_better = true, .samples = 1000000}, {0.9, 0.899, 0.5}) == Steps{1});
  // A share of all or of none is no certainty.
  CHECK(best_of({.larger_is_better = true, .samples = 10}, {1, 0.8, 0.9}) == Steps{3});
  CHECK(best_of({.larger_is_better = false, .samples = 10}, {0, 0.05, 0.4}) == Steps{2});
  CHECK(BestRule{.samples = 0}.standard_error(0.5) == 0);
}

TEST_CASE("best: a checkpoint of the same step is counted once, and the list is stored whole") {
  const BestRule rule{.keep = 2};
  BestCheckpoints bests = *rule.with(*rule.with({}, {2, 7, 1}), {1, 7, 2});
  REQUIRE(bests.list.size() == 1);
  CHECK(bests.list[0].epoch == 2);
  bests = *rule.with(bests, {3, 8, 2});
  Json stored;
  store(stored, bests);
  const nlohmann::json json = nlohmann::json::parse(stored.dump());
  const BestCheckpoints read = stored_bests(StoredJson(json));
  REQUIRE(read.list.size() == 2);
  CHECK((read.list[0].value == 1 && read.list[0].step == 7 && read.list[0].epoch == 2 && read.list[1].step == 8));
  CHECK(read.top == 1);
  // As an older halfstep wrote it.
  const nlohmann::json old = {{"best", 0.5}, {"best_step", 4}, {"next_best", {{0.4, 3}}}};
  CHECK(stored_bests(StoredJson(old)).top == 0.5);
  const nlohmann::json wrong = {{"best", 0.5}, {"best_step", 4}, {"next_best", {{0.4}}}};
  CHECK_THROWS_AS(stored_bests(StoredJson(wrong)), CheckpointError);
}

TEST_CASE("best: reports and comparisons take the checkpoint that the run chose") {
  const TempDir dir;
  std::string rows = "x,y,kind\n";
  for (int i = 0; i < 60; ++i)
    rows += std::to_string(i % 7) + ',' + std::to_string(i % 11) + ',' + (i * 37 % 5 > 1 ? "a" : "b") + '\n';
  write(dir / "t.csv", rows);
  write(dir / "c.json", R"({"version": 1, "name": "c", "output_dir": "r", "amp": false,
    "data": {"root": ".", "train": {"type": "CSV", "path": "t.csv", "range": [0, 0.7]},
             "val": {"type": "CSV", "path": "t.csv", "range": [0.7, 1]}, "loader": {"batch_size": 8}},
    "model": {"type": "MLP", "hidden": [8]},
    "loss": {"type": "CrossEntropyLoss"}, "optimizer": {"type": "Adam", "lr": 0.05}, "train": {"epochs": 25}})");
  REQUIRE(run(dir, "train c.json --quiet").code == 0);
  const int64_t chosen = checkpoint_step(*best_checkpoint(dir / "r"));
  CHECK(run(dir, "compare r r --json").json()["runs"][0]["best_step"] == chosen);
  CHECK(run(dir, "eval r --json").json()["step"] == chosen);
}
