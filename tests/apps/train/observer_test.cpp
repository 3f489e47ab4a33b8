// SPDX-License-Identifier: Apache-2.0
// Observed steps of whole runs: what they write, that they change no bit, and the causes that they find.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <vector>

#include "framework/ops/ops.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::vector<int64_t> steps_of(const fs::path& file) {
  std::vector<int64_t> out;
  for (const Json& line : lines_of(file)) out.push_back(line["step"]);
  return out;
}

// A model of several kinds of layers; 24 steps, 6 an epoch.
const char* const kSeveralLayers = R"({
  "name": "mixed", "output_dir": "r", "device": "cpu", "seed": 3,
  "model": {"type": "Sequential", "layers": [{"type": "Conv2d", "out_channels": 4, "kernel_size": 3}, "BatchNorm2d", "ReLU",
            "Flatten", {"type": "Dropout", "p": 0.1}, {"type": "Linear", "out_features": 16}, "GELU",
            {"type": "Linear", "out_features": "auto"}]},
  "loss": "CrossEntropyLoss", "optimizer": {"type": "AdamW", "lr": 0.01},
  "data": {"train": {"type": "Random", "num_batches": 6, "input_shape": [1, 8, 8], "classes": 3}, "loader": {"batch_size": 8}},
  "train": {"epochs": 4}, "checkpoint": {"every": "never"}
})";

}  // namespace

TEST_CASE("observed steps change no bit of a run") {
  const TempDir dir;
  write(dir / "mixed.json", kSeveralLayers);
  int number = 0;
  for (const std::string options : {"amp=false", R"('amp={"dtype":"bfloat16"}')", R"('amp={"dtype":"float16"}')",
                                    R"('amp={"dtype":"float16"}' --set train.clip_grad_norm=0.5)",
                                    R"('amp={"dtype":"float16"}' --set train.accumulate_steps=4)",
                                    R"('amp={"dtype":"float16"}' --set loss=MSELoss --set data.train.classes=null)"}) {
    CAPTURE(options);
    const auto train = [&](const std::string& every) {
      const std::string to = joined("r", ++number);
      const bool numbers = options.find("MSELoss") != std::string::npos;
      const Ran r = run(dir, joined("train mixed.json --quiet --set checkpoint.every='1 epoch' --set ", options,
                                    numbers ? R"( --set 'data.train.target_shape=[2]')" : "", " --set diagnostics.every=", every,
                                    " --set output_dir=", to));
      CHECK_MESSAGE(r.code == 0, r.err);
      std::string latest = read(dir / to / "latest");
      return std::pair(to, read(dir / to / latest.substr(0, latest.find('\n')) / "model.safetensors"));
    };
    const auto [all, observed] = train("'1 steps'");
    const auto [none, plain] = train("never");
    CHECK_FALSE(observed.empty());
    CHECK(observed == plain);
    CHECK_FALSE(lines_of(dir / all / "observed.jsonl").empty());
    CHECK_FALSE(fs::exists(dir / none / "observed.jsonl"));
  }
}

TEST_CASE("a line of observed.jsonl") {
  const TempDir dir;
  write(dir / "mixed.json", kSeveralLayers);
  const Ran r = run(dir, R"(train mixed.json --quiet --set 'amp={"dtype":"float16","scaler":{"init_scale":256}}')"
                         R"( --set diagnostics.every='"7 steps"')");
  REQUIRE_MESSAGE(r.code == 0, r.err);
  CHECK(r.err.empty());  // nothing is wrong with it
  const auto lines = lines_of(dir / "r/observed.jsonl");
  REQUIRE(lines.size() == 3);
  CHECK(steps_of(dir / "r/observed.jsonl") == std::vector<int64_t>{7, 14, 21});
  const Json& line = lines[1];
  CHECK(line["scale"] == 256);
  CHECK(line["room"].get<double>() > 3);
  CHECK(line["room"].get<double>() < 20);
  CHECK(line["layers"].size() == 8);  // each parameter has a gradient
  const Json& weight = line["layers"]["5.weight"];
  int64_t counted = 0;
  for (const Json& n : weight["grad"]["counts"]) counted += n.get<int64_t>();
  CHECK(double(counted) == doctest::Approx(16 * 144 * (1 - weight["zero"].get<double>())).epsilon(0.001));
  CHECK(weight["grad"]["first"].get<int>() < -5);
  CHECK(weight["overflow"] == 0);
  CHECK(weight["lost"] == 0);
  CHECK(weight["lost_16"].get<double>() <= 1);
  CHECK(weight["update"].get<double>() > 1e-3);
  CHECK(weight["update"].get<double>() < 0.5);
}

TEST_CASE("the interval counts the run's steps, and a resumed run repeats no line") {
  Folder dir;
  const std::string every = "--set checkpoint.every=3 --set diagnostics.every='\"2 steps\"' ";
  REQUIRE(dir.train(every).code == 0);
  const std::string whole = read(dir / "r/observed.jsonl");
  CHECK(steps_of(dir / "r/observed.jsonl") == std::vector<int64_t>{2, 4, 6, 8, 10, 12});
  REQUIRE(dir.train(every + "--resume r/step-00000006").code == 0);
  CHECK(read(dir / "r/observed.jsonl") == whole);
  // Where it no longer observes, lines of steps that are taken again go all the same.
  REQUIRE(dir.train("--set checkpoint.every=3 --set diagnostics.every=never --resume r/step-00000009").code == 0);
  CHECK(steps_of(dir / "r/observed.jsonl") == std::vector<int64_t>{2, 4, 6, 8});
  REQUIRE(dir.train("--overwrite").code == 0);
  CHECK_FALSE(fs::exists(dir / "r/observed.jsonl"));
}

