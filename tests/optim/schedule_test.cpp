// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "framework/ops/ops.h"
#include "optim/optimizers.h"
#include "optim/schedule_parts.h"
#include "tests/optim/goldens.h"

using namespace halfstep;

namespace {
SGD optimizer(double lr = 0.3) { return SGD({ones({1}, {.requires_grad = true})}, {.lr = lr}); }
}  // namespace

TEST_CASE("schedules give PyTorch's rates and momenta, step by step and from any count") {
  struct Case {
    std::string name;
    std::function<SchedulePtr(Optimizer&)> make;
    double lr = 0.3;
  };
  using O = Optimizer;
  const std::vector<Case> cases{
      {"step", [](O& o) { return std::make_shared<StepLR>(o, 3, 0.5); }},
      {"multi_step",
       [](O& o) {
         return std::make_shared<MultiStepLR>(o, std::vector<int64_t>{4, 9, 9, 20}, 0.5);
       }},
      {"exponential", [](O& o) { return std::make_shared<ExponentialLR>(o, 0.9); }},
      {"polynomial", [](O& o) { return std::make_shared<PolynomialLR>(o, 15, 2); }},
      {"linear", [](O& o) { return std::make_shared<LinearLR>(o, 0.25, 0.75, 7); }},
      {"constant", [](O& o) { return std::make_shared<ConstantLR>(o, 0.2, 6); }},
      {"lambda", [](O& o) { return std::make_shared<LambdaLR>(o, [](int64_t t) { return 1 / double(1 + t * t); }); }},
      {"cosine", [](O& o) { return std::make_shared<CosineAnnealingLR>(o, 40, 0.01); }},
      {"restarts", [](O& o) { return std::make_shared<CosineAnnealingWarmRestarts>(o, 6, 1, 0.02); }},
      {"restarts_longer", [](O& o) { return std::make_shared<CosineAnnealingWarmRestarts>(o, 3, 2); }},
      {"one_cycle", [](O& o) { return std::make_shared<OneCycleLR>(o, OneCycleOptions{.max_lr = 0.6, .total_steps = 42}); }},
      {"one_cycle_three",
       [](O& o) {
         return std::make_shared<OneCycleLR>(o, OneCycleOptions{.total_steps = 42,
                                                                .pct_start = 0.25,
                                                                .anneal_strategy = "linear",
                                                                .base_momentum = 0.7,
                                                                .max_momentum = 0.9,
                                                                .div_factor = 10,
                                                                .final_div_factor = 100,
                                                                .three_phase = true});
       },
       0.6},
      {"cyclic",
       [](O& o) {
         return std::make_shared<CyclicLR>(o, CyclicOptions{.base_lr = 0.1, .max_lr = 0.5, .step_size_up = 5, .step_size_down = 9});
       }},
      {"cyclic_halving",
       [](O& o) {
         return std::make_shared<CyclicLR>(
             o, CyclicOptions{.base_lr = 0.1, .max_lr = 0.5, .step_size_up = 6, .mode = "triangular2", .base_momentum = 0.7});
       }},
      {"cyclic_range",
       [](O& o) {
         return std::make_shared<CyclicLR>(
             o, CyclicOptions{
                    .base_lr = 0.1, .max_lr = 0.5, .step_size_up = 6, .mode = "exp_range", .gamma = 0.95, .cycle_momentum = false});
       }},
      {"chained",
       [](O& o) {
         return std::make_shared<ChainedScheduler>(
             o, std::vector<SchedulePtr>{std::make_shared<ConstantLR>(o, 0.1, 5), std::make_shared<ExponentialLR>(o, 0.9)});
       }},
      {"sequential",
       [](O& o) {
         return std::make_shared<SequentialLR>(
             o, std::vector<SchedulePtr>{std::make_shared<LinearLR>(o, 0.1, 1, 8), std::make_shared<ExponentialLR>(o, 0.9)},
             std::vector<int64_t>{10});
       }},
      {"plateau",
       [](O& o) {
         return std::make_shared<ReduceLROnPlateau>(o, PlateauOptions{.factor = 0.5, .patience = 2, .cooldown = 1, .min_lr = 0.02});
       }},
      {"plateau_max",
       [](O& o) {
         return std::make_shared<ReduceLROnPlateau>(
             o, PlateauOptions{.mode = "max", .factor = 0.3, .patience = 1, .threshold = 0.05, .threshold_mode = "abs"});
       }},
  };
  REQUIRE(cases.size() == goldens::count("rates"));
  for (size_t k = 0; k < cases.size(); ++k) {
    CAPTURE(cases[k].name);
    const std::vector<double> want = goldens::values("rates", cases[k].name);
    const Tensor p = ones({1}, {.requires_grad = true}), q = ones({1}, {.requires_grad = true});
    SGD o({p}, {.lr = cases[k].lr, .momentum = 0.9}), again({q}, {.lr = cases[k].lr, .momentum = 0.9});
    const SchedulePtr schedule = cases[k].make(o);
    for (size_t i = 0; i <= 40; ++i) {
      CAPTURE(i);
      CHECK(std::abs(o.lr() - want[2 * i]) < 1e-14);
      CHECK(std::abs(o.momentum() - want[2 * i + 1]) < 1e-14);
      if (i % 10 == 7) {  // taken up again from what is kept
        const SchedulePtr resumed = cases[k].make(again);
        resumed->load_state_dict(schedule->state_dict());
        CHECK(again.lr() == o.lr());
        CHECK(again.momentum() == o.momentum());
        CHECK(resumed->state_dict() == schedule->state_dict());
      }
      schedule->step();
      schedule->observe(2 + std::cos(0.4 * double(i)) / (1 + 0.1 * double(i)));
    }
  }
}

