// SPDX-License-Identifier: Apache-2.0
// `halfstep parity` and `halfstep tune`.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// Least squares with noise on 64 samples. `more`: of the config, after the data.
void write_regression(const TempDir& dir, const std::string& model, const std::string& more, double scale = 1) {
  Generator g(5);
  const Tensor x = randn({64, 8}, {}, &g), y = mm(x, randn({8, 1}, {}, &g)) + randn({64, 1}, {}, &g);
  write(dir / "x.npy", halfstep::testing::npy(x * scale));
  write(dir / "y.npy", halfstep::testing::npy(y));
  write(dir / "run.json", R"({"name": "run", "output_dir": "out", "device": "cpu", "seed": 1, "model": )" + model + R"(,
    "loss": "MSELoss", "data": {"train": {"type": "NPY", "root": ".", "input": "x.npy", "target": "y.npy"}, )" +
                              more + "}");
}

// Whole batches, until the gradient is zero: what 16 bits round is then all that they have.
void write_to_the_end(const TempDir& dir) {
  write_regression(dir, R"({"type": "Linear", "out_features": 1})",
                   R"("loader": {"batch_size": 64}}, "amp": {"dtype": "bfloat16"},
    "optimizer": {"type": "SGD", "lr": 0.2}, "train": {"epochs": 200}, "checkpoint": {"every": "200 epochs"})");
}

// All files of a folder, with their contents.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) out[entry.path().string()] = read(entry.path());
  return out;
}

constexpr const char* kMixedMlp = R"("loader": {"batch_size": 8}}, "amp": {"dtype": "float16"},
    "optimizer": {"type": "SGD", "lr": 0.001}, "train": {"epochs": 4})";

}  // namespace

TEST_CASE("parity of a config is harmless at its start, and names dtype, errors and modules") {
  const TempDir dir;
  write_regression(dir, R"({"type": "MLP", "hidden": [16, 16]})", kMixedMlp);
  const Ran text = run(dir, "parity run.json --bisect");
  CHECK(text.code == 0);
  CHECK_MESSAGE(contains(text.out, "run.json at step 0: float16 against float32, 8 batches, loss scale"), text.out, text.err);
  CHECK(contains(text.out, "verdict   harmless: rounding adds"));
  CHECK(contains(text.out, "weights"));
  CHECK(contains(text.out, "module 0"));
  CHECK(contains(text.out, "  update    error 0.0"));
  std::istringstream lines(text.out);
  for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() <= 100, line);

  const Ran ran = run(dir, "parity run.json --json --batches 3 --set amp.dtype=bfloat16");
  CHECK(ran.code == 0);
  const Json j = ran.json();
  CHECK(j["verdict"] == "harmless");
  CHECK(j["dtype"] == "bfloat16");
  CHECK(j["batches"] == 3);
  CHECK(j["by"] == "noise");
  CHECK(j["measure"] < 0.3);
  CHECK(j["update_error"].get<double>() == doctest::Approx(j["error"].get<double>()).epsilon(0.02));  // of SGD
  REQUIRE(j["modules"].size() >= 3);
  CHECK(j["modules"][0]["ratio"] < 4);
  CHECK(j["bisected"].empty());
  // The same of the same.
  CHECK(run(dir, "parity run.json --json --batches 3 --set amp.dtype=bfloat16").out == ran.out);
}

TEST_CASE("parity of a config in float32 says what it compares") {
  const TempDir dir;
  for (const std::string off : {R"("amp": false)", R"("amp": {"enabled": false})"}) {
    write_regression(dir, R"({"type": "MLP", "hidden": [16, 16]})",
                     R"("loader": {"batch_size": 8}}, "optimizer": {"type": "SGD", "lr": 0.001}, "train": {"epochs": 4}, )" + off);
    const Ran r = run(dir, "parity run.json");
    CHECK(r.code == 0);
    CHECK_MESSAGE(contains(r.out, "bfloat16 against float32"), r.out, r.err);
    CHECK(contains(r.out, "amp is off there"));
    CHECK(run(dir, "parity run.json --json --set amp.dtype=float16").json()["dtype"] == "float16");
  }
}