TEST_CASE("the first observed step of a resumed run has all that it has in one that was not stopped") {
  Folder dir;
  const std::string every = "--set amp.dtype=bfloat16 --set checkpoint.every=3 --set diagnostics.every='\"1 step\"' ";
  REQUIRE(dir.train(every).code == 0);
  const std::string whole = read(dir / "r/observed.jsonl");
  const auto lines = lines_of(dir / "r/observed.jsonl");
  REQUIRE(lines.size() == 12);
  for (const size_t i : {0, 6}) CHECK(lines[i]["layers"]["weight"].contains("lost_16"));
  REQUIRE(dir.train(every + "--resume r/step-00000006").code == 0);
  CHECK(read(dir / "r/observed.jsonl") == whole);
}

TEST_CASE("an interval in epochs observes the first step after it, one in minutes is refused") {
  Folder dir;
  REQUIRE(dir.train("--set diagnostics.every='\"1 epoch\"'").code == 0);
  CHECK(steps_of(dir / "r/observed.jsonl") == std::vector<int64_t>{4, 7, 10});
  REQUIRE(dir.train("--overwrite --set diagnostics.every='\"1 epoch\"' --set train.accumulate_steps=2").code == 0);
  CHECK(steps_of(dir / "r/observed.jsonl") == std::vector<int64_t>{3, 5, 7});
  const Ran timed = dir.train("--overwrite --set diagnostics.every='\"5 min\"'");
  CHECK(timed.code == 2);
  CHECK_MESSAGE(contains(timed.err, "diagnostics.every: must be in steps or epochs, got \"5 min\""), timed.err);
}

TEST_CASE("a scale that is too low is named once, with a scale that was tried") {
  const TempDir dir;
  write(dir / "mixed.json", kSeveralLayers);
  const std::string command = R"(train mixed.json --set 'amp={"dtype":"float16","scaler":{"init_scale":1e-7}}')"
                              R"( --set loss=MSELoss --set 'data.train.target_shape=[2]' --set data.train.classes=null)"
                              R"( --set diagnostics.every='"3 steps"')";
  const Ran r = run(dir, command);
  const std::string all = r.out + r.err;
  REQUIRE_MESSAGE(r.code == 0, all);
  CHECK_MESSAGE(contains(all, "step 3 (epoch 1): observed\n  cause     underflow: gradients are too small for float16 in "), all);
  CHECK(contains(all, R"("amp": {"scaler": {"init_scale": )"));
  CHECK(contains(all, "tried: good, at most "));
  CHECK(contains(all, R"("amp": {"dtype": "bfloat16"}   tried: good)"));
  CHECK(all.find("underflow") == all.rfind("underflow"));
  const auto lines = lines_of(dir / "r/observed.jsonl");
  double most = 0;
  for (const auto& layer : lines[0]["layers"].items()) most = std::max(most, layer.value().value("flushed", 0.0));
  CHECK(most > 0.5);
  const Ran silent = run(dir, command + " --overwrite --set diagnostics.explain=false");
  CHECK_FALSE(contains(silent.out + silent.err, "underflow"));
  CHECK(lines_of(dir / "r/observed.jsonl").size() == 8);
}

TEST_SUITE("data") {
  TEST_CASE("the recipes observed in every step: the same bits as without, and nothing is found") {
    const char* const data = std::getenv("HALFSTEP_DATA");
    if (!data) {
      MESSAGE("SKIPPED: HALFSTEP_DATA is not set");
      return;
    }
    for (const auto& entry : fs::directory_iterator(configs() / "recipes")) {
      for (const char* const dtype : {"float16", "bfloat16"}) {
        const TempDir dir;
        CAPTURE(entry.path().string());
        CAPTURE(dtype);
        const auto train = [&](const std::string& every) {
          const Ran r =
              run(dir, joined("train ", entry.path().string(), " --device cpu --set 'amp={\"dtype\":\"", dtype,
                              "\"}' --set train.epochs=null --set train.max_steps=40 --set data.val=null",
                              " --set scheduler=null --set data.loader.batch_size=8",
                              " --set metrics=[] --set train.early_stopping=null --set checkpoint.monitor=train/loss",
                              " --set checkpoint.keep_best=0 --set train.eval_every=never --set diagnostics.every=", every,
                              " --set output_dir=", every == "never" ? "plain" : "observed"));
          CHECK_MESSAGE(r.code == 0, r.err);
          for (const char* const cause : {"underflow", "lost_updates", "dead_gradient"})
            CHECK_MESSAGE(!contains(r.out + r.err, cause), r.out, r.err);
        };
        train("'\"1 steps\"'");
        train("never");
        const std::vector<int64_t> seen = steps_of(dir / "observed/observed.jsonl");
        CHECK(std::set<int64_t>(seen.begin(), seen.end()).size() == 40);  // skipped ones are tried again under the same number
        CHECK(read(dir / "observed/step-00000040/model.safetensors") == read(dir / "plain/step-00000040/model.safetensors"));
        CHECK_FALSE(read(dir / "plain/step-00000040/model.safetensors").empty());
      }
    }
  }
}
