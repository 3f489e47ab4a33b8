// What programs add to the catalogues is as good as what is there.
#include <doctest/doctest.h>

#include "apps/catalog/infer.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/optimizers.h"
#include "apps/run/plan.h"
#include "apps/run/session.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

class Scaled : public Module {
 public:
  Scaled(int64_t in_features, std::optional<double> by, const std::string& mode, const std::vector<int64_t>& list)
      : weight_(full({in_features}, by.value_or(mode == "small" ? 0.5 : 2) * double(list.size() + 1))) {
    register_parameter("weight", weight_);
  }
  Tensor forward(const Tensor& x) override { return x * weight_; }
  std::string describe() const override { return "Scaled()"; }

 private:
  Tensor weight_;
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
  TrainStep step(*s.model, *s.loss, *s.optimizer, s.scaler, s.schedule.get(), step_options(config.json));
  const auto batch = s.train->next();
  const double before = step(batch->input, batch->target).loss.item<double>();
  double after = before;
  for (int i = 0; i < 8; ++i) after = step(batch->input, batch->target).loss.item<double>();
  CHECK(after < before);
  CHECK(s.optimizer->lr() < 0.1 / 3);
  CHECK(plan_step(config).calls.size() > 5);
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
  CHECK(contains(error_of(file, {"loss=CrossEntropyLoss"}), "use \"MSELoss\" or \"Distance\""));
  CHECK(contains(error_of(file, {"model.layers.0.mod=large"}), "did you mean \"mode\"?"));
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
