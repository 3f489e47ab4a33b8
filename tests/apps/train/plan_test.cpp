// SPDX-License-Identifier: Apache-2.0
// The predictions of a plan, compared with real steps.
#include "apps/train/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "amp/step/train_step.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/optimizers.h"
#include "apps/session/meta_step.h"
#include "apps/session/ranks.h"
#include "apps/session/session.h"
#include "framework/backend/backend.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/comm/local_ranks.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;

namespace {

// One thread: of several, which of them hold their workspace at the same moment is a matter of chance.
struct OneThread {
  OneThread() { set_num_threads(1); }
  ~OneThread() { set_num_threads(before); }
  int before = num_threads();
};

struct Peaks {
  MemoryStats first_step, later_steps;
};

// The first two steps of a run on the cpu, kept and freed as the trainer does. Without the data set.
Peaks measured(const Config& config, ProcessGroup* group = nullptr) {
  Allocator& memory = allocator(Device::cpu);
  const size_t others = memory.stats().live;
  const auto by_tag = memory.stats().live_by_tag;
  Session s = make_session(config, group);
  const MemoryStats made = memory.stats();
  const size_t resident = made.live_by_tag[size_t(MemoryTag::data)] - by_tag[size_t(MemoryTag::data)];
  TrainStep step(*s.model, *s.loss, *s.optimizer, s.scaler, s.schedule.get(), step_options(config, group));
  s.model->train();
  std::vector<StepResult> pending;
  Peaks out;
  for (MemoryStats* peaks : {&out.first_step, &out.later_steps}) {
    memory.reset_peak();
    for (bool stepped = false; !stepped;) {
      const std::optional<Batch> batch = s.train->next();
      REQUIRE(batch.has_value());
      StepResult r = step(batch->input, batch->target, s.train->part());
      pending.push_back({.loss = r.loss, .outcome = r.outcome});
      stepped = r.stepped;
    }
    *peaks = memory.stats();
    peaks->peak -= others + resident;
    for (int i = 0; i < kMemoryTagCount; ++i) peaks->peak_by_tag[size_t(i)] -= by_tag[size_t(i)];
    peaks->peak_by_tag[size_t(MemoryTag::data)] -= resident;
  }
  return out;
}

void check_equal(const MemoryStats& predicted, const MemoryStats& real) {
  CHECK(predicted.peak == real.peak);
  for (int i = 0; i < kMemoryTagCount; ++i) {
    CAPTURE(name(MemoryTag(i)));
    CHECK(predicted.peak_by_tag[size_t(i)] == real.peak_by_tag[size_t(i)]);
  }
}

std::vector<std::string> small_enough(const std::string& name) {
  // Batches inside of the data set cost nothing more: this test is not about "resident" random data.
  if (name == "mlp_amp.json")
    return {"device=cpu",
            "data.loader.batch_size=32",
            "data.train.num_batches=2",
            "model.in_features=512",
            "model.hidden=[512,512]",
            "model.out_features=512",
            "data.train.input_shape=[512]",
            "data.train.target_shape=[512]"};
  // An epoch of two batches, and neither is a view of the data set.
  if (name == "wine_regression.json") return {"device=cpu", "data.loader.batch_size=100", "data.loader.shuffle=true"};
  // Two steps need few of the digits, and drawing all of them takes longer than everything else here. Schedules are of all.
  if (name.starts_with("digits_")) return {"device=cpu", "data.train.size=512", "data.val.size=32", "scheduler=null"};
  return {"device=cpu"};
}

// check(config) for each config of a folder of the repository in each precision, those that need HALFSTEP_DATA only where it is.
template <class Check>
void for_every_config(const std::string& folder, const Check& check) {
  const char* const data = std::getenv("HALFSTEP_DATA");
  for (const auto& file : std::filesystem::directory_iterator(halfstep_source_dir() + folder)) {
    if (file.path().extension() != ".json") continue;
    const std::string name = file.path().filename();
    CAPTURE(name);
    std::vector<std::string> sets = small_enough(name);
    sets.push_back("data.root=" + std::string(data ? data : "."));  // in place of ${env:HALFSTEP_DATA}
    for (const char* precision : {"amp=false", "amp={\"dtype\":\"bfloat16\"}", "amp={\"dtype\":\"float16\"}"}) {
      CAPTURE(precision);
      auto all = sets;
      all.push_back(precision);
      const Config config = load_config(file.path(), {.sets = all});
      const std::string type = config.json["data"]["train"]["type"];
      if (!data && type != "Random" && type != "Digits" && type != "DigitStrips") {
        MESSAGE("SKIPPED: " << name << " needs HALFSTEP_DATA");
        break;
      }
      check(config);
    }
  }
}

void check_peaks(const Config& config) {
  const StepPlan plan = plan_step(config);
  Peaks real = measured(config);
  if (config.json["data"]["train"]["type"] == "Random") {  // a batch is a view of the data set there
    const size_t batch = plan.first_step.peak_by_tag[size_t(MemoryTag::data)];
    for (MemoryStats* m : {&real.first_step, &real.later_steps}) m->peak += batch, m->peak_by_tag[size_t(MemoryTag::data)] += batch;
  }
  check_equal(plan.first_step, real.first_step);
  check_equal(plan.later_steps, real.later_steps);
}

}  // namespace

