// SPDX-License-Identifier: Apache-2.0
#include "amp/step/recomputation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "amp/step/train_step.h"
#include "framework/backend/backend.h"
#include "framework/backend/op_log.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/optimizers.h"

using namespace halfstep;

namespace {

// By trying all choices.
std::optional<double> least_cost(const IntervalCover& problem) {
  std::optional<double> best;
  for (uint32_t bits = 0; bits < 1u << problem.items.size(); ++bits) {
    double cost = 0;
    bool right = true;
    std::vector<const IntervalCover::Interval*> chosen;
    for (size_t i = 0; i < problem.items.size(); ++i)
      if (bits >> i & 1) chosen.push_back(&problem.items[i]), cost += problem.items[i].cost;
    for (const auto* a : chosen)
      for (const auto* b : chosen) right &= a == b || a->end <= b->begin || b->end <= a->begin;
    for (size_t p = 0; p < problem.needs.size(); ++p) {
      double saved = 0;
      for (const auto* a : chosen) saved += a->end <= p ? a->saves : 0;
      right &= saved >= problem.needs[p];
    }
    if (right && (!best || cost < *best)) best = cost;
  }
  return best;
}

std::shared_ptr<Sequential> made_block(int64_t width, int64_t inner) {
  return std::make_shared<Sequential>(std::make_shared<Linear>(width, inner), std::make_shared<Tanh>(),
                                      std::make_shared<Linear>(inner, width), std::make_shared<Sigmoid>());
}

// Blocks of different widths, so that some save more bytes for an operation than others. `here`: where its step runs.
struct BlockNet {
  DefaultDevice on;
  std::shared_ptr<Sequential> model = std::make_shared<Sequential>();
  MSELoss loss;
  std::unique_ptr<AdamW> opt;
  GradScaler scaler{{.enabled = false}};
  std::unique_ptr<TrainStep> train;
  Tensor x, y;

  explicit BlockNet(Device here, const std::vector<int64_t>& widths = {96, 640, 64, 320, 160}) : on(here) {
    manual_seed(3);
    for (const int64_t inner : widths) model->push_back(made_block(64, inner));
    opt = std::make_unique<AdamW>(model->parameters(), AdamWOptions{.lr = 0.01});
    train = std::make_unique<TrainStep>(*model, loss, *opt, scaler, nullptr, TrainStepOptions{.device = here});
    x = here.is_meta() ? empty({256, 64}) : randn({256, 64});
    y = here.is_meta() ? empty({256, 64}) : randn({256, 64});
  }
  StepResult step() { return (*train)(x, y); }
};

struct StepPeak {
  size_t bytes;
  double flops;
};
// Of a second step of a net of its own. On the device of the net the peak is what its allocator counts.
StepPeak peak_with(const std::vector<std::string>& names, Device here = Device::meta) {
  Allocator& memory = allocator(here);
  const size_t others = memory.stats().live;
  BlockNet net(here);
  recompute_modules(*net.model, names);
  net.step();
  memory.reset_peak();
  const OpLogScope log(here);
  net.step();
  double flops = 0;
  for (const LoggedCall& call : log.calls()) flops += call.flops();
  return {memory.stats().peak - others, flops};
}

RecomputationPlan plan_for(size_t budget, bool must_fit = true) {
  const MemoryStats others = allocator(Device::meta).stats();
  BlockNet net(Device::meta);
  return plan_recomputation(*net.model, [&] { net.step(); }, budget, {.must_fit = must_fit, .others = others});
}

}  // namespace

