// SPDX-License-Identifier: Apache-2.0
// A run counts the steps that are applied; skipped ones move the scale.
#include <doctest/doctest.h>

#include <sstream>
#include <vector>

#include "tests/apps/small_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("intervals, train.max_steps and names of checkpoints count applied steps") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const std::string options =
      " --set train.epochs=null --set train.max_steps=20 --set checkpoint.keep_last=0 --set checkpoint.every=";
  const Ran r = run(dir, "train small.json --json --set logging.every=5" + options + "5");
  CAPTURE(r.err);
  REQUIRE(r.code == 0);
  const int skipped = r.json()["steps_skipped"];
  CHECK(skipped > 5);
  CHECK(r.json()["steps_applied"] == 20);
  std::vector<int64_t> logged;
  std::istringstream lines(read(dir / "runs/small/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line);
    if (!entry.contains("train/loss")) continue;
    logged.push_back(entry["step"]);
    CHECK(entry["attempted"] == entry["step"].get<int>() + entry["skipped"].get<int>());
  }
  CHECK(logged == std::vector<int64_t>{5, 10, 15, 20});
  std::vector<int64_t> saved = list_checkpoints(dir / "runs/small");
  std::erase_if(saved, [](int64_t step) { return step == 0 || step % 5 != 0; });  // the best of an epoch, too, was saved
  CHECK(saved == std::vector<int64_t>{5, 10, 15, 20});
  // Also where outcomes are read at other times, and by what is due at all times.
  const Ran often = run(dir, "train small.json --json --overwrite --set logging.every=1" + options + "1");
  CHECK(often.json()["steps_skipped"] == skipped);
  CHECK(list_checkpoints(dir / "runs/small").size() == 21);  // with that of the first epoch, whose steps were all skipped
}

TEST_CASE("epochs of which every step is skipped write no other checkpoint, and a run continues from there") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const std::string options = " --set amp.scaler.init_scale=1e17 --set train.limit_batches=4 --set output_dir=";
  REQUIRE(run(dir, "train small.json --quiet --set train.epochs=16" + options + "whole").code == 0);
  REQUIRE(run(dir, "train small.json --quiet --set train.epochs=9" + options + "part").code == 0);
  CHECK(list_checkpoints(dir / "part").front() == 0);
  const Ran rest = run(dir, "train small.json --quiet --resume auto --set train.epochs=16" + options + "part");
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(identity(dir / "part") == identity(dir / "whole"));
}

TEST_CASE("amp.scaler: bounds of the scale hold") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const Ran stuck = run(dir, "train small.json --overwrite --set amp.scaler.init_scale=1.6e7 --set amp.scaler.min_scale=1e7");
  CHECK(stuck.code == 4);
  CHECK_MESSAGE(contains(stuck.err, " steps were skipped, and the loss scale, 1.6e+07, cannot fall below amp.scaler.min_scale"),
                stuck.err);
  const Ran crossed = run(dir, "train small.json --set amp.scaler.min_scale=8 --set amp.scaler.max_scale=4");
  CHECK(crossed.code == 2);
  CHECK(contains(crossed.err, "amp.scaler.min_scale: must not be above max_scale, got 8 and 4"));
}