TEST_CASE("schedules that PyTorch lacks follow their formulas") {
  SGD a = optimizer(2), b = optimizer(0.4), c = optimizer(0.5), d = optimizer(0.3), e = optimizer(0.3), f = optimizer(0.3);
  const NoamLR noam(a, 64, 10);
  const InverseSqrtLR inverse(b, 4);
  const WSDLR linear(c, {.warmup_steps = 5, .stable_steps = 10, .decay_steps = 4, .min_factor = 0.2});
  const WSDLR root(c, {.stable_steps = 3, .decay_steps = 16, .decay = "1-sqrt"});
  const WSDLR half(c, {.decay_steps = 8, .decay = "cosine"});
  const WarmupLR warm(d, std::make_shared<ExponentialLR>(d, 0.5), 4);
  const Epochs epochs(e, std::make_shared<ExponentialLR>(e, 0.5), 10);
  for (int64_t i = 0; i < 30; ++i) {
    CAPTURE(i);
    const double t = double(i + 1);
    CHECK(noam.rate(2, i) == doctest::Approx(2 / 8.0 * std::min(std::pow(t, -0.5), t * std::pow(10.0, -1.5))));
    CHECK(inverse.rate(0.4, i) == doctest::Approx(i < 3 ? 0.4 * t / 4 : 0.4 * 2 / std::sqrt(t)));
    const double fall = std::min(1.0, double(i - 15) / 4);
    CHECK(linear.rate(0.5, i) == doctest::Approx(i < 5 ? 0.5 * t / 5 : i < 15 ? 0.5 : 0.5 * (1 - 0.8 * fall)));
    CHECK(root.rate(1, i) == doctest::Approx(i < 3 ? 1 : 1 - std::sqrt(std::min(1.0, double(i - 3) / 16))));
    CHECK(half.rate(1, i) == doctest::Approx(i >= 8 ? 0 : (1 + std::cos(std::numbers::pi * double(i) / 8)) / 2));
    CHECK(warm.rate(0.3, i) == doctest::Approx(i < 4 ? 0.3 * t / 4 : 0.3 * std::pow(0.5, double(i - 4))));
    CHECK(epochs.rate(0.3, i) == doctest::Approx(0.3 * std::pow(0.5, double(i / 10))));
  }
}

