// SPDX-License-Identifier: Apache-2.0
// What refers to an optimizer: copies and moves do not compile, and an object whose optimizer is gone throws.
#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "optim/averages.h"
#include "optim/device_rates.h"
#include "optim/lbfgs.h"
#include "optim/schedule_parts.h"
#include "tests/optim/problem.h"

using namespace halfstep;

namespace {

template <class... T>
constexpr bool stay_in_place = ((!std::is_copy_constructible_v<T> && !std::is_move_constructible_v<T> &&
                                 !std::is_copy_assignable_v<T> && !std::is_move_assignable_v<T>)&&...);
// What holds them by value cannot be moved either: std::vector<Trainer> does not compile.
struct Trainer {
  AdamW optimizer;
  StepLR schedule{optimizer, 1, 0.1};
};
static_assert(stay_in_place<SGD, Adam, AdamW, NAdam, RAdam, Adamax, RMSprop, Adagrad, Adadelta, ASGD, Rprop, Lion, AdEMAMix, Muon,
                            Adafactor, LAMB, LBFGS, FusedOptimizer, Optimizer>);
static_assert(stay_in_place<StepLR, MultiStepLR, ExponentialLR, PolynomialLR, LinearLR, ConstantLR, LambdaLR, MultiplicativeLR,
                            NoamLR, InverseSqrtLR, WSDLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, OneCycleLR, CyclicLR,
                            ReduceLROnPlateau, ChainedScheduler, SequentialLR, WarmupLR, Epochs>);
static_assert(stay_in_place<WeightAverage, WeightAverage::Scope, Lookahead, DeviceRates, Trainer>);

AdamW made_elsewhere(const Tensor& p) { return AdamW({p}, {.lr = 0.5}); }
Trainer trainer_of(const Tensor& p) { return {.optimizer = made_elsewhere(p)}; }

void step(Optimizer& optimizer, const Tensor& p) {
  p.set_grad(ones(p.shape()));
  optimizer.step();
}

}  // namespace

TEST_CASE("factories return optimizers by value, and containers that do not move their elements hold them") {
  const Tensor p = problem::parameter();
  AdamW one = made_elsewhere(p);
  CHECK(one.lr() == 0.5);
  std::optional<AdamW> maybe;
  maybe.emplace(std::vector<Tensor>{p}, AdamWOptions{.lr = 0.25});
  CHECK(maybe->lr() == 0.25);
  std::deque<SGD> several;
  for (int i = 0; i < 40; ++i) several.emplace_back(std::vector<Tensor>{p}, 0.125);
  StepLR of_first(several[0], 1, 0.5);
  for (int i = 0; i < 40; ++i) several.emplace_back(std::vector<Tensor>{p}, 0.125);
  of_first.step();
  CHECK(several[0].lr() == 0.0625);
  CHECK(several[1].lr() == 0.125);
  Trainer trainer = trainer_of(p);
  trainer.schedule.step();
  CHECK(trainer.optimizer.lr() == doctest::Approx(0.05));
}

TEST_CASE("a schedule whose optimizer is gone throws, whatever is asked of it, and can be destroyed") {
  using Make = std::function<SchedulePtr(Optimizer&)>;
  const std::vector<Make> makers{
      [](Optimizer& o) { return std::make_shared<CosineAnnealingLR>(o, 9); },
      [](Optimizer& o) { return std::make_shared<OneCycleLR>(o, OneCycleOptions{.max_lr = 1, .total_steps = 9}); },
      [](Optimizer& o) { return std::make_shared<LambdaLR>(o, [](int64_t) { return 0.5; }); },
      [](Optimizer& o) { return std::make_shared<ReduceLROnPlateau>(o, PlateauOptions{.patience = 0}); },
      [](Optimizer& o) { return std::make_shared<Epochs>(o, std::make_shared<StepLR>(o, 2), 3); },
      [](Optimizer& o) {
        return std::make_shared<SequentialLR>(
            o, std::vector<SchedulePtr>{std::make_shared<ConstantLR>(o, 0.5, 2), std::make_shared<ExponentialLR>(o, 0.9)},
            std::vector<int64_t>{2});
      },
  };
  for (const Make& make : makers) {
    const Tensor p = problem::parameter();
    auto optimizer = std::make_unique<SGD>(std::vector<Tensor>{p}, SGDOptions{.lr = 0.5, .momentum = 0.9});
    const SchedulePtr schedule = make(*optimizer);
    const auto state = schedule->state_dict();
    schedule->step();
    const std::string name = schedule->describe();
    CAPTURE(name);
    optimizer = std::make_unique<SGD>(std::vector<Tensor>{p}, SGDOptions{.lr = 0.125, .momentum = 0.5});
    const auto throws = [&](const std::function<void()>& use) {
      try {
        use();
        return std::string("nothing");
      } catch (const ValueError& e) { return std::string(e.what()); }
    };
    const std::string says =
        "[schedule] its optimizer was destroyed\n"
        "help: keep it as long as what was made for it, or make this one anew for the next";
    CHECK(throws([&] { schedule->step(); }) == says);
    CHECK(throws([&] { schedule->step(false); }) == "nothing");  // a skipped step changes nothing
    CHECK(throws([&] { schedule->set_count(3); }) == says);
    CHECK(throws([&] { schedule->lr(); }) == says);
    CHECK(throws([&] { schedule->get_last_lr(); }) == says);
    CHECK(throws([&] { schedule->initial_lr(0); }) == says);
    CHECK(throws([&] { schedule->state_dict(); }) == says);
    CHECK(throws([&] { schedule->load_state_dict(state); }) == says);
    CHECK(throws([&] { WarmupLR(*optimizer, schedule, 2); }) == says);
    CHECK(optimizer->lr() == 0.125);
    CHECK_NOTHROW(make(*optimizer)->step());  // what the help says
  }
}