TEST_CASE("parity of a run judges it at its last checkpoint: harmful, with code 6, where rounding ends its progress") {
  const TempDir dir;
  write_to_the_end(dir);
  CHECK(run(dir, "parity run.json").code == 0);
  CHECK(run(dir, "train run.json").code == 0);
  const auto before = files_of(dir / "out");
  const Ran r = run(dir, "parity out");
  CHECK_MESSAGE(r.code == 6, r.out, r.err);
  CHECK(contains(r.out, "out at step 200: bfloat16 against float32"));
  CHECK(contains(r.out, "verdict   harmful: the error of rounding is"));
  CHECK(contains(r.out, "The batches have no noise"));
  CHECK(files_of(dir / "out") == before);
  const Json j = run(dir, "parity out --json").json();
  CHECK(j["step"] == 200);
  CHECK(j["by"] == "gradient");
  CHECK(j["measure"] > 1);
  CHECK(run(dir, "parity out/step-00000200").code == 6);
}

TEST_CASE("parity refuses what it cannot compare") {
  const TempDir dir;
  write_to_the_end(dir);
  CHECK(run(dir, "parity nothing.json").code == 2);
  CHECK(run(dir, "parity run.json --batches 0").code == 2);
  CHECK(run(dir, "parity run.json --set amp.dtype=float8").code == 2);
  CHECK(contains(run(dir, "parity run.json --set amp.enabled=false").err, "[amp] must be on"));
  fs::create_directory(dir / "empty");
  const Ran empty = run(dir, "parity empty");
  CHECK(empty.code == 3);
  CHECK_MESSAGE(contains(empty.err, "[parity] empty has no checkpoint"), empty.err);
  REQUIRE(run(dir, "train run.json --quiet --set train.epochs=1").code == 0);
  const Ran other = run(dir, R"(parity out --set 'model={"type": "MLP", "hidden": [7]}')");
  CHECK(other.code == 2);
  CHECK_MESSAGE(contains(other.err, "[parity] the config must fit the state of out/step-"), other.err);
}

TEST_CASE("tune: faults of float16's range that a config can have train with the config that it writes") {
  struct Case {
    const char* model;
    double scale;  // of the inputs
  };
  const Case cases[] = {
      {R"({"type": "MLP", "hidden": [16, 16], "init": [{"match": "0.weight", "type": "normal", "std": 30000.0}]})", 1},
      {R"({"type": "MLP", "hidden": [16, 16]})", 1e5},
      {R"({"type": "Sequential", "layers": [{"type": "Unflatten", "dim": 1, "unflattened_size": [1, 2, 4]},
          {"type": "Conv2d", "out_channels": 4, "kernel_size": 2, "init": [{"match": "weight", "type": "normal", "std": 30000.0}]},
          "ReLU", "Flatten", {"type": "Linear", "out_features": 1}]})",
       1},
      {R"({"type": "MLP", "hidden": [16, 16], "init": [{"match": "2.weight", "type": "normal", "std": 100000.0}]})", 1e-3}};
  for (const Case& c : cases) {
    CAPTURE(c.model);
    const TempDir dir;
    write_regression(dir, c.model, R"("loader": {"batch_size": 8}}, "amp": {"dtype": "float16"},
      "optimizer": {"type": "SGD", "lr": 1e-13}, "train": {"epochs": 4})",
                     c.scale);
    const Ran bad = run(dir, "train run.json");
    CHECK_MESSAGE(contains(bad.out + bad.err, "_range: "), bad.out, bad.err);
    const Ran r = run(dir, "tune run.json --out tuned.json");
    CAPTURE(r.out);
    CAPTURE(r.err);
    REQUIRE(r.code == 0);
    CAPTURE(read(dir / "tuned.json"));
    const Ran good = run(dir, "train tuned.json --overwrite --json");
    CAPTURE(good.out);
    CAPTURE(good.err);
    CHECK(good.code == 0);
    CHECK_FALSE(contains(good.out + good.err, "_range: "));
    CHECK(good.json()["steps_applied"] > 16);  // of 32: the scaler looks for its scale
  }
}