TEST_CASE("schedules refuse what has no meaning") {
  SGD o = optimizer();
  const Tensor q = ones({1}, {.requires_grad = true});
  Rprop without({q});
  CHECK_THROWS_WITH_AS(
      OneCycleLR(without, {.total_steps = 5}),
      "[OneCycleLR] cycle_momentum needs an optimizer with a momentum or betas, got Rprop(lr=0.01, etas=(0.5, 1.2), "
      "step_sizes=(1e-06, 50))\nhelp: set cycle_momentum to false",
      ValueError);
  CHECK_THROWS_WITH_AS(OneCycleLR(o, {}), "[OneCycleLR] needs total_steps, or epochs and steps_per_epoch", ValueError);
  CHECK_THROWS_WITH_AS(CyclicLR(o, {.base_lr = 1, .max_lr = 0.5}), "[CyclicLR] max_lr must be >= 1, got 0.5", ValueError);
  CHECK_THROWS_WITH_AS(MultiStepLR(o, {-1}), "[MultiStepLR] milestones must be >= 0, got -1", ValueError);
  CHECK_THROWS_WITH_AS(WSDLR(o, {.decay = "slow"}), "[WSDLR] decay must be \"linear\", \"cosine\" or \"1-sqrt\", got \"slow\"",
                       ValueError);
  CHECK_THROWS_WITH_AS(SequentialLR(o, {std::make_shared<StepLR>(o, 1)}, {3}),
                       "[SequentialLR] needs one milestone less than schedules, got 1 for 1", ValueError);
  CHECK_THROWS_WITH_AS(ReduceLROnPlateau(o, {.mode = "least"}),
                       "[ReduceLROnPlateau] mode must be \"min\" or \"max\", got \"least\"", ValueError);
  ReduceLROnPlateau plateau(o);
  CHECK_THROWS_WITH_AS(plateau.load_state_dict({{"count", 1}, {"bad", -1}}),
                       "[ReduceLROnPlateau] bad of a state must be a count, got -1", ValueError);
}

TEST_CASE("warmup rises linearly to the initial rate, then the cosine starts") {
  SGD a = optimizer(1);
  CosineAnnealingLR s(a, 12, 0, 4);
  for (int i = 0; i < 12; ++i) {
    CAPTURE(i);
    const double want = i < 4 ? (i + 1) / 4.0 : (1 + std::cos(std::numbers::pi * (i - 4) / 8)) / 2;
    CHECK(std::abs(a.lr() - want) < 1e-15);
    CHECK(std::abs(s.rate(1, i) - want) < 1e-15);
    s.step();
  }
}

TEST_CASE("a skipped step does not move a schedule; set_count resumes it") {
  SGD a = optimizer(), b = optimizer();
  CosineAnnealingLR s(a, 10, 0.01), resumed(b, 10, 0.01);
  s.step();
  s.step(false);
  s.step(false);
  CHECK(s.count() == 1);
  CHECK(std::abs(a.lr() - (0.01 + 0.29 * (1 + std::cos(std::numbers::pi / 10)) / 2)) < 1e-15);
  s.step(true);
  resumed.set_count(2);
  CHECK(b.lr() == a.lr());
}

TEST_CASE("eta_min is absolute for every group") {
  const Tensor p = ones({1}, {.requires_grad = true}), q = ones({1}, {.requires_grad = true});
  SGD opt(std::vector<ParamGroup>{{{p}, {}, {}}, {{q}, 0.02, {}}}, {.lr = 0.3});
  CosineAnnealingLR s(opt, 10, 0.01);
  s.set_count(10);
  CHECK(std::abs(opt.lr(0) - 0.01) < 1e-15);
  CHECK(std::abs(opt.lr(1) - 0.01) < 1e-15);
}

TEST_CASE("schedules check their arguments and describe themselves") {
  SGD a = optimizer();
  CHECK_THROWS_WITH_AS(StepLR(a, 0), "[StepLR] step_size must be >= 1, got 0", ValueError);
  CHECK_THROWS_WITH_AS(CosineAnnealingLR(a, 0), "[CosineAnnealingLR] T_max must be >= 1, got 0", ValueError);
  CHECK_THROWS_WITH_AS(CosineAnnealingLR(a, 4, 0, 4), "[CosineAnnealingLR] warmup_steps must be in [0, T_max), got 4 with T_max 4",
                       ValueError);
  CHECK(StepLR(a, 3, 0.5).describe() == "StepLR(step_size=3, gamma=0.5)");
  CHECK(CosineAnnealingLR(a, 10, 0.01, 2).describe() == "CosineAnnealingLR(T_max=10, eta_min=0.01, warmup_steps=2)");
}

