// SPDX-License-Identifier: Apache-2.0
// A run that is saved and loaded continues as one that never stopped, to the bit.
#include "amp/step/run_state.h"

#include <doctest/doctest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "halfstep.h"
#include "tests/comm/local_ranks.h"
#include "tests/io/files.h"

using namespace halfstep;
using halfstep::testing::TempDir;

namespace {

// A model with running statistics and Dropout, so that every state counts.
struct Run {
  Sequential model{std::make_shared<Linear>(4, 6), std::make_shared<BatchNorm1d>(6), std::make_shared<ReLU>(),
                   std::make_shared<Dropout>(0.3), std::make_shared<Linear>(6, 2)};
  AdamW optimizer{model.parameters(), {.lr = 0.05}};
  StepLR schedule{optimizer, 3, 0.5};
  GradScaler scaler{{.init_scale = 0x1p30, .growth_interval = 4}};  // overflows at first
  const MSELoss loss;

  RunParts parts() { return {model, &optimizer, &scaler, &schedule}; }
  void steps(int count) {
    const Tensor x = arange(32, {.dtype = DType::f32}).reshape({8, 4}) / 10, y = x.slice(1, 0, 2).sin();
    for (int i = 0; i < count; ++i) {
      optimizer.zero_grad();
      {
        const Autocast region(Device::cpu, DType::f16);
        scaler.backward(loss(model(x), y));
      }
      const StepOutcome outcome = scaler.step(optimizer);
      scaler.update();
      schedule.step(outcome.applied());
    }
  }
  std::vector<float> values() {
    std::vector<float> out;
    for (const NamedTensor& n : model.state_dict()) {
      for (float v : n.tensor.to_vector<float>()) out.push_back(v);
    }
    return out;
  }
};

// Takes this many batches of a loader, over the ends of epochs, with a step each.
void train(Run& r, DataLoader<>& loader, int64_t batches) {
  while (batches > 0) {
    const auto batch = loader.next();
    if (!batch) continue;
    r.optimizer.zero_grad();
    r.loss(r.model(batch->input), batch->target).backward();
    r.optimizer.step();
    r.schedule.step();
    --batches;
  }
}

}  // namespace

TEST_CASE("one call saves the four states of a run and another continues from them") {
  const TempDir dir;
  manual_seed(5);
  Run whole;
  whole.steps(9);
  save_run(dir / "run", 9, whole.parts(), {{"epoch", 2}});
  whole.steps(7);

  manual_seed(99);
  Run again;
  again.steps(2);
  const SavedRun last = load_run(dir / "run", again.parts());
  CHECK(last.step == 9);
  CHECK(*last.own == nlohmann::json{{"epoch", 2}});
  again.steps(7);
  CHECK(again.values() == whole.values());
  CHECK(again.scaler.get_scale() == whole.scaler.get_scale());
  CHECK(again.schedule.count() == whole.schedule.count());
  CHECK(again.optimizer.describe() == whole.optimizer.describe());
}

TEST_CASE("parts that a run has not, or that were not saved, keep their own") {
  const TempDir dir;
  Run r;
  r.steps(5);
  save_run(dir / "run", 5, {.model = r.model, .generator = nullptr});
  Run other;
  other.steps(3);
  const double scale = other.scaler.get_scale();
  const Generator::State before = default_generator().state();
  load_run(dir / "run", {.model = other.model, .scaler = &other.scaler, .schedule = &other.schedule});
  CHECK(other.values() == r.values());
  CHECK(other.scaler.get_scale() == scale);
  CHECK(default_generator().state() == before);
}

TEST_CASE("epochs that were interrupted end with the bits of those that were not, in mid-epoch and with other seeds, too") {
  const Tensor x = arange(64, {.dtype = DType::f32}).reshape({16, 4}) / 10, y = x.slice(1, 0, 2).sin();
  const auto make = [&](uint64_t seed) {
    return DataLoader(TensorDataset(x, y), {.batch_size = 6, .shuffle = true, .seed = seed});
  };
  for (const int64_t first : {12, 14, 1}) {
    const TempDir dir;
    manual_seed(5);
    Run whole;
    auto order = make(1);
    train(whole, order, 30);
    manual_seed(5);
    Run half, rest;
    auto before = make(1), after = make(2);
    manual_seed(5);
    Run again;  // the values of `whole`
    train(again, before, first);
    const auto parts = [](Run& r, LoaderBase& loader) {
      return RunParts{.model = r.model, .optimizer = &r.optimizer, .schedule = &r.schedule, .loader = &loader};
    };
    save_run(dir / "run", first, parts(again, before), {{"epochs", 2}, {"best", 0.5}, {"note", "half"}, {"done", false}});
    const SavedRun last = load_run(dir / "run", parts(rest, after));
    CHECK(last.own.integer("epochs") == 2);
    CHECK(last.own.number("best") == 0.5);
    CHECK(last.own.text("note") == "half");
    CHECK(!last.own.flag("done"));
    CHECK(!last.own.has("more"));
    CHECK_THROWS_WITH_AS(last.own.number("note"), "[JsonValue] \"note\" must be a number, got \"half\"", ValueError);
    train(rest, after, 30 - first);
    CHECK(rest.values() == whole.values());
  }
}

