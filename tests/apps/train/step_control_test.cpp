// SPDX-License-Identifier: Apache-2.0
// Early stopping, the best few checkpoints, overfitting, recomputation, and the norm of gradients, as a config asks for them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <sstream>

#include "framework/io/checkpoint/checkpoint.h"
#include "tests/apps/config/load.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

constexpr const char* kConfig = R"({
  "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": 16},
    {"type": "BatchNorm1d", "name": "norm"},
                                             "ReLU", {"type": "Dropout", "p": 0.2}, {"type": "Linear", "out_features": "auto"}]},
  "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1}, "device": "cpu", "output_dir": "r",
  "data": {"train": {"type": "Digits", "size": 60}, "val": {"type": "Digits", "size": 40}, "loader": {"batch_size": 16}},
  "logging": {"every": 1}, "train": {"epochs": 30}})";

std::vector<Json> lines(const fs::path& file, const std::string& key) {
  std::vector<Json> out;
  std::istringstream text(read(file));
  for (std::string line; std::getline(text, line);) {
    const Json entry = Json::parse(line);
    if (entry.contains(key)) out.push_back(entry);
  }
  return out;
}

// The number of these values that are seen before early stopping ends training.
size_t stops_after(const std::vector<double>& values, double min_delta, int patience, bool more) {
  double best = NAN;
  int waited = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool better = std::isnan(best) || (more ? values[i] > best + min_delta : values[i] < best - min_delta);
    if (better) best = values[i];
    waited = better ? 0 : waited + 1;
    if (waited == patience) return i + 1;
  }
  return values.size();
}

}  // namespace

TEST_CASE("early stopping: ends by its rule, and the same after a resume") {
  TempDir dir;
  write(dir / "c.json", kConfig);
  const std::string stop = R"( --set 'train.early_stopping={"monitor": "val/loss", "patience": 3, "min_delta": 0.05}' )";
  REQUIRE(run(dir, "train c.json --set output_dir=full --quiet").code == 0);
  std::vector<double> losses;
  for (const Json& line : lines(dir / "full/metrics.jsonl", "val/loss")) losses.push_back(line["val/loss"]);
  REQUIRE(losses.size() == 30);
  const size_t expected = stops_after(losses, 0.05, 3, false);
  REQUIRE(expected < 28);
  const Ran one = run(dir, "train c.json --set output_dir=one --json" + stop);
  REQUIRE(one.code == 0);
  CHECK(one.json()["epochs"] == expected);
  CHECK(one.json()["stopped_early"] == true);
  CHECK(contains(one.err, "stopped early: val/loss got no better than"));
  CHECK(lines(dir / "one/metrics.jsonl", "val/loss").size() == expected);

  // Cut short two evaluations before the end, then resumed.
  const std::string shorter = " --set train.epochs=" + std::to_string(expected - 2);
  REQUIRE(run(dir, "train c.json --set output_dir=two --quiet" + stop + shorter).code == 0);
  const Ran two = run(dir, "train c.json --set output_dir=two --resume auto --json" + stop);
  CHECK(two.json()["epochs"] == expected);
  CHECK(two.json()["val.loss"] == one.json()["val.loss"]);
  CHECK(load_checkpoint(dir / "two").model.begin()->second.to_vector<float>() ==
        load_checkpoint(dir / "one").model.begin()->second.to_vector<float>());
  // A run that has stopped takes no more steps.
  const Ran again = run(dir, "train c.json --set output_dir=two --resume auto --json" + stop);
  CHECK(again.code == 0);
  CHECK(again.json()["steps_applied"] == two.json()["steps_applied"]);

  const auto file = dir / "c.json";
  const auto with = [&](std::vector<std::string> sets) { return error_of(file, {.sets = std::move(sets)}); };
  CHECK(contains(with({"train.early_stopping.monitor=val/f1"}),
                 "train.early_stopping.monitor: must be \"val/loss\", \"val/accuracy\""));
  CHECK(contains(with({"train.early_stopping.monitor=val/loss", "data.val=null"}),
                 "train.early_stopping.monitor: val/loss needs data.val"));
  CHECK(contains(with({"train.early_stopping.patience=0"}), "train.early_stopping.patience: must be an integer >= 1, got 0"));
  const Config c = load_config(file, {.sets = {"train.early_stopping.patience=2"}});
  CHECK(c.train.early_stopping["monitor"] == "val/accuracy");
  CHECK(c.train.early_stopping["mode"] == "max");
}