TEST_CASE("the predicted peak is the measured one, for every config") {
  const OneThread one;
  for_every_config("/configs", check_peaks);
}

TEST_CASE("every recipe is valid and can be planned") {
  int planned = 0;
  for_every_config("/configs/recipes", [&](const Config& config) {
    const StepPlan plan = plan_step(config);
    CHECK(plan.parameters > 0);
    CHECK(plan.later_steps.peak > 0);
    ++planned;
  });
  CHECK(planned >= (std::getenv("HALFSTEP_DATA") ? 27 : 3));
}

TEST_SUITE("slow") {
  TEST_CASE("the predicted peak is the measured one, for every recipe") {
    const OneThread one;
    for_every_config("/configs/recipes", check_peaks);
  }
}

namespace {

// Four blocks of six layers and one more, on random data.
std::filesystem::path blocks(const app::testing::TempDir& dir) {
  const std::string block = R"({"type": "Sequential", "layers": [{"type": "Linear", "out_features": 64}, "Tanh",
    {"type": "Linear", "out_features": 64}, "Sigmoid", {"type": "Linear", "out_features": 64}, "Tanh"]})";
  return app::testing::write(dir / "c.json", R"({"model": {"type": "Sequential", "layers": [)" + block + "," + block + "," + block +
                                                 "," + block + R"(, {"type": "Linear", "out_features": 10}]},
    "loss": "MSELoss", "optimizer": "AdamW", "device": "cpu", "train": {"epochs": 1}, "output_dir": "r",
    "data": {"train": {"type": "Random", "input_shape": [64], "target_shape": [10], "num_batches": 4},
             "loader": {"batch_size": 256, "shuffle": false}}})");
}

// With the batch that a real run has as a view of the data set.
void check_real_peaks(const Config& config, const StepPlan& plan) {
  Peaks real = measured(config);
  const size_t batch = plan.first_step.peak_by_tag[size_t(MemoryTag::data)];
  for (MemoryStats* m : {&real.first_step, &real.later_steps}) m->peak += batch, m->peak_by_tag[size_t(MemoryTag::data)] += batch;
  check_equal(plan.first_step, real.first_step);
  check_equal(plan.later_steps, real.later_steps);
}

}  // namespace

TEST_CASE("checkpoint_activations: the plan knows, and blocks take less") {
  const OneThread one;
  const app::testing::TempDir dir;
  const auto file = blocks(dir);
  const StepPlan all = plan_step(load_config(file));
  const Config config = load_config(file, {.sets = {R"(train.checkpoint_activations="^[0-3]$")"}});
  const StepPlan plan = plan_step(config);
  check_real_peaks(config, plan);
  const auto activations = [](const StepPlan& p) { return p.later_steps.peak_by_tag[size_t(MemoryTag::activations)]; };
  CHECK(activations(plan) * 5 < activations(all) * 3);  // the inputs of four blocks, and one block at a time
  CHECK(plan.later_steps.peak < all.later_steps.peak);
}