namespace {
template <class S, class... Args>
concept CanStep = requires(S& schedule, Args... args) {
  schedule.step(args...);
};
template <class S, class Arg>
concept CanObserve = requires(S& schedule, Arg arg) {
  schedule.observe(arg);
};
static_assert(CanStep<StepLR> && CanStep<StepLR, bool>);
static_assert(!CanStep<StepLR, double> && !CanStep<StepLR, int> && !CanStep<StepLR, Tensor>);
static_assert(!CanStep<Schedule, double> && !CanStep<Schedule, StepLR*>);
static_assert(CanStep<ReduceLROnPlateau, double> && CanStep<ReduceLROnPlateau, float> && CanStep<ReduceLROnPlateau, int>);
static_assert(CanStep<ReduceLROnPlateau, Tensor>);
static_assert(!CanStep<ReduceLROnPlateau> && !CanStep<ReduceLROnPlateau, bool> && !CanStep<ReduceLROnPlateau, void*>);
static_assert(CanObserve<ReduceLROnPlateau, double> && CanObserve<Schedule, float> && CanObserve<ChainedScheduler, int>);
static_assert(!CanObserve<ReduceLROnPlateau, bool> && !CanObserve<Schedule, bool> && !CanObserve<ChainedScheduler, bool>);
template <class... Args>
concept SetsRate = requires(Optimizer& optimizer, Args... args) {
  optimizer.set_lr(args...);
};
static_assert(SetsRate<double> && SetsRate<double, int> && SetsRate<int, size_t> && !SetsRate<int, double>);

// The rate after each metric.
std::vector<double> rates_after(const PlateauOptions& options, const std::vector<double>& metrics) {
  SGD o = optimizer(1);
  ReduceLROnPlateau schedule(o, options);
  std::vector<double> out;
  for (const double metric : metrics) {
    schedule.step(metric);
    out.push_back(o.lr());
  }
  return out;
}
}  // namespace

TEST_CASE("ReduceLROnPlateau steps with a metric, a number or a tensor") {
  using Rates = std::vector<double>;
  CHECK(rates_after({.factor = 0.5, .patience = 0}, {1, 1, 0.5, 0.5}) == Rates{1, 0.5, 0.5, 0.25});
  SGD o = optimizer(1);
  ReduceLROnPlateau schedule(o, {.factor = 0.5, .patience = 0});
  for (int i = 0; i < 3; ++i) schedule.step(full({}, 2.0));
  CHECK(o.lr() == 0.25);
  CHECK_THROWS_AS(schedule.step(full({2}, 2.0)), ShapeError);
}

TEST_CASE("ReduceLROnPlateau compares as PyTorch does, also what is negative or infinite") {
  using Rates = std::vector<double>;
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto rates = [&](const char* mode, const char* threshold_mode, double threshold, const std::vector<double>& metrics) {
    return rates_after({.mode = mode, .factor = 0.5, .patience = 0, .threshold = threshold, .threshold_mode = threshold_mode},
                       metrics);
  };
  // best (1 - threshold) of a negative best is above it.
  CHECK(rates("min", "rel", 0.1, {-1, -0.95, -0.94}) == Rates{1, 1, 1});
  CHECK(rates("min", "rel", 0.1, {-1, -0.85}) == Rates{1, 0.5});
  CHECK(rates("max", "rel", 0.1, {-1, -1.05, -1.2}) == Rates{1, 1, 0.5});
  CHECK(rates("min", "abs", 0.1, {-1, -1.05, -1.2}) == Rates{1, 0.5, 0.5});
  CHECK(rates("max", "abs", 0.1, {-1, -0.95, -0.8}) == Rates{1, 0.5, 0.5});
  // Nothing is better than an infinite best, and an infinite metric is not better than no metric.
  CHECK(rates("min", "rel", 0.1, {-inf, 1, 0, -1}) == Rates{1, 0.5, 0.25, 0.125});
  CHECK(rates("max", "abs", 0.1, {inf, 1, inf, 2}) == Rates{1, 0.5, 0.25, 0.125});
  CHECK(rates("min", "abs", 0.1, {inf, nan, 3, 2}) == Rates{0.5, 0.25, 0.25, 0.25});
  SGD a = optimizer(1), b = optimizer(1);
  ReduceLROnPlateau first(a, {.patience = 0}), second(b, {.patience = 0});
  first.step(-inf);
  second.load_state_dict(first.state_dict());
  second.step(1.0);
  CHECK(b.lr() == doctest::Approx(0.1));
}