TEST_CASE("keep_best keeps the best few, by any metric") {
  TempDir dir;
  write(dir / "c.json", kConfig);
  const std::string options =
      R"( --quiet --set 'metrics=["perplexity"]' --set checkpoint.monitor=val/perplexity )"
      R"(--set checkpoint.keep_best=3 --set checkpoint.keep_last=1 )";
  REQUIRE(run(dir, "train c.json --set train.epochs=8" + options).code == 0);
  REQUIRE(run(dir, "train c.json --set train.epochs=20 --resume auto" + options).code == 0);
  std::vector<std::pair<double, int64_t>> values;
  for (const Json& line : lines(dir / "r/metrics.jsonl", "val/perplexity"))
    values.emplace_back(line["val/perplexity"], line["step"]);
  REQUIRE(values.size() == 20);
  const int64_t last = values.back().second;
  std::sort(values.begin(), values.end());
  std::set<int64_t> expected{last};
  for (size_t i = 0; i < 3; ++i) expected.insert(values[i].second);
  const auto kept = list_checkpoints(dir / "r");
  // A checkpoint that is no longer among the best is removed by the next save.
  for (const int64_t step : expected) CHECK(std::find(kept.begin(), kept.end(), step) != kept.end());
  CHECK(kept.size() == expected.size());
  CHECK(checkpoint_step(*best_checkpoint(dir / "r")) == values[0].second);
}

TEST_CASE("overfit_batches: the first batches, over and over, are evaluated too") {
  TempDir dir;
  write(dir / "c.json", kConfig);
  const Ran ran = run(dir, "train c.json --json --set train.overfit_batches=2 --set train.epochs=60 --set model.layers.4.p=0");
  REQUIRE(ran.code == 0);
  CHECK(ran.json()["steps_applied"] == 120);
  CHECK(ran.json()["val.accuracy"] == 1);
  CHECK(ran.json()["train.loss"].get<double>() < 0.1);
  CHECK(contains(ran.err, "data: 32 samples of:"));
}

TEST_CASE("checkpoint_activations: the same weights, to the bit") {
  TempDir dir;
  write(dir / "c.json", kConfig);
  const std::string base = "train c.json --quiet --set train.epochs=3 --set train.accumulate_steps=2 --set train.grad_norm=true ";
  REQUIRE(run(dir, base + "--set output_dir=plain").code == 0);
  REQUIRE(run(dir, base + R"(--set output_dir=again --set 'train.checkpoint_activations=["^[1-4]$", "norm"]')").code == 0);
  const auto plain = load_checkpoint(dir / "plain").model, again = load_checkpoint(dir / "again").model;
  CHECK(plain.size() == again.size());
  for (const auto& entry : plain)
    CHECK_MESSAGE(entry.second.to_vector<double>() == again.at(entry.first).to_vector<double>(), entry.first);
  for (const Json& line : lines(dir / "plain/metrics.jsonl", "train/loss")) CHECK(line["grad_norm"].get<double>() > 0);
  const Ran wrong = run(dir, base + "--set output_dir=w --set train.checkpoint_activations=nowhere");
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "train.checkpoint_activations: \"nowhere\" is in no module's name"));
  CHECK(contains(error_of(dir / "c.json", {.sets = {"train.checkpoint_activations=norm", "performance.cuda_graph=true"}}),
                 "performance.cuda_graph: must not be true together with train.checkpoint_activations"));
}