TEST_CASE("memory_budget: the plan is within it, its peaks are the real ones, and an impossible one names the smallest") {
  const OneThread one;
  const app::testing::TempDir dir;
  const auto file = blocks(dir);
  const StepPlan all = plan_step(load_config(file));
  CHECK_FALSE(all.recomputation.has_value());
  for (const char* more : {"train.accumulate_steps=1", "train.accumulate_steps=2"}) {
    CAPTURE(more);
    const size_t budget = plan_step(load_config(file, {.sets = {more}})).later_steps.peak * 85 / 100;
    const Config config = load_config(file, {.sets = {more, joined("train.memory_budget=", budget)}});
    const StepPlan plan = plan_step(config);
    REQUIRE(plan.recomputation.has_value());
    const RecomputationPlan& chosen = plan.recomputation->plan;
    CHECK(chosen.modules.size() > 0);
    CHECK(plan.later_steps.peak <= budget);
    CHECK(plan.first_step.peak <= budget);
    CHECK(chosen.after.peak == plan.later_steps.peak);
    CHECK(chosen.flops_after == plan.total_flops());
    CHECK(plan_json(plan)["recomputation"]["modules"] == chosen.modules);
    check_real_peaks(config, plan);
  }
  try {
    plan_step(load_config(file, {.sets = {"train.memory_budget=\"1 kB\""}}));
    FAIL("1 kB is enough");
  } catch (const MemoryError& e) {
    const std::string text = e.what(), before = "the smallest that recomputation reaches is ";
    CHECK(text.starts_with("[train.memory_budget] the peak of a training step must be at most 1000 bytes, " + before));
    const size_t least = std::stoul(text.substr(text.find(before) + before.size()));
    CHECK(plan_step(load_config(file, {.sets = {joined("train.memory_budget=", least)}})).later_steps.peak == least);
    CHECK_THROWS_AS(plan_step(load_config(file, {.sets = {joined("train.memory_budget=", least - 1)}})), MemoryError);
  }
  // With room for all, nothing is computed again; "auto" alone takes the memory of the machine.
  for (const char* roomy : {"train.memory_budget=\"100 GB\"", "train.checkpoint_activations=auto"}) {
    const StepPlan plan = plan_step(load_config(file, {.sets = {roomy}}));
    CHECK(plan.recomputation.value().plan.modules.empty());
    CHECK(plan.later_steps.peak == all.later_steps.peak);
    CHECK(plan.recomputation->budget > double(all.later_steps.peak));
  }
}

TEST_CASE("a plan of a step of a billion batches is refused at once") {
  const app::testing::TempDir dir;
  const Config config = load_config(blocks(dir), {.sets = {"train.accumulate_steps=1000000000"}});
  CHECK_THROWS_WITH_AS(plan_step(config), doctest::Contains("[plan] runs each batch of a step, and up to 4096 of them"),
                       ConfigError);
}

namespace {

// One rank of a job whose others compute the same and take no time: its memory is that of one process.
class Alone final : public ProcessGroup {
 public:
  using ProcessGroup::ProcessGroup;
  std::string describe() const override { return "a test's"; }
  void set_timeout(double) override {}
  Ticket all_reduce(const Tensors&, ReduceOp, Wire) override { return 0; }
  Ticket broadcast(const Tensors&, int) override { return 0; }
  Ticket reduce_scatter(const Tensor&, const Tensor&) override { return 0; }
  Ticket all_gather(const Tensor& from, const Tensor& to) override {
    for (int r = 0; r < size(); ++r)
      std::memcpy(static_cast<char*>(to.data_ptr()) + size_t(r) * from.nbytes(), from.data_ptr(), from.nbytes());
    return 0;
  }
  Ticket barrier() override { return 0; }
  void wait(Ticket) override {}
  void close() override {}
};

}  // namespace

TEST_CASE("plan: the predicted peak of a rank is the measured one") {
  const OneThread one;
  const app::testing::TempDir dir;
  const auto file = blocks(dir);
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{},
                                             {"amp={\"dtype\":\"bfloat16\"}"},
                                             {"amp={\"dtype\":\"float16\"}", "train.clip_grad_norm=1"},
                                             {"distributed.shard_optimizer=true", "distributed.bucket_mb=0.05"},
                                             {"distributed.shard_optimizer=true", "amp={\"dtype\":\"float16\"}"},
                                             {"train.accumulate_steps=2", "train.ema.enabled=true"}}) {
    std::vector<std::string> sets = more;
    sets.push_back("data.loader.shuffle=true");  // no batch is a view of the data set
    CAPTURE(more.empty() ? "" : more.front());
    const Config config = load_config(file, {.sets = sets});
    Alone group(0, 4);
    const StepPlan plan = plan_step(config, 0, 4);
    CHECK(plan.batch == 64);
    const Peaks real = measured(config, &group);
    check_equal(plan.first_step, real.first_step);
    check_equal(plan.later_steps, real.later_steps);
    const double gradients = double(plan.parameters) * 4;
    const bool shares = config.distributed.shard_optimizer;
    CHECK(plan.sent_bytes == doctest::Approx(gradients * (shares ? 3 : 2) * 3 / 4).epsilon(0.03));
    CHECK(plan_json(plan)["ranks"]["size"] == 4);
    // One bucket holds each gradient, and nothing holds it besides.
    const auto held = [](const MemoryStats& m) { return double(m.peak_by_tag[size_t(MemoryTag::gradients)]); };
    CHECK(held(plan.later_steps) < 1.4 * gradients);
  }
}