TEST_CASE("MultiplicativeLR multiplies the rate before, from count 1 on") {
  SGD o = optimizer(0.5);
  const auto function = [](int64_t t) { return 1 - 0.1 * double(t); };
  MultiplicativeLR schedule(o, function);
  double want = 0.5;
  CHECK(o.lr() == 0.5);
  for (int64_t t = 1; t < 9; ++t) {
    schedule.step();
    want *= function(t);
    CHECK(o.lr() == doctest::Approx(want));
  }
  CHECK(schedule.rate(0.5, 2) == doctest::Approx(0.5 * 0.9 * 0.8));
  CHECK_THROWS_WITH_AS(MultiplicativeLR(o, nullptr), "[MultiplicativeLR] needs a function of the count of applied steps",
                       ValueError);
}

TEST_CASE("schedules continue from a rate that the user sets, as PyTorch's do") {
  const auto after = [](const auto& make, int before, double set, int more) {
    SGD o = optimizer(0.4);
    const SchedulePtr schedule = make(o);
    for (int i = 0; i < before; ++i) schedule->step();
    for (ParamGroup& group : o.param_groups()) group.lr = set;
    std::vector<double> out{o.lr()};
    for (int i = 0; i < more; ++i) {
      schedule->step();
      out.push_back(o.lr());
    }
    // The same from what is kept.
    SGD again = optimizer(0.4);
    const SchedulePtr resumed = make(again);
    resumed->load_state_dict(schedule->state_dict());
    CHECK(again.lr() == o.lr());
    return out;
  };
  const auto check = [](const std::vector<double>& got, const std::vector<double>& want) {
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]));
  };
  using O = Optimizer;
  check(after([](O& o) { return std::make_shared<StepLR>(o, 2, 0.5); }, 3, 0.1, 3), {0.1, 0.05, 0.05, 0.025});
  check(after([](O& o) { return std::make_shared<ExponentialLR>(o, 0.5); }, 2, 1, 2), {1, 0.5, 0.25});
  check(after([](O& o) { return std::make_shared<LinearLR>(o, 0.25, 1, 3); }, 1, 0.3, 3), {0.3, 0.45, 0.6, 0.6});
  // PyTorch's recursion: (lr - eta_min) (1 + cos(pi 3 / 4)) / (1 + cos(pi / 2)) + eta_min
  check(after([](O& o) { return std::make_shared<CosineAnnealingLR>(o, 4, 0.01); }, 2, 0.11, 1),
        {0.11, 0.1 * (1 + std::cos(std::numbers::pi * 0.75)) + 0.01});
  check(after(
            [](O& o) {
              return std::make_shared<ChainedScheduler>(
                  o, std::vector<SchedulePtr>{std::make_shared<ConstantLR>(o, 0.1, 2), std::make_shared<ExponentialLR>(o, 0.5)});
            },
            1, 0.2, 2),
        {0.2, 1, 0.5});
  check(after([](O& o) { return std::make_shared<WarmupLR>(o, std::make_shared<ExponentialLR>(o, 0.5), 4); }, 1, 1, 4),
        {1, 1.5, 2, 2, 1});
  // Closed forms in PyTorch, too: the rate is that of the next step only.
  check(after([](O& o) { return std::make_shared<LambdaLR>(o, [](int64_t t) { return 1 / double(1 + t); }); }, 1, 9, 1),
        {9, 0.4 / 3});
  check(after(
            [](O& o) {
              return std::make_shared<CyclicLR>(
                  o, CyclicOptions{.base_lr = 0.1, .max_lr = 0.5, .step_size_up = 4, .cycle_momentum = false});
            },
            1, 9, 1),
        {9, 0.3});

  SGD o = optimizer(0.4);
  ReduceLROnPlateau plateau(o, {.factor = 0.5, .patience = 0});
  for (const double metric : {1, 1, 1}) plateau.step(metric);
  CHECK(o.lr() == 0.1);
  o.set_lr(0.8);
  plateau.step(1);
  CHECK(o.lr() == doctest::Approx(0.4));

  // Before its schedule is made, it is the initial rate.
  SGD fresh = optimizer(0.4);
  fresh.set_lr(0.2);
  const StepLR schedule(fresh, 10);
  CHECK(fresh.lr() == 0.2);
  CHECK(fresh.initial_lr(0) == 0.2);
}

