// SPDX-License-Identifier: Apache-2.0
// Rows that programs add to the catalogues behave like the built-in ones.
#include <doctest/doctest.h>

#include "apps/catalog/datasets.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "apps/catalog/optimizers.h"
#include "apps/catalog/transforms.h"
#include "apps/commands/program.h"
#include "apps/export/exporter.h"
#include "apps/session/session.h"
#include "apps/train/plan.h"
#include "framework/backend/export_error.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

class Scaled : public Module {
 public:
  Scaled(int64_t in_features, std::optional<double> by, const std::string& mode, const std::vector<int64_t>& list)
      : weight_(register_parameter(
            "weight", full({in_features}, by.value_or(mode == "small" ? 0.5 : 2) * double(list.size() + 1)))) {}
  Tensor forward(const Tensor& x) override { return x * weight_; }
  std::string describe() const override { return "Scaled()"; }

 private:
  Parameter weight_;
};
HALFSTEP_REGISTER_MODULE(Scaled, arg<int64_t>(integer("in_features", nullptr, "width").from_input_dim(-1)),
                         arg<std::optional<double>>(number("by", nullptr, "factor")),
                         arg<std::string>(choice("mode", "small", {"small", "large"}, "without a factor")),
                         arg<std::vector<int64_t>>(list("list", Json::array(), integer("", nullptr, "number"), "numbers")));

class HalfBatch : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x.narrow(0, 0, 3); }
};
HALFSTEP_REGISTER_MODULE(HalfBatch);

class Distance : public Loss {
 public:
  explicit Distance(double p) : p_(p) {}
  Tensor operator()(const Tensor& output, const Tensor& target) const override { return mean(pow(abs(output - target), p_)); }
  std::string describe() const override { return "Distance()"; }

 private:
  double p_;
};
HALFSTEP_REGISTER_LOSS(Distance, Targets::numbers, arg<double>(number("p", 2.0, "power").above(0)));

class Plain : public SGD {
 public:
  Plain(std::vector<ParamGroup> groups, double lr) : SGD(std::move(groups), {.lr = lr}) {}
};
HALFSTEP_REGISTER_OPTIMIZER(Plain, arg<double>(number("lr", 0.1, "learning rate")));

class Thirds : public StepLR {
 public:
  Thirds(Optimizer& optimizer, int64_t every) : StepLR(optimizer, every, 1.0 / 3) {}
};
HALFSTEP_REGISTER_SCHEDULER(Thirds, arg<int64_t>(integer("every", 2, "steps").at_least(1)));

// The sum of the absolute errors of all samples.
class TotalError : public Metric {
 public:
  explicit TotalError(double weight) : weight_(weight) {
    check<ValueError>(weight < 100, "TotalError", "weight must be below 100");
  }
  void reset() override { sum_ = 0; }
  void add(const Tensor& output, const Tensor& target) override { sum_ += abs(output - target).sum().item<double>(); }
  double value() const override { return weight_ * sum_; }
  bool more_is_better() const override { return false; }

 private:
  double weight_, sum_ = 0;
};
HALFSTEP_REGISTER_METRIC(TotalError, Targets::numbers, arg<double>(number("weight", 1.0, "factor")));

// Drops the last `count` inputs of a sample.
class DropLast : public Transform {
 public:
  explicit DropLast(int64_t count) : count_(count) {}
  Tensor operator()(const Tensor& x) const override { return x.narrow(1, 0, x.size(1) - count_); }

 private:
  int64_t count_;
};
HALFSTEP_REGISTER_TRANSFORM(DropLast, arg<int64_t>(integer("count", 1, "inputs").at_least(1)));

// y = 2 x, in one dimension after another.
class Doubles : public TensorDataset<> {
 public:
  explicit Doubles(int64_t samples) : Doubles(arange(0, double(3 * samples)).reshape({samples, 3}) / double(3 * samples), 0) {}

 private:
  Doubles(const Tensor& x, int) : TensorDataset(x, x * 2) {}
};
HALFSTEP_REGISTER_DATASET(Doubles, arg<int64_t>(integer("samples", 8, "in all").at_least(1)));

