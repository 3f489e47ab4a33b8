// SPDX-License-Identifier: Apache-2.0
// Optimizers, schedules and averages as configs name them.
#include "apps/catalog/optimizers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "amp/step/param_groups.h"
#include "apps/catalog/modules.h"
#include "apps/config/config.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/files/checksum.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

const char* kSmall = R"({
  "name": "small", "seed": 3, "device": "cpu",
  "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": 16},
    {"type": "LayerNorm", "normalized_shape": 16},
            "ReLU", {"type": "Linear", "out_features": "auto"}]},
  "loss": "CrossEntropyLoss", "optimizer": {"type": "AdamW", "lr": 0.003},
  "data": {"train": {"type": "Digits", "size": 160}, "val": {"type": "Digits", "size": 40}, "loader": {"batch_size": 16}},
  "train": {"epochs": 2}
})";

std::string identity(const fs::path& run) {
  const CheckpointContents c = load_checkpoint(run);
  return sha256(c.model) + sha256(c.state) + c.meta["schedule"].dump() + c.meta["scaler"].dump();
}

}  // namespace

TEST_CASE("every optimizer of the catalogue trains, and takes all its options for a group of parameters") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  for (const OptimizerRow& row : optimizer_catalog().rows()) {
    const std::string& type = row.component.type;
    if (row.component.doc.ends_with("of this program")) continue;  // of another test
    CAPTURE(type);
    Json group = {{"match", "weight"}}, all = {{"type", type}};
    for (const Field& f : row.component.fields) {
      if (f.key == "groups" || f.fallback.is_null()) continue;
      group[f.key] = f.fallback;
      all[f.key] = f.fallback;
    }
    if (type != "LBFGS") all["groups"] = Json::array({group});  // which takes one group
    const Ran r =
        run(dir, "train small.json --quiet --json --overwrite --set 'optimizer=" + all.dump() + "' --set output_dir=" + type);
    CAPTURE(r.err);
    CHECK(r.code == 0);
    const Json got = Json::parse(r.out);
    CHECK(got["train.loss"].is_number());
  }
}

TEST_CASE("runs with averages, Lookahead and a list of schedules resume to the bit, whatever the optimizer keeps") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const std::string common =
      "train small.json --quiet --set checkpoint.every=5 --set checkpoint.keep_last=0 --set train.lookahead=true --set "
      "'train.ema={\"decay\": 0.9}' "
      "--set 'amp={\"dtype\": \"float16\", \"scaler\": {\"init_scale\": 1e9}}' --set 'scheduler=[{\"type\": \"LinearLR\", "
      "\"length\": 6}, "
      "{\"type\": \"ChainedScheduler\", \"schedulers\": [{\"type\": \"ExponentialLR\", \"gamma\": 0.9}, {\"type\": "
      "\"ReduceLROnPlateau\", "
      "\"patience\": 0, \"threshold\": 1000, \"factor\": 0.5}]}]' ";
  for (const char* type : {"NAdam", "RMSprop", "Muon", "Adafactor", "LAMB"}) {
    CAPTURE(type);
    const std::string whole = std::string("whole") + type, part = std::string("part") + type;
    const std::string mine = common + "--set optimizer.type=" + type + " --set output_dir=";
    REQUIRE(run(dir, mine + whole).code == 0);
    REQUIRE(run(dir, mine + part + " --resume " + whole + "/step-00000005").code == 0);
    CHECK(identity(dir / whole) == identity(dir / part));
    const CheckpointContents c = load_checkpoint(dir / whole);
    CHECK(c.state.contains("optimizer.1.weight.average"));
    CHECK(c.state.contains("optimizer.1.weight.slow"));
    CHECK(c.meta["schedule"]["1.1.reductions"] >= 1);  // of the second of the list, the second of the chain
  }
}

TEST_CASE("evaluations use averaged weights, and eval says so") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const Ran trained = run(dir, "train small.json --quiet --json --set output_dir=r --set 'train.ema={\"decay\": 0.95}'");
  REQUIRE(trained.code == 0);
  const Json averaged = Json::parse(run(dir, "eval r --json").out),
             own = Json::parse(run(dir, "eval r --json --trained-weights").out);
  CHECK(averaged["averaged_weights"] == true);
  CHECK(own["averaged_weights"] == false);
  CHECK(averaged["val.loss"] == Json::parse(trained.out)["val.loss"]);
  CHECK(averaged["val.loss"] != own["val.loss"]);
  CHECK(contains(run(dir, "eval r").out, "(step 20, averaged weights) on val"));
}

