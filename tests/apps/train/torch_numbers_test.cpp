// SPDX-License-Identifier: Apache-2.0
// Runs with "generator": "mt19937". tests/layers/torch_draws.json has what PyTorch computed (scripts/record_draws.py).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/data/formats/npy.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app::testing;

namespace {

const nlohmann::json& recorded_run() {
  static const nlohmann::json json =
      nlohmann::json::parse(read(fs::path(halfstep_source_dir()) / "tests/layers/torch_draws.json"));
  return json;
}

// The data and the model of the recorded run.
void prepare_torch_run(const TempDir& dir) {
  Generator random(recorded_run()["seed"].get<uint64_t>(), GeneratorKind::mt19937);
  write(dir / "x.npy", npy_bytes(randn({40, 8}, {}, &random)));
  write(dir / "y.npy", npy_bytes(randint(0, 3, {40}, {.dtype = DType::i64}, &random)));
  write(dir / "c.json", R"({"version": 1, "name": "c", "output_dir": "r", "seed": 7, "generator": "mt19937", "device": "cpu",
    "data": {"root": ".", "train": {"type": "NPY", "input": "x.npy", "target": "y.npy"}, "loader": {"batch_size": 8}},
    "model": {"type": "Sequential", "layers": [{"type": "Linear", "out_features": 16}, "ReLU", {"type": "Dropout", "p": 0.25},
                                               {"type": "Linear", "out_features": 3}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9}, "train": {"epochs": 3},
    "logging": {"every": 1}, "checkpoint": {"keep_last": 0}})");
}

std::vector<double> losses_of_run(const TempDir& dir) {
  std::vector<double> out;
  std::ifstream in(dir / "r/metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto one = nlohmann::json::parse(line);
    if (one.contains("train/loss")) out.push_back(one["train/loss"]);
  }
  return out;
}

}  // namespace

TEST_CASE("a config with PyTorch's random numbers has the losses of PyTorch's run") {
  const TempDir dir;
  prepare_torch_run(dir);
  const Ran ran = run(dir, "train c.json --quiet");
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  const std::vector<double> got = losses_of_run(dir), wanted = recorded_run()["run"]["losses"];
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - wanted[i]) < 1e-5);
}

TEST_CASE("micro-batches with PyTorch's random numbers compute what the whole batch does") {
  const TempDir dir;
  prepare_torch_run(dir);
  REQUIRE(run(dir, "train c.json --quiet --set data.loader.batch_size=4 --set train.accumulate_steps=2").code == 0);
  const std::vector<double> got = losses_of_run(dir), wanted = recorded_run()["run"]["losses"];
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - wanted[i]) < 1e-5);
}

TEST_CASE("a run with PyTorch's random numbers continues to the bit, and not with another kind") {
  const TempDir dir;
  prepare_torch_run(dir);
  REQUIRE(run(dir, "train c.json --quiet").code == 0);
  const std::vector<double> whole = losses_of_run(dir);
  fs::remove_all(dir / "r");
  REQUIRE(run(dir, "train c.json --quiet --set train.max_steps=7").code == 0);
  const Ran other = run(dir, "train c.json --quiet --resume auto --set generator=philox");
  CHECK(other.code == 2);
  CHECK(other.err.find("random numbers of kind mt19937, and the generator now is of kind philox") != std::string::npos);
  REQUIRE(run(dir, "train c.json --quiet --resume auto").code == 0);
  CHECK(losses_of_run(dir) == whole);
}