constexpr const char* kOwnData = R"({
  "model": {"type": "Linear", "out_features": "auto", "in_features": 2}, "loss": "MSELoss", "optimizer": "SGD", "device": "cpu",
  "metrics": ["TotalError", {"type": "TotalError", "name": "ten_times", "weight": 10}],
  "data": {"train": {"type": "Doubles", "transforms": ["DropLast", {"type": "Normalize", "mean": 0.5, "std": 0.5}]},
           "val": {"type": "Doubles", "samples": 5, "transforms": ["DropLast"]}, "loader": {"batch_size": 4, "num_workers": 2}},
  "checkpoint": {"monitor": "val/ten_times"}, "train": {"epochs": 2}})";

constexpr const char* kOwn = R"({
  "model": {"type": "Sequential", "layers": ["Scaled", {"type": "Linear", "out_features": "auto"}]},
  "loss": {"type": "Distance", "p": 3}, "optimizer": "Plain", "scheduler": "Thirds", "device": "cpu",
  "data": {"train": {"type": "Random", "input_shape": [6], "target_shape": [2], "num_batches": 4}, "loader": {"batch_size": 8}},
  "train": {"epochs": 1}})";

std::string error_of(const fs::path& file, std::vector<std::string> sets) {
  try {
    load_config(file, {.sets = std::move(sets)});
  } catch (const ConfigError& e) { return e.what(); }
  return "";
}

}  // namespace

TEST_CASE("a program's own layer, loss, optimizer and schedule train from JSON") {
  TempDir dir;
  const auto file = write(dir / "own.json", kOwn);
  const Config config = load_config(file);
  CHECK(config.json["model"]["layers"][0]["in_features"] == 6);
  CHECK(config.json["model"]["layers"][1]["out_features"] == 2);
  Session s = make_session(config);
  CHECK(s.model->named_parameters()[0].tensor.to_vector<double>() == std::vector<double>(6, 0.5));
  TrainStep step(*s.model, *s.loss, *s.optimizer, s.scaler, s.schedule.get(), step_options(config));
  const auto batch = s.train->next();
  const double before = step(batch->input, batch->target).loss.item<double>();
  double after = before;
  for (int i = 0; i < 8; ++i) after = step(batch->input, batch->target).loss.item<double>();
  CHECK(after < before);
  CHECK(s.optimizer->lr() < 0.1 / 3);
  CHECK(plan_step(config).calls.size() > 5);

  // PyTorch does not have the layer, and the file that would name it could not run.
  const std::string output = "output_dir=" + (dir / "run").string(), path = file.string();
  const std::vector<const char*> train = {"own", "train", path.c_str(), "--set", output.c_str(), "--quiet"};
  REQUIRE(run_program(int(train.size()), train.data()) == 0);
  const ExportOptions as_torch{.to = "torch", .out = dir / "own.py"};
  const std::string refusal = halfstep::testing::message_of<ExportError>([&] { export_model(dir / "run", as_torch); });
  CHECK(contains(refusal, "PyTorch has no layer \"Scaled\""));
  CHECK_FALSE(fs::exists(dir / "own.py"));
}

TEST_CASE("a program's own data set, transform and metric train from JSON, and are in what a run writes") {
  TempDir dir;
  const auto file = write(dir / "own.json", kOwnData);
  const Config config = load_config(file, {.sets = {"model.in_features=null"}});
  CHECK(config.facts->input == Shape{2});
  CHECK(config.json["model"]["in_features"] == 2);
  CHECK(config.checkpoint.mode == "min");
  CHECK(plan_step(config).layers.size() == 1);

  const std::string output = "output_dir=" + (dir / "run").string(), path = file.string();
  const std::vector<const char*> arguments = {"own", "train", path.c_str(), "--set", output.c_str(), "--quiet"};
  REQUIRE(run_program(int(arguments.size()), arguments.data()) == 0);
  std::vector<Json> evaluations;
  std::ifstream lines(dir / "run/metrics.jsonl");
  for (std::string line; std::getline(lines, line);)
    if (Json entry = Json::parse(line); entry.contains("val/loss")) evaluations.push_back(entry);
  REQUIRE(evaluations.size() == 2);
  for (const Json& e : evaluations) {
    CHECK(e["val/TotalError"] > 0);
    CHECK(e["val/ten_times"].get<double>() == doctest::Approx(10 * e["val/TotalError"].get<double>()));
    CHECK_FALSE(e.contains("val/accuracy"));
  }
  CHECK(fs::exists(dir / "run/best"));

  // A resumed run has them from its state; `eval` computes them anew, over the same data.
  Session resumed = make_session(load_config(file));
  const Counters counters = unpack(load_checkpoint(resolve_checkpoint(dir / "run")), resumed);
  REQUIRE(counters.val_metrics.size() == 2);
  CHECK(counters.val_metrics[1].name == "ten_times");
  CHECK(counters.val_metrics[1].value == evaluations[1]["val/ten_times"].get<double>());
  const Json loss = load_config(file).loss;
  const EvalResult r = evaluate(*resumed.model, *resumed.loss, loss, resumed.metrics, *resumed.val, resumed.device, resumed.region);
  CHECK(r.metrics[1].value == counters.val_metrics[1].value);
}