TEST_CASE("no_decay_norm_bias spares norms and biases by what they are, not by their shape") {
  const Config c = [&] {
    TempDir dir;
    return load_config(write(dir / "c.json", kSmall), {.sets = {"optimizer.no_decay_norm_bias=true", "optimizer.weight_decay=0.5",
                                                                R"(optimizer.groups=[{"match": "^4", "weight_decay": 0.25}])"}});
  }();
  Json model = c.json["model"];
  model["layers"][1]["in_features"] = 784, model["layers"][4]["in_features"] = 16, model["layers"][4]["out_features"] = 10;
  const auto net = build_model(model);
  CHECK(norms_and_biases(*net) == std::vector<std::string>{"1.bias", "2.bias", "2.weight", "4.bias"});
  const auto optimizer = build_optimizer(c.json["optimizer"], *net);
  std::vector<std::pair<double, size_t>> groups;  // decay and number of parameters
  const auto* const adam = dynamic_cast<const AdamW*>(optimizer.get());
  REQUIRE(adam);
  for (size_t g = 0; g < optimizer->param_groups().size(); ++g)
    groups.emplace_back(optimizer->param_groups()[g].weight_decay.value_or(adam->options(g).weight_decay),
                        optimizer->param_groups()[g].params.size());
  CHECK(groups == std::vector<std::pair<double, size_t>>{{0.25, 1}, {0, 1}, {0.5, 1}, {0, 3}});
  const auto two = groups_without_decay(*net);
  REQUIRE(two.size() == 2);
  CHECK(two[0].params.size() == 2);
  CHECK(two[1].weight_decay == 0.0);
}

TEST_CASE("train --lr-preview: warm-up, epochs and lists, as they will be used") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const auto preview = [&](const std::string& scheduler) {
    const Ran r = run(dir, "train small.json --lr-preview --set 'scheduler=" + scheduler + "'");
    CAPTURE(r.err);
    REQUIRE(r.code == 0);
    return Json::parse(r.out);
  };
  const Json steps = preview(R"({"type": "StepLR", "step_size": 1, "gamma": 0.5, "interval": "epoch", "warmup_steps": 2})");
  CHECK(steps["steps"] == 20);
  const std::vector<double> lr = steps["lr"][0];
  REQUIRE(lr.size() == 20);
  for (size_t i = 0; i < lr.size(); ++i) {
    CAPTURE(i);
    CHECK(lr[i] == doctest::Approx(i < 2 ? 0.003 * double(i + 1) / 2 : i < 12 ? 0.003 : 0.0015));
  }
  const Json list =
      preview(R"([{"type": "LinearLR", "length": 1, "interval": "epoch", "start_factor": 0.1}, {"type": "PolynomialLR"}])");
  CHECK(list["lr"][0][0] == doctest::Approx(0.0003));
  CHECK(list["lr"][0][10] == doctest::Approx(0.003));
  CHECK(list["lr"][0][19] == doctest::Approx(0.0003));
  const Json cycle = preview(R"("OneCycleLR")");
  CHECK(cycle["momentum"].size() == 20);
  CHECK(cycle["momentum"][0] == doctest::Approx(0.95));
  const std::vector<double> rates = cycle["lr"][0];
  CHECK(*std::max_element(rates.begin(), rates.end()) == doctest::Approx(0.003).epsilon(0.05));
  CHECK(!fs::exists(dir / "runs"));
}

TEST_CASE("wrong schedules and optimizers are reported with their place") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const auto error = [&](const std::string& set) {
    const Ran r = run(dir, "train small.json --overwrite --quiet --set '" + set + "'");
    CHECK(r.code == 2);
    return r.err;
  };
  CHECK(contains(error(R"(scheduler=[{"type": "LinearLR"}, {"type": "ExponentialLR", "gamma": 0.9}])"),
                 "scheduler.0: needs a \"length\", as another schedule follows"));
  CHECK(contains(error(R"(scheduler={"type": "OneCycleLR", "pct_start": 2})"),
                 "scheduler.pct_start: must be a number in [0, 1], got 2"));
  CHECK(contains(error(R"(optimizer={"type": "Rprop", "no_decay_norm_bias": true})"),
                 "Rprop has no weight decay that no_decay_norm_bias could spare a parameter"));
  CHECK(contains(error(R"(optimizer={"type": "Muon", "adjust_lr_fn": "x"})"), "optimizer.adjust_lr_fn: must be \"original\""));
  CHECK(contains(error(R"(train={"epochs": 1, "ema": true, "swa": true})"), "train.swa: must not be given together with ema"));
}

TEST_CASE("lr-find finds where the loss falls, and writes nothing") {
  TempDir dir;
  write(dir / "small.json", kSmall);
  const Ran r = run(dir, "lr-find small.json --json --steps 60 --from 1e-6 --to 100");
  CAPTURE(r.err);
  REQUIRE(r.code == 0);
  const Json found = Json::parse(r.out);
  CHECK(found["diverged"] == true);
  CHECK(found["suggested"].get<double>() > 1e-4);
  CHECK(found["suggested"].get<double>() <= found["lowest"].get<double>());
  const double first = found["points"][0]["lr"], second = found["points"][1]["lr"];
  CHECK(first == doctest::Approx(1e-6));
  CHECK(second / first == doctest::Approx(std::pow(1e8, 1.0 / 59)));
  CHECK(contains(run(dir, "lr-find small.json --steps 60").out, "try --set optimizer.lr="));
  CHECK(contains(run(dir, "lr-find small.json --from 1 --to 0.1").err, "[lr-find] needs 0 < from < to, got from 1 and to 0.1"));
  CHECK(!fs::exists(dir / "runs"));
}