TEST_CASE("memory_budget: the run prints the choice, and has the same weights and losses, to the bit") {
  TempDir dir;
  write(dir / "c.json", R"({"model": {"type": "Sequential", "layers": ["Flatten",
      {"type": "Repeat", "times": 4, "layers": [{"type": "Residual", "body": [
        {"type": "Linear", "out_features": 512}, "Tanh", {"type": "Dropout", "p": 0.2}, {"type": "Linear", "out_features": 784}]}]},
      {"type": "BatchNorm1d"}, {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.05}, "device": "cpu", "logging": {"every": 1},
    "data": {"train": {"type": "Digits", "size": 1200}, "loader": {"batch_size": 600}},
    "train": {"epochs": 2}})");
  REQUIRE(run(dir, "train c.json --set output_dir=plain").code == 0);
  const Ran plan = run(dir, "train c.json --dry-run --json");
  REQUIRE(plan.code == 0);
  const int64_t peak = plan.json()["memory"]["later_steps"]["peak_bytes"];
  // How far it can be lowered depends on the workspace of the library's products.
  const Ran small = run(dir, R"(train c.json --set output_dir=s --set 'train.memory_budget="10 kB"')");
  CHECK(small.code == 5);
  CHECK(contains(small.err, "[train.memory_budget] the peak of a training step must be at most 10000 bytes, the smallest"));
  const std::string before = "recomputation reaches is ";
  const size_t at = small.err.find(before);
  REQUIRE(at != std::string::npos);
  const int64_t least = std::stoll(small.err.substr(at + before.size()));
  if (least >= peak) {
    std::puts("SKIPPED: the library's workspace is the peak, which recomputation does not lower");
    return;
  }
  const std::string budget = joined(" --set train.memory_budget=", (least + peak) / 2);
  const Ran ran = run(dir, "train c.json --set output_dir=again" + budget);
  REQUIRE(ran.code == 0);
  CHECK(contains(ran.out, "memory: budget "));
  CHECK(contains(ran.out, ", train.memory_budget: "));
  CHECK(contains(ran.out, "computed again in backward, 1."));
  CHECK(contains(ran.out, " % more operations"));
  const auto plain = load_checkpoint(dir / "plain").model, again = load_checkpoint(dir / "again").model;
  for (const auto& entry : plain)
    CHECK_MESSAGE(entry.second.to_vector<double>() == again.at(entry.first).to_vector<double>(), entry.first);
  const auto losses = lines(dir / "plain/metrics.jsonl", "train/loss"), others = lines(dir / "again/metrics.jsonl", "train/loss");
  REQUIRE(losses.size() == others.size());
  for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i]["train/loss"] == others[i]["train/loss"]);
  const Json of_run = Json::parse(read(dir / "again/run.json"));
  CHECK(of_run["starts"][0]["recomputation"]["modules"].size() > 0);

  const Ran shown = run(dir, "plan c.json" + budget);
  CHECK(contains(shown.out, "recomputed  budget "));
  const Ran roomy = run(dir, "train c.json --set output_dir=auto --set train.checkpoint_activations=auto");
  CHECK(roomy.code == 0);
  CHECK(contains(roomy.out, "90 % of the free memory of this machine: nothing is computed again, the peak of a step is "));
  CHECK(
      contains(run(dir, "train c.json --resume auto --set output_dir=auto --set train.epochs=3 --set train.memory_budget=1e12").out,
               "train.memory_budget: nothing is computed again"));
}

TEST_CASE("memory_budget: what it takes, and what not together with it") {
  TempDir dir;
  write(dir / "c.json", kConfig);
  const auto error = [&](std::vector<std::string> sets) { return error_of(dir / "c.json", {.sets = std::move(sets)}); };
  for (const char* wrong : {"0", "-5", "\"6 EB\"", "\"lots\"", "true"})
    CHECK(
        contains(error({joined("train.memory_budget=", wrong)}), "train.memory_budget: must be a number of bytes >= 1, \"N MB\""));
  CHECK(error({"train.memory_budget=\"1.5 GiB\"", "train.checkpoint_activations=auto"}).empty());
  CHECK(contains(error({"train.memory_budget=1e9", "train.checkpoint_activations=norm"}),
                 "train.memory_budget: must not be given together with patterns in checkpoint_activations"));
  CHECK(contains(error({"train.memory_budget=1e9", "performance.cuda_graph=true"}),
                 "performance.cuda_graph: must not be true together with train.memory_budget"));
  CHECK(contains(error({"train.checkpoint_activations=auto", "optimizer=LBFGS"}), "must not be \"auto\" with LBFGS"));
  CHECK(contains(error({"train.memory_budget=1e9", "optimizer=LBFGS"}), "train.memory_budget: must not be given with LBFGS"));
  CHECK(contains(error({"train.checkpoint_activations=auto", "performance.cuda_graph=true"}),
                 "performance.cuda_graph: must not be true together with train.checkpoint_activations"));
}