TEST_CASE("cheapest: the least cost of all choices, or none") {
  std::mt19937 random(5);
  const auto draw = [&](int most) { return int(random() % unsigned(most + 1)); };
  int possible = 0;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    IntervalCover problem;
    const int places = 2 + draw(8);
    problem.needs.assign(size_t(places), 0);
    for (int i = 0; i < 9; ++i) {
      const int begin = draw(places - 2), end = begin + 1 + draw(std::min(3, places - 2 - begin));
      problem.items.push_back({size_t(begin), size_t(end), double(1 + draw(20)), double(1 + draw(20))});
    }
    for (double& need : problem.needs) need = draw(3) == 0 ? draw(25) : 0;
    problem.needs[0] = 0;
    const std::optional<double> least = least_cost(problem);
    const auto chosen = cheapest(problem);
    REQUIRE(chosen.has_value() == least.has_value());
    if (!least) continue;
    ++possible;
    double cost = 0;
    for (const size_t i : *chosen) cost += problem.items[i].cost;
    CHECK(cost == *least);
    const auto few = cheapest(problem, 3);  // with pairs left out it still saves enough
    if (few) {
      IntervalCover kept = problem;
      kept.items.clear();
      for (const size_t i : *few) kept.items.push_back(problem.items[i]);
      CHECK(least_cost(kept).has_value());
    }
  }
  CHECK(possible > 100);
  CHECK_FALSE(cheapest({.items = {}, .needs = {1}}).has_value());
  CHECK(cheapest({.items = {}, .needs = {0, 0}})->empty());
}

TEST_CASE("plan_recomputation: within the budget, with no more operations than any choice of blocks") {
  const int threads = num_threads();
  set_num_threads(1);  // of several, which of them hold their workspace at the same moment is a matter of chance
  const StepPeak plain = peak_with({});
  std::vector<std::pair<StepPeak, std::vector<std::string>>> all;
  for (uint32_t bits = 0; bits < 32; ++bits) {
    std::vector<std::string> names;
    for (uint32_t i = 0; i < 5; ++i)
      if (bits >> i & 1) names.push_back(std::to_string(i));
    all.emplace_back(peak_with(names), names);
  }
  const size_t least = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
                         return a.first.bytes < b.first.bytes;
                       })->first.bytes;
  REQUIRE(least < plain.bytes);
  for (const double share : {0.1, 0.35, 0.6, 0.8}) {
    CAPTURE(share);
    const size_t budget = least + size_t((1 - share) * double(plain.bytes - least));
    const RecomputationPlan plan = plan_for(budget);
    CHECK(plan.before.peak == plain.bytes);
    CHECK(plan.after.peak <= budget);
    CHECK(plan.modules.size() > 0);
    double fewest = std::numeric_limits<double>::infinity();
    for (const auto& choice : all)
      if (choice.first.bytes <= budget) fewest = std::min(fewest, choice.first.flops);
    CHECK(plan.flops_after <= fewest);
    CHECK(plan.flops_after > plan.flops_before);
    const StepPeak again = peak_with(plan.modules);
    CHECK(again.bytes == plan.after.peak);
    CHECK(again.flops == plan.flops_after);
    CHECK(peak_with(plan.modules, Device::cpu).bytes == plan.after.peak);
  }
  set_num_threads(threads);
}

TEST_CASE("plan_recomputation: nothing where the step fits, and an error with the smallest peak where it cannot") {
  const size_t plain = peak_with({}).bytes;
  const RecomputationPlan none = plan_for(plain);
  CHECK(none.modules.empty());
  CHECK(none.after.peak == plain);
  CHECK(none.repeated() == 0);

  const RecomputationPlan least = plan_for(1, false);
  CHECK(least.after.peak < plain);
  CHECK(least.repeated() > 0);
  CHECK(plan_for(least.after.peak).after.peak == least.after.peak);
  CHECK_THROWS_WITH_AS(plan_for(least.after.peak - 1),
                       doctest::Contains(joined("the peak of a training step must be at most ", least.after.peak - 1,
                                                " bytes, the smallest that recomputation reaches is ", least.after.peak, ": ")
                                             .c_str()),
                       MemoryError);
  CHECK_THROWS_WITH_AS(plan_for(1000), doctest::Contains("most is kept for backward by "), MemoryError);
  CHECK_THROWS_WITH_AS(plan_for(1000), doctest::Contains("optimizer "), MemoryError);
}

