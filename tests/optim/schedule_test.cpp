// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "framework/ops/ops.h"
#include "optim/optimizers.h"
#include "tests/optim/torch_goldens.h"

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
  REQUIRE(cases.size() == std::size(goldens::kSchedules));
  for (size_t k = 0; k < cases.size(); ++k) {
    CAPTURE(cases[k].name);
    REQUIRE(cases[k].name == goldens::kSchedules[k].name);
    const std::vector<double>& want = goldens::kSchedules[k].values;
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
  CHECK_THROWS_WITH_AS(OneCycleLR(o, {}), "[OneCycleLR] total_steps must be >= 1, got 0", ValueError);
  CHECK_THROWS_WITH_AS(CyclicLR(o, {.base_lr = 1, .max_lr = 0.5}), "[CyclicLR] max_lr must be >= 1, got 0.5", ValueError);
  CHECK_THROWS_WITH_AS(MultiStepLR(o, {-1}), "[MultiStepLR] milestones must be >= 0, got -1", ValueError);
  CHECK_THROWS_WITH_AS(WSDLR(o, {.decay = "slow"}), "[WSDLR] decay must be one of linear, cosine, 1-sqrt, got slow", ValueError);
  CHECK_THROWS_WITH_AS(SequentialLR(o, {std::make_shared<StepLR>(o, 1)}, {3}),
                       "[SequentialLR] needs one milestone less than schedules, got 1 for 1", ValueError);
  CHECK_THROWS_WITH_AS(ReduceLROnPlateau(o, {.mode = "least"}), "[ReduceLROnPlateau] mode must be min or max, got least",
                       ValueError);
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
  CHECK_THROWS_WITH_AS(CosineAnnealingLR(a, 0), "[CosineAnnealingLR] t_max must be >= 1, got 0", ValueError);
  CHECK_THROWS_WITH_AS(CosineAnnealingLR(a, 4, 0, 4), "[CosineAnnealingLR] warmup_steps must be in [0, t_max), got 4 with t_max 4",
                       ValueError);
  CHECK(StepLR(a, 3, 0.5).describe() == "StepLR(step_size=3, gamma=0.5)");
  CHECK(CosineAnnealingLR(a, 10, 0.01, 2).describe() == "CosineAnnealingLR(t_max=10, eta_min=0.01, warmup_steps=2)");
}