TEST_CASE("a loader without a seed, which is saved before its first batch or later, continues with the run") {
  const Tensor x = arange(64, {.dtype = DType::f32}).reshape({16, 4}) / 10, y = x.slice(1, 0, 2).sin();
  const auto make = [&] { return DataLoader(TensorDataset(x, y), {.batch_size = 6, .shuffle = true}); };
  const Generator::State before = default_generator().state();
  for (const GeneratorKind kind : {GeneratorKind::philox, GeneratorKind::mt19937}) {
    for (const int64_t first : {0, 2, 3, 4}) {
      const TempDir dir;
      manual_seed(5, kind);
      Run whole, rest;
      auto loader = make(), after = make();
      train(whole, loader, first);
      save_run(dir / "run", first,
               {.model = whole.model, .optimizer = &whole.optimizer, .schedule = &whole.schedule, .loader = &loader});
      train(whole, loader, 9);
      manual_seed(6, kind);
      train(rest, after, 2);
      load_run(dir / "run", {.model = rest.model, .optimizer = &rest.optimizer, .schedule = &rest.schedule, .loader = &after});
      train(rest, after, 9);
      CHECK(rest.values() == whole.values());
    }
  }
  default_generator().set_state(before);
}

TEST_CASE("a run that is saved while an average is in the weights is the one that trains") {
  const TempDir dir;
  Run r, other;
  WeightAverage ema(r.optimizer, {.decay = 0.5}), too(other.optimizer, {.decay = 0.5});
  r.steps(40);  // of which the first overflow
  const auto values = r.values();
  const auto average = ema.averages()[0].to_vector<float>();
  {
    const WeightAverage::Scope evaluating(ema);
    CHECK(r.values() != values);
    save_run(dir / "run", 6, r.parts());
    CHECK_THROWS_WITH_AS(load_run(dir / "run", r.parts()), doctest::Contains("end the WeightAverage::Scope first"), ValueError);
  }
  load_run(dir / "run", other.parts());
  CHECK(other.values() == values);
  Run without;  // an average
  const auto own = without.values();
  CHECK_THROWS_WITH_AS(load_run(dir / "run", without.parts()), doctest::Contains("it goes along with EMA (average)"), ValueError);
  CHECK(without.values() == own);
  CHECK(too.averages()[0].to_vector<float>() == average);
}

TEST_CASE("keep_last removes older checkpoints") {
  const TempDir dir;
  Run r;
  for (int step : {1, 2, 3}) save_run(dir / "run", step, r.parts(), {}, 2);
  CHECK(!std::filesystem::exists(dir / "run/step-00000001"));
  CHECK(load_run(dir / "run", r.parts()).step == 3);
  CHECK(load_run(dir / "run/step-00000002", r.parts()).step == 2);
}

TEST_CASE("a state that does not fit changes nothing") {
  const TempDir dir;
  Run r;
  r.steps(5);
  save_run(dir / "run", 1, r.parts());
  Sequential other(std::make_shared<Linear>(4, 5));
  const auto before = other.parameters()[0].to_vector<float>();
  CHECK_THROWS_WITH_AS(load_run(dir / "run", {other}), doctest::Contains("the state does not fit Sequential"), ValueError);
  CHECK(other.parameters()[0].to_vector<float>() == before);
  CheckpointContents contents = pack(r.parts());
  contents.meta["scaler"]["scale"] = "high";
  const auto values = r.values();
  CHECK_THROWS_WITH_AS(unpack(contents, r.parts()),
                       doctest::Contains("the state of a run must hold scaler.scale, a number, got \"high\""), CheckpointError);
  contents.meta["format"] = 99;
  CHECK_THROWS_WITH_AS(unpack(contents, r.parts()), doctest::Contains("which a newer halfstep wrote"), CheckpointError);
  CHECK(r.values() == values);
  CHECK_THROWS_AS(load_run(dir / "nowhere", r.parts()), CheckpointError);
}