TEST_CASE("plan_recomputation: the same losses and weights, to the bit, and a model left as it was") {
  const size_t least = plan_for(1, false).after.peak;
  const RecomputationPlan plan = plan_for(least);
  REQUIRE(plan.modules.size() > 0);
  const auto values = [](const std::vector<std::string>& names) {
    BlockNet net(Device::cpu);
    recompute_modules(*net.model, names);
    std::vector<float> out;
    for (int i = 0; i < 4; ++i) out.push_back(net.step().loss.item<float>());
    for (const Tensor& p : net.model->parameters())
      for (const float v : p.to_vector<float>()) out.push_back(v);
    return out;
  };
  CHECK(values(plan.modules) == values({}));

  const MemoryStats others = allocator(Device::meta).stats();
  BlockNet net(Device::meta);
  const std::function<void()> step = [&] { net.step(); };
  CHECK(plan_recomputation(*net.model, step, least, {.others = others}).modules == plan.modules);
  CHECK_FALSE(net.model->any_recomputes());
  CHECK_THROWS_AS(plan_recomputation(*net.model, step, 1), MemoryError);
  CHECK_FALSE(net.model->any_recomputes());
}

TEST_CASE("plan_recomputation: not modules with hooks or a state that continues, nor within those that recompute already") {
  const DefaultDevice on(Device::meta);
  const auto recurrent = std::make_shared<LSTM>(64, 256, LSTMOptions{.batch_first = true, .stateful = true});
  const auto hooked = made_block(64, 640), kept = made_block(64, 640), free = made_block(64, 640);
  hooked->register_forward_hook([](Module&, const Tensors&, const Tensors&) {});
  (*hooked)[1]->register_forward_hook([](Module&, const Tensors&, const Tensors&) {});
  kept->recompute_in_backward(true);
  Sequential net(hooked, kept, free);
  MSELoss loss;
  SGD opt(net.parameters(), {.lr = 0.1});
  GradScaler scaler({.enabled = false});
  TrainStep train(net, loss, opt, scaler, nullptr, {.device = Device::meta});
  const Tensor x = empty({512, 64});
  const RecomputationPlan plan = plan_recomputation(net, [&] { train(x, x); }, 1, {.must_fit = false});
  for (const std::string& name : plan.modules) CHECK(name.starts_with("2"));
  CHECK(kept->recomputes_in_backward());
  CHECK_FALSE(free->any_recomputes());

  Sequential states(recurrent, std::make_shared<Linear>(256, 64));
  SGD other(states.parameters(), {.lr = 0.1});
  TrainStep over(states, loss, other, scaler, nullptr, {.device = Device::meta});
  const Tensor sequence = empty({16, 32, 64});
  const RecomputationPlan none = plan_recomputation(states, [&] { over(sequence, sequence); }, 1, {.must_fit = false});
  for (const std::string& name : none.modules) CHECK_FALSE(name.starts_with("0"));
}

TEST_CASE("recompute_modules: names that the model has") {
  Sequential net(made_block(4, 8), made_block(4, 8));
  CHECK_THROWS_WITH_AS(recompute_modules(net, {"0", "1.7"}), doctest::Contains("\"1.7\" is no module of the model"), ValueError);
  recompute_modules(net, {"1.2"});
  CHECK(net[1]->any_recomputes());
  CHECK_FALSE(net[1]->recomputes_in_backward());
}

TEST_CASE("Sequential: only the layers that recompute leave the calls that several layers share") {
  const auto ops = [](bool recompute) {
    const DefaultDevice on(Device::meta);
    Sequential net(std::make_shared<Linear>(8, 8), std::make_shared<ReLU>(), std::make_shared<Linear>(8, 8),
                   std::make_shared<ReLU>(), made_block(8, 16));
    if (recompute) net[4]->recompute_in_backward(true);
    const OpLogScope log(Device::meta);
    net(empty({2, 8}));
    std::vector<std::string> out;
    for (const LoggedCall& call : log.calls()) out.push_back(call.op);
    return out;
  };
  CHECK(ops(true) == ops(false));
  for (const std::string& op : ops(true)) CHECK(op != "relu");
}