TEST_CASE("plan: ranks that normalise batches together, or record their steps over NCCL") {
  const OneThread one;
  const app::testing::TempDir dir;
  const auto file = blocks(dir);
  const std::string layers = R"(model.layers=[{"type": "Linear", "out_features": 64}, {"type": "BatchNorm1d", "num_features": 64},
                                              {"type": "Linear", "out_features": 10}])";
  const Config config = load_config(file, {.sets = {layers, "distributed.sync_batch_norm=true", "data.loader.shuffle=true"}});
  Alone group(0, 4);
  const StepPlan plan = plan_step(config, 0, 4);
  const Peaks real = measured(config, &group);
  check_equal(plan.first_step, real.first_step);
  check_equal(plan.later_steps, real.later_steps);
  CHECK(plan.sent_bytes > plan_step(load_config(file, {.sets = {layers}}), 0, 4).sent_bytes);

  const std::vector<std::string> recorded{"device=cuda", "performance.cuda_graph=true"};
  CHECK(plan_step(load_config(file, {.sets = recorded}), 0, 4).ranks == 4);
  std::vector<std::string> over_host = recorded;
  over_host.push_back("distributed.backend=host");
  CHECK_THROWS_WITH_AS(plan_step(load_config(file, {.sets = over_host}), 0, 4), doctest::Contains("exchange over the host"),
                       ValueError);
}

TEST_CASE("plan: the step of ranks that share the optimizer's states holds one part of them, to the byte") {
  const Config config = resolve_config(Json::parse(R"({
    "name": "shared", "output_dir": "r", "device": "cpu",
    "model": {"type": "Sequential",
              "layers": [{"type": "Linear", "out_features": 300}, "ReLU", {"type": "Linear", "out_features": 10}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "AdamW", "lr": 0.01},
    "data": {"train": {"type": "Random", "num_batches": 2, "input_shape": [70], "classes": 10}, "loader": {"batch_size": 16}},
    "train": {"epochs": 1}, "distributed": {"shard_optimizer": true}})"),
                                       "the config");
  const auto states = [](const MemoryStats& m) { return m.peak_by_tag[size_t(MemoryTag::optimizer)]; };
  std::vector<std::shared_ptr<Module>> models;
  for (int r = 0; r < 3; ++r) models.push_back(build_model(config.model));
  size_t planned = 0, whole = 0, real = 0;
  halfstep::testing::on_ranks(3, [&](ProcessGroup& group) {
    const auto barrier = [&] { group.wait(group.barrier()); };
    if (group.rank() == 0) {
      for (const bool shared : {false, true}) {
        MetaStep step(config, 16, {}, shared ? 3 : 1);
        step.run();
        allocator(Device::meta).reset_peak();
        step.run_as_second();
        (shared ? planned : whole) = states(step.peak());
      }
    }
    barrier();
    const size_t before = allocator(Device::cpu).stats().live_by_tag[size_t(MemoryTag::optimizer)];
    Module& model = *models[size_t(group.rank())];
    std::unique_ptr<Optimizer> optimizer = build_optimizer(config.optimizer, model);
    share_states(*optimizer, config, group);
    for (const Tensor& p : model.parameters()) p.set_grad(ones(p.shape()));
    barrier();
    optimizer->step();
    if (group.rank() != 0) optimizer.reset();
    barrier();
    if (group.rank() == 0) real = allocator(Device::cpu).stats().live_by_tag[size_t(MemoryTag::optimizer)] - before;
    barrier();
  });
  CHECK(planned == real);
  CHECK(whole > 2.9 * double(planned));
}

TEST_CASE("plan: steps that a GPU may record hold one more batch") {
  const auto batches = [](const char* changes) {
    Json config = Json::parse(R"({
      "name": "recorded", "output_dir": "r", "device": "cuda", "model": {"type": "Sequential",
        "layers": [{"type": "Linear", "out_features": 64}, "BatchNorm1d", "ReLU", {"type": "Linear", "out_features": 128}]},
      "loss": "MSELoss", "optimizer": "SGD",
      "data": {"train": {"type": "Random", "num_batches": 2, "input_shape": [128], "target_shape": [128]},
               "loader": {"batch_size": 64}},
      "train": {"epochs": 1}})");
    config.merge_patch(Json::parse(changes));
    const MemoryStats later = plan_step(resolve_config(config, "the config")).later_steps;
    return double(later.peak_by_tag[size_t(MemoryTag::data)]) / double(2 * 64 * 128 * sizeof(float));
  };
  CHECK(batches("{}") == 2);
  CHECK(batches(R"({"performance": {"cuda_graph": true}})") == 2);
  CHECK(batches(R"({"performance": {"cuda_graph": false}})") == 1);
  CHECK(batches(R"({"device": "cpu"})") == 1);
  CHECK(batches(R"({"train": {"accumulate_steps": 2}})") == 1);
  CHECK(batches(R"({"train": {"checkpoint_activations": ["0"]}})") == 1);
  const char* const counts = R"({"model": {"layers": [{"type": "Linear", "out_features": 128},
                                                     {"type": "BatchNorm1d", "momentum": "cumulative"}]}})";
  CHECK(batches(counts) == 1);
}