TEST_CASE("arguments of registered classes") {
  TempDir dir;
  const auto file = write(dir / "own.json", kOwn);
  const auto first = [&](const std::string& set) {
    return build_model(load_config(file, {.sets = {set}}).json["model"])->parameters()[0].to_vector<double>()[0];
  };
  CHECK(first("model.layers.0.by=7") == 7);
  CHECK(first("model.layers.0.mode=large") == 2);
  CHECK(first("model.layers.0={\"type\": \"Scaled\", \"list\": [1, 2]}") == 1.5);
}

TEST_CASE("faults of a program's own classes are errors of the config, with their place") {
  TempDir dir;
  const auto file = write(dir / "own.json", kOwn);
  CHECK(contains(error_of(file, {"model.layers.0.in_features=5"}),
                 "model.layers.0.in_features: must be 6 for an input of shape [6], got 5"));
  CHECK(contains(error_of(file, {"model.layers.0=HalfBatch"}),
                 "model.layers.0: must keep the batch as dimension 0, but made [3, 6] of [7, 6]"));
  CHECK(contains(error_of(file, {"model.layers.0={\"type\": \"Softmax\", \"dim\": 4}"}),
                 "model.layers.0: [softmax] dim must lie in"));
  CHECK(contains(error_of(file, {"loss=CrossEntropyLoss"}), "or \"Distance\""));
  CHECK(contains(error_of(file, {"model.layers.0.mod=large"}), "did you mean \"mode\"?"));
  const auto data = write(dir / "data.json", kOwnData);
  CHECK(contains(error_of(data, {"model.in_features=3"}), "model.in_features: must be 2 for an input of shape [2], got 3"));
  CHECK(contains(error_of(data, {"data.train.transforms.0=DropFirst"}),
                 "unknown transform \"DropFirst\"; did you mean \"DropLast\"?"));
  CHECK(contains(error_of(data, {R"(data.train.transforms.0={"type": "DropLast", "count": 4})"}),
                 "data.train: [data.train.transforms] [narrow]"));
  CHECK(contains(error_of(data, {R"(data.val.transforms.0={"type": "DropLast", "count": 4})"}),
                 "data.val: [data.val.transforms] [narrow]"));
  CHECK(contains(error_of(data, {"data.val.transforms=[]"}), "data.val: must have the shapes and classes of data.train"));
  CHECK(contains(error_of(data, {"metrics.0=TotalEror"}), "metrics.0: unknown metric \"TotalEror\"; did you mean \"TotalError\"?"));
  CHECK(contains(error_of(data, {R"(metrics.0={"type": "TotalError", "weight": 100})"}),
                 "metrics.0: [TotalError] weight must be below 100"));
  CHECK(contains(error_of(data, {"metrics.1.name=TotalError"}), "metrics.1: two values would be called \"TotalError\""));
  CHECK(contains(error_of(data, {"checkpoint.monitor=val/ten"}), "\"val/ten_times\" or \"train/loss\", got \"val/ten\""));
  CHECK(contains(
      error_of(data, {R"(data.train={"type": "Digits"})", R"(data.val={"type": "Digits"})", "loss=CrossEntropyLoss", "model=MLP"}),
      "metrics.0: TotalError needs numbers as targets, but data.train has classes"));
  CHECK_THROWS_WITH_AS(module_catalog().add(module_row<HalfBatch>("Linear", "")),
                       doctest::Contains("\"Linear\" is already in the catalogue"), ConfigError);
}

TEST_CASE("weights are not made, and random numbers not drawn, to learn a model's shapes") {
  TempDir dir;
  const auto file = write(dir / "own.json", kOwn);
  const auto state = default_generator().state();
  Allocator& memory = allocator(Device::cpu);
  memory.reset_peak();
  const size_t live = memory.stats().live;
  load_config(file, {.sets = {R"(model={"type": "MLP", "hidden": [40000, 40000]})"}});
  CHECK(default_generator().state().offset == state.offset);
  CHECK(memory.stats().peak < live + 4096);
}
