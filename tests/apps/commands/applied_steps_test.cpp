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

TEST_CASE("a run of which every step was skipped ends with code 4, writes one checkpoint, and continues from there") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const std::string options = " --set amp.scaler.init_scale=1e12 --set train.limit_batches=4 --set output_dir=";
  REQUIRE(run(dir, "train small.json --quiet --set train.epochs=16" + options + "whole").code == 0);
  const Ran none = run(dir, "train small.json --set train.epochs=4" + options + "part");
  CAPTURE(none.err);
  CHECK(none.code == 4);
  CHECK(contains(none.err, "[train] a run must apply a step, got 8 steps that were all skipped: no weight has changed; the loss "));
  CHECK(contains(none.err, R"("init_scale": "auto")"));
  CHECK(contains(none.err, "--resume auto with more train.epochs continues"));
  CHECK(list_checkpoints(dir / "part") == std::vector<int64_t>{0});
  CHECK(Json::parse(read(dir / "part/run.json"))["ending"] == "failed");
  // Nothing is lost: it continues as a run that did not end.
  const Ran rest = run(dir, "train small.json --quiet --resume auto --set train.epochs=16" + options + "part");
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(identity(dir / "part") == identity(dir / "whole"));
  // These try no step.
  CHECK(run(dir, "train small.json --quiet --resume auto --set train.epochs=16" + options + "part").code == 0);
  CHECK(run(dir, "train small.json --quiet --set train.epochs=0 --set output_dir=empty").code == 0);
}

TEST_CASE("a resumed run knows which step was skipped last, and why") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const auto skips = [&](const std::string& folder) {
    std::vector<std::string> out;
    std::istringstream lines(read(dir / folder / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json entry = Json::parse(line); entry.contains("train/loss"))
        out.push_back(joined(entry["attempted"], ' ', entry.contains("last_skip") ? entry["last_skip"].dump() : "none"));
    return out;
  };
  const std::string options = "train small.json --quiet --set output_dir=";
  REQUIRE(run(dir, options + "whole").code == 0);
  REQUIRE(run(dir, options + "part --set train.epochs=3").code == 0);
  REQUIRE(run(dir, options + "part --resume auto").code == 0);
  CHECK(skips("part") == skips("whole"));
  CHECK(contains(skips("part").front(), "overflow_scale"));
  CHECK(contains(skips("part").back(), R"({"step":)"));
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