TEST_CASE("tune writes a few lines that extend the config, and refuses to overwrite") {
  const TempDir dir;
  write_regression(dir, R"({"type": "Sequential", "layers": [{"type": "Linear", "out_features": 4, "name": "wide",
    "init": [{"match": "weight", "type": "normal", "std": 30000.0}]}, "LayerNorm", {"type": "Linear", "out_features": 64}, "ReLU",
    {"type": "Linear", "out_features": 1}]})",
                   kMixedMlp);
  fs::create_directory(dir / "more");
  const Ran r = run(dir, "tune run.json --out more/tuned.json --json");
  REQUIRE_MESSAGE(r.code == 0, r.err);
  const Json j = r.json();
  CHECK(j["out"] == "more/tuned.json");
  CHECK(j["dtype"] == "float16");
  REQUIRE(j["modules"].size() == 1);
  CHECK(j["modules"][0]["name"] == "wide");
  CHECK(contains(j["modules"][0]["why"], "float16 cannot hold its values"));
  const std::string text = read(dir / "more/tuned.json");
  CHECK_MESSAGE(contains(text, R"("extends": "../run.json")"), text);
  CHECK(contains(text, R"("amp": {"dtype": "float16", "modules": {"wide": "float32"}})"));
  CHECK(contains(text, "// "));
  CHECK(run(dir, "validate more/tuned.json").code == 0);
  const Ran again = run(dir, "tune run.json --out more/tuned.json");
  CHECK(again.code == 2);
  CHECK_MESSAGE(contains(again.err, "more/tuned.json is there already"), again.err);
  CHECK(run(dir, "tune run.json --out more/tuned.json --overwrite").code == 0);
  CHECK(read(dir / "more/tuned.json") == text);
  CHECK(run(dir, "tune run.json --out run.json --overwrite").code == 2);
  // What is set is in the new config as well.
  CHECK(run(dir, "tune run.json --out other.json --set optimizer.lr=0.25 --set amp.scaler.init_scale=1024").code == 0);
  const std::string other = read(dir / "other.json");
  CHECK_MESSAGE(contains(other, R"("optimizer": {"lr": 0.25})"), other);
  CHECK_MESSAGE(contains(other, R"("amp": {"scaler": {"init_scale": 1024}, "dtype": "float16")"), other);
  CHECK(run(dir, "validate other.json").code == 0);
  CHECK(contains(run(dir, "tune run.json --out no.json --set model.layers.0.out_features=3").err,
                 "[tune] --set model.layers.0.out_features=3 is in a list, which the new config cannot change"));
  CHECK(run(dir, "tune run.json --out no.json --set optimizer.lrr=1").code == 2);
  CHECK(run(dir, "tune run.json --out no.json --set optimizer.lr=-1").code == 2);
  CHECK_FALSE(fs::exists(dir / "no.json"));
}

TEST_CASE("tune of a healthy run leaves its modules alone; where no budget helps it writes nothing") {
  const TempDir dir;
  write_regression(dir, R"({"type": "MLP", "hidden": [16, 16]})", kMixedMlp);
  CHECK(run(dir, "train run.json").code == 0);
  const Ran healthy = run(dir, "tune out --out tuned.json");
  REQUIRE_MESSAGE(healthy.code == 0, healthy.err);
  CHECK(contains(healthy.out, "no module needs float32"));
  CHECK_MESSAGE(contains(read(dir / "tuned.json"), R"("extends": "out/config.resolved.json")"), read(dir / "tuned.json"));
  CHECK(run(dir, "validate tuned.json").code == 0);

  const TempDir other;
  write_to_the_end(other);
  CHECK(run(other, "train run.json").code == 0);
  const Ran r = run(other, "tune out --out tuned.json");
  CHECK(r.code == 6);
  CHECK_MESSAGE(contains(r.out, R"("amp": false)"), r.out);
  CHECK_FALSE(fs::exists(other / "tuned.json"));
}

TEST_CASE("tune of a model without a gradient says that there is nothing to compare") {
  const TempDir dir;
  write_regression(dir, R"({"type": "Linear", "out_features": 1, "bias": false,
    "init": [{"match": "weight", "type": "zeros"}]})",
                   kMixedMlp);
  write(dir / "y.npy", halfstep::testing::npy(zeros({64, 1})));
  const Ran r = run(dir, "tune run.json --out tuned.json");
  CHECK(r.code == 6);
  CHECK_MESSAGE(contains(r.out, "the gradient of these batches is 0, in float32 as well: there is nothing to compare"), r.out);
  CHECK_FALSE(fs::exists(dir / "tuned.json"));
}

TEST_SUITE("data") {
  // docs/recipes.md has it as the one recipe that 16 bits hurt. benchmarks/recipes/parity.py judges all of them.
  TEST_CASE("parity finds that 16 bits hurt wine_regression at its end, and not at its start") {
    if (!std::getenv("HALFSTEP_DATA")) return;
    const TempDir dir;
    const std::string config = "'" + (configs() / "recipes/wine_regression.json").string() + "'";
    for (const std::string dtype : {"bfloat16", "float16"}) {
      CHECK(run(dir, "parity " + config + " --set amp.dtype=" + dtype).code == 0);
      CHECK(
          run(dir, "train " + config + " --overwrite --set output_dir=out --set amp.enabled=true --set amp.dtype=" + dtype).code ==
          0);
      const Ran r = run(dir, "parity out --json");
      CHECK_MESSAGE(r.code == 6, r.out, r.err);
      CHECK(r.json()["by"] == "gradient");
    }
  }
}