TEST_CASE("a schedule of another optimizer, absolute ones in a chain, and steps beyond the end are refused") {
  SGD o = optimizer(), other = optimizer();
  const auto own = std::make_shared<StepLR>(o, 2), foreign = std::make_shared<StepLR>(other, 2);
  CHECK_THROWS_WITH_AS(ChainedScheduler(o, {own, foreign}),
                       "[ChainedScheduler] all schedules must be of one optimizer, got StepLR(step_size=2, gamma=0.1) of another",
                       ValueError);
  CHECK_THROWS_AS(SequentialLR(o, {own, foreign}, {3}), ValueError);
  CHECK_THROWS_AS(WarmupLR(o, foreign, 3), ValueError);
  CHECK_THROWS_AS(Epochs(o, foreign, 3), ValueError);

  const auto lambda = std::make_shared<LambdaLR>(o, [](int64_t) { return 1.0; });
  const auto cyclic = std::make_shared<CyclicLR>(o, CyclicOptions{.base_lr = 0.1, .max_lr = 0.5, .cycle_momentum = false});
  const auto restarts = std::make_shared<CosineAnnealingWarmRestarts>(o, 5);
  const auto cycle = std::make_shared<OneCycleLR>(o, OneCycleOptions{.total_steps = 5, .cycle_momentum = false});
  for (const SchedulePtr& absolute :
       std::vector<SchedulePtr>{lambda, cyclic, restarts, cycle, std::make_shared<Epochs>(o, restarts, 2)}) {
    CHECK_THROWS_WITH_AS(ChainedScheduler(o, {own, absolute}), doctest::Contains("sets rates whatever the other schedules"),
                         ValueError);
    CHECK_THROWS_AS(ChainedScheduler(o, {absolute, own}), ValueError);
    const ChainedScheduler alone(o, {absolute});
    CHECK(alone.rate(0.3, 1) == absolute->rate(0.3, 1));
  }

  OneCycleLR whole(o, {.total_steps = 5, .cycle_momentum = false});
  for (int i = 0; i < 5; ++i) whole.step();
  CHECK_THROWS_WITH_AS(whole.step(), "[schedule] OneCycleLR(max_lr=0.3, total_steps=5) has ended, it cannot be stepped 6 times",
                       ValueError);
  CHECK(whole.count() == 5);
  SequentialLR last(o, {own, cycle}, {3});
  for (int i = 0; i < 8; ++i) last.step();
  CHECK_THROWS_AS(last.step(), ValueError);
}

TEST_CASE("the last rates are those of all groups") {
  const Tensor a = ones({1}).set_requires_grad(), b = ones({1}).set_requires_grad();
  SGD opt(std::vector<ParamGroup>{{.params = {a}, .lr = 0.5}, {.params = {b}, .lr = 0.25}});
  StepLR schedule(opt, 1, 0.5);
  CHECK(schedule.get_last_lr() == std::vector<double>{0.5, 0.25});
  schedule.step();
  CHECK(schedule.get_last_lr() == std::vector<double>{0.25, 0.125});
}