TEST_CASE("run state: ranks that share the optimizer's states save together, and one that has not a group is refused") {
  const TempDir dir;
  std::atomic<int> wrong{0};
  manual_seed(5);
  std::vector<std::shared_ptr<Sequential>> models;
  for (int r = 0; r < 3; ++r)
    models.push_back(std::make_shared<Sequential>(std::make_shared<Linear>(4, 6), std::make_shared<Linear>(6, 2)));
  halfstep::testing::on_ranks(3, [&](ProcessGroup& group) {
    Module& mine = *models[size_t(group.rank())];
    const auto own = mine.parameters();
    for (const Tensor& p : own) {
      p.detach().fill_(0.5);
      p.set_grad(ones(p.shape()));
    }
    AdamW optimizer(own, {.lr = 0.1});
    optimizer.shard(group);
    optimizer.step();
    CHECK_THROWS_WITH_AS(pack({mine, &optimizer}), doctest::Contains("ranks share the states of AdamW("), ValueError);
    GradScaler scaler({.enabled = false});
    const MSELoss loss;
    CHECK_THROWS_WITH_AS(TrainStep(mine, loss, optimizer, scaler, nullptr), doctest::Contains("got no group"), ValueError);
    const RunParts parts{.model = mine, .optimizer = &optimizer, .group = &group};
    wrong += save_run(dir / "run", 1, parts) != dir / "run" / "step-00000001";
    wrong += !std::filesystem::exists(dir / "run" / "step-00000001" / "manifest.json");
    std::ofstream(dir / "file").put('x');
    CHECK_THROWS_AS(save_run(dir / "file", 1, parts), IoError);         // on every rank
    CHECK_THROWS(save_run(dir / "run", 2, parts, {{"name", "\xff"}}));  // not UTF-8, which rank 0 alone notices
  });
  CHECK(wrong == 0);
  Sequential alone{std::make_shared<Linear>(4, 6), std::make_shared<Linear>(6, 2)};
  AdamW optimizer(alone.parameters(), {.lr = 0.1});
  load_run(dir / "run", {alone, &optimizer});
  CHECK(optimizer.state_dict().at("0.exp_avg").shape() == Shape{6, 4});
  CHECK(optimizer.state_dict().at("3.step").item<double>() == 1);
}

TEST_CASE("run state: a parameter that is not the model's keeps its state beside one that is named as its position") {
  const TempDir dir;
  ParameterList list;
  for (const int64_t size : {2, 3}) list.push_back(zeros({size}).set_requires_grad());
  const std::vector<Tensor> own = list.parameters();
  const Tensor extra = zeros({3}).set_requires_grad();
  const std::vector<Tensor> both{own[1], extra};
  const auto optimizer = [&] { return std::make_unique<SGD>(both, SGDOptions{.lr = 0.1, .momentum = 0.9}); };
  const auto from = optimizer(), to = optimizer();
  own[1].set_grad(full({3}, 1.0)), extra.set_grad(full({3}, 5.0));
  from->step();
  save_run(dir / "run", 1, {list, from.get()});
  load_run(dir / "run", {list, to.get()});
  for (const auto& entry : from->state_dict()) {
    const auto& key = entry.first;
    const auto& t = entry.second;
    CAPTURE(key);
    REQUIRE(to->state_dict().contains(key));
    CHECK(to->state_dict().at(key).to_vector<double>() == t.to_vector<double>());
  }
}

TEST_CASE("ranks: a buffer that is the same on all of three stays so to the bit when their mean is taken") {
  const Tensor given = rand({1000}) * 3 - 1;
  halfstep::testing::on_ranks(3, [&](ProcessGroup& group) {
    struct Table : Module {
      ModuleBuffer values, low, flags;
      explicit Table(const Tensor& t) {
        values = register_buffer("values", t.clone());
        low = register_buffer("low", t.to(DType::bf16));
        flags = register_buffer("flags", t.gt(0.0));
      }
      Tensor forward(const Tensor& x) override { return x; }
    } table(given);
    average_buffers(table, group);
    CHECK(table.values.to_vector<float>() == given.to_vector<float>());
    CHECK(table.low.to_vector<float>() == given.to(DType::bf16).to_vector<float>());
    table.values.fill_(group.rank() == 0 ? 3.0 : 0.0);
    average_buffers(table, group);
    CHECK(table.values.to_vector<float>() == std::vector<float>(1000, 1.f));
    // By samples, where ranks have parts of several sizes, or none.
    const double samples[] = {4, 3, 0};
    table.values.copy_(given), table.low.copy_(given.to(DType::bf16));
    average_buffers(table, group, samples[group.rank()]);
    CHECK(table.values.to_vector<float>() == given.to_vector<float>());
    CHECK(table.low.to_vector<float>() == given.to(DType::bf16).to_vector<float>());
    const double values[] = {1, 8, std::nan("")};
    table.values.fill_(values[group.rank()]);
    average_buffers(table, group, samples[group.rank()]);
    CHECK(table.values.to_vector<float>() == std::vector<float>(1000, 4.f));
    table.values.fill_(double(group.rank()));
    average_buffers(table, group, 0);
    CHECK(table.values.to_vector<float>() == std::vector<float>(1000, 1.f));
    CHECK_THROWS_AS(average_buffers(table, group, -1), ValueError);
  });
}