TEST_CASE("many skipped steps: the advice is for the first scale, or for its growth") {
  TempDir dir;
  write(dir / "c.json", kConfig);
  const auto advice = [&](const std::string& scaler) {
    return run(dir, R"(train c.json --overwrite --set train.epochs=4 --set 'amp={"dtype": "float16", "scaler": {)" + scaler + "}}'")
        .err;
  };
  const std::string grows = advice(R"("init_scale": 1048576, "growth_interval": 1)");
  CHECK_MESSAGE(contains(grows, R"("amp.scaler.growth_interval": a larger number than 1 would have skipped fewer)"), grows);
  const std::string begins = advice(R"("init_scale": 1e9)");
  CHECK_MESSAGE(contains(begins, R"("amp.scaler.init_scale": )"), begins);
  CHECK_FALSE(contains(begins, "growth_interval"));
}

TEST_CASE("clip_grad_agc in a config bounds the gradients") {
  TempDir dir;
  write(dir / "c.json", kConfig);
  const auto largest = [&](const std::string& name, const std::string& options) {
    REQUIRE(
        run(dir, "train c.json --quiet --set train.epochs=2 --set train.grad_norm=true --set output_dir=" + name + options).code ==
        0);
    double most = 0;
    for (const Json& line : lines(dir / name / "metrics.jsonl", "grad_norm"))
      most = std::max(most, line["grad_norm"].get<double>());
    return most;
  };
  CHECK(largest("a", " --set train.clip_grad_agc=0.001") < 0.01 * largest("b", ""));
}

TEST_CASE("an augmented, weighted, accumulating run resumes from any checkpoint to the bit") {
  TempDir dir;
  write(dir / "c.json", kConfig);
  const std::string transforms = R"([{"type": "RandomCrop", "size": 28, "padding": 3}, {"type": "RandomRotation", "degrees": 8},
    {"type": "Normalize", "from": "data"}, "RandomErasing", {"type": "Mixup", "alpha": 0.3}])";
  const std::string options = " --quiet --set 'data.train.transforms=" + transforms +
                              R"(' --set 'data.val.transforms=["RandomHorizontalFlip"]' --set data.loader.batch_size=8)"
                              " --set data.loader.sampler=weighted --set train.accumulate_steps=2 --set train.epochs=3"
                              " --set checkpoint.every=1 --set checkpoint.keep_last=0 ";
  REQUIRE(run(dir, "train c.json --set output_dir=full" + options).code == 0);
  const auto expected = load_checkpoint(dir / "full");
  const auto same = [&](const std::string& name) {
    const auto got = load_checkpoint(dir / name);
    for (const auto& entry : expected.model)
      CHECK_MESSAGE(entry.second.to_vector<double>() == got.model.at(entry.first).to_vector<double>(), entry.first);
    CHECK(got.meta["trainer"]["val_loss"] == expected.meta["trainer"]["val_loss"]);
  };
  REQUIRE(run(dir, "train c.json --set output_dir=workers --set data.loader.num_workers=3" + options).code == 0);
  same("workers");
  const auto steps = list_checkpoints(dir / "full");
  REQUIRE(steps.size() == 12);
  for (const int64_t step : {2, 4, 7}) {
    char from[40];
    std::snprintf(from, sizeof from, "full/step-%08d", int(step));
    const std::string name = "from" + std::to_string(step);
    const Ran resumed =
        run(dir, "train c.json --set data.loader.num_workers=2 --set output_dir=" + name + " --resume " + from + options);
    REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
    same(name);
  }
}