TEST_CASE("an average whose optimizer is gone throws, and an optimizer whose average is gone steps") {
  const Tensor p = problem::parameter();
  auto optimizer = std::make_unique<AdamW>(std::vector<Tensor>{p}, AdamWOptions{.lr = 0.5});
  auto average = std::make_unique<WeightAverage>(*optimizer, WeightAverageOptions{.decay = 0.5});
  auto slow = std::make_unique<Lookahead>(*optimizer);
  step(*optimizer, p);
  average.reset(), slow.reset();
  step(*optimizer, p);
  average = std::make_unique<WeightAverage>(*optimizer, WeightAverageOptions{.decay = 0.5});
  step(*optimizer, p);
  optimizer = std::make_unique<AdamW>(std::vector<Tensor>{p}, AdamWOptions{.lr = 0.5});
  const char* const says = "[average] its optimizer was destroyed";
  CHECK_THROWS_WITH_AS(average->update(), doctest::Contains(says), ValueError);
  CHECK_THROWS_WITH_AS((void)average->averages(), doctest::Contains(says), ValueError);
  CHECK_THROWS_WITH_AS(average->copy_to_parameters(), doctest::Contains(says), ValueError);
  CHECK_THROWS_WITH_AS((void)WeightAverage::Scope(*average), doctest::Contains(says), ValueError);
  average.reset();
  step(*optimizer, p);
  CHECK(!optimizer->state_dict().contains("0.average"));
}

TEST_CASE("a scope gives the parameters their own values back, also if the average or the optimizer ends before it") {
  for (const bool optimizer_first : {false, true}) {
    CAPTURE(optimizer_first);
    const Tensor p = problem::parameter();
    auto optimizer = std::make_unique<SGD>(std::vector<Tensor>{p}, 0.5);
    auto average = std::make_unique<WeightAverage>(*optimizer, WeightAverageOptions{.decay = 0.5});
    step(*optimizer, p), step(*optimizer, p);
    const std::string own = problem::bytes(p);
    {
      const WeightAverage::Scope averaged(*average);
      CHECK(problem::bytes(p) != own);
      if (optimizer_first) optimizer.reset();
      average.reset();
      CHECK(problem::bytes(p) == own);
      p.detach().fill_(7);
    }
    CHECK(p.to_vector<double>() == std::vector<double>(problem::kSize, 7));  // the end of the scope is no second end
  }
}

TEST_CASE("device rates end before or after what they refer to") {
  for (const int order : {0, 1, 2}) {
    CAPTURE(order);
    const Tensor p = problem::parameter();
    auto optimizer = std::make_unique<SGD>(std::vector<Tensor>{p}, 0.5);
    auto schedule = std::make_unique<StepLR>(*optimizer, 1, 0.5);
    auto rates = std::make_unique<DeviceRates>(*optimizer, schedule.get(), Device::cpu);
    rates->prepare();
    if (order == 1) schedule.reset();
    if (order == 2) optimizer.reset();
    if (order == 1) CHECK_THROWS_WITH_AS(rates->prepare(), doctest::Contains("[optimizer] its schedule was destroyed"), ValueError);
    if (order == 2) CHECK_THROWS_WITH_AS(rates->prepare(), doctest::Contains("its optimizer was destroyed"), ValueError);
    rates.reset();
    if (optimizer) step(*optimizer, p);
    if (schedule) CHECK(schedule->count() == 0);
  }
}

TEST_CASE("two sets of device rates of one optimizer take turns, and the end of the first leaves the second") {
  const Tensor host_p = problem::parameter(), p = problem::parameter();
  SGD host({host_p}, 0.5), optimizer({p}, 0.5);
  ExponentialLR host_schedule(host, 0.75), schedule(optimizer, 0.75);
  std::optional<DeviceRates> first, second;
  first.emplace(optimizer, &schedule, Device::cpu);
  second.emplace(optimizer, &schedule, Device::cpu);
  for (int t = 0; t < 12; ++t) {
    CAPTURE(t);
    if (t == 9) first.reset();
    DeviceRates& rates = t % 3 == 0 && first ? *first : *second;
    rates.prepare();
    step(optimizer, p), step(host, host_p);
    math::StepTail tail;
    rates.add_to(tail);
    backend_for(Device::cpu).end_step(nullptr, tail);
    rates.note_step();
    host_schedule.step();
    CHECK(problem::bytes(p) == problem::bytes(host_p));
  }
  CHECK(schedule.count() == 12);
  CHECK(optimizer.lr() == host.lr());
}
