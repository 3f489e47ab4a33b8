// SPDX-License-Identifier: Apache-2.0
// Rates that the user sets where a schedule has none that they could continue as.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "optim/schedule_parts.h"
#include "tests/optim/problem.h"

using namespace halfstep;

TEST_CASE("a rate that is set by hand where a schedule has come down to 0 stays, as in PyTorch") {
  using O = Optimizer;
  const auto stays = [](const auto& make, int before) {
    SGD o({problem::parameter()}, 0.4), again({problem::parameter()}, 0.4);
    const SchedulePtr schedule = make(o), resumed = make(again);
    for (int i = 0; i < before; ++i) schedule->step();
    for (const double set : {0.1, 0.3, 0.0}) {
      o.set_lr(set);
      schedule->step();
      CHECK(o.lr() == set);
      resumed->load_state_dict(schedule->state_dict());
      schedule->step(), resumed->step();
      CHECK(o.lr() == set);
      CHECK(again.lr() == set);
    }
  };
  stays([](O& o) { return std::make_shared<PolynomialLR>(o, 3, 2); }, 3);
  stays([](O& o) { return std::make_shared<LinearLR>(o, 0.2, 0, 3); }, 4);
  stays([](O& o) { return std::make_shared<CosineAnnealingLR>(o, 3); }, 3);
  stays([](O& o) { return std::make_shared<Epochs>(o, std::make_shared<PolynomialLR>(o, 2), 2); }, 5);
  stays(
      [](O& o) {
        const std::vector<SchedulePtr> parts{std::make_shared<ConstantLR>(o, 0.5, 2), std::make_shared<LinearLR>(o, 1, 0, 2)};
        return std::make_shared<SequentialLR>(o, parts, std::vector<int64_t>{2});
      },
      4);

  // What comes later in a SequentialLR begins as it would.
  SGD o({problem::parameter()}, 0.4);
  const auto line = std::make_shared<LinearLR>(o, 1, 0, 2);
  SequentialLR both(o, {line, std::make_shared<ConstantLR>(o, 0.5, 9)}, {4});
  for (int i = 0; i < 2; ++i) both.step();
  o.set_lr(0.1);
  both.step();
  CHECK(o.lr() == 0.1);
  both.step();
  CHECK(o.lr() == doctest::Approx(0.2));

  // A rate below the least one of ReduceLROnPlateau.
  SGD p({problem::parameter()}, 0.4);
  ReduceLROnPlateau plateau(p, {.factor = 0.5, .patience = 0, .min_lr = 0.15});
  for (int i = 0; i < 3; ++i) plateau.step(1);
  CHECK(p.lr() == doctest::Approx(0.15));
  p.set_lr(0.1);
  for (int i = 0; i < 2; ++i) plateau.step(1);
  CHECK(p.lr() == 0.1);
}

TEST_CASE("a rate that is set by hand where one schedule of a chain has come down to 0 follows the others") {
  SGD o({problem::parameter()}, 0.4), again({problem::parameter()}, 0.4);
  const auto chain = [](Optimizer& o) {
    return ChainedScheduler(o, {std::make_shared<ExponentialLR>(o, 0.5), std::make_shared<PolynomialLR>(o, 2)});
  };
  ChainedScheduler schedule = chain(o), resumed = chain(again);
  for (int i = 0; i < 3; ++i) schedule.step();
  o.set_lr(0.1);
  schedule.step();
  CHECK(o.lr() == doctest::Approx(0.05));
  resumed.load_state_dict(schedule.state_dict());
  schedule.step(), resumed.step();
  CHECK(o.lr() == doctest::Approx(0.025));
  CHECK(again.lr() == o.lr());
}

TEST_CASE("a rate that is set by hand after a MultiplicativeLR's function was 0 is multiplied by the next ones, as in PyTorch") {
  using O = Optimizer;
  const auto function = [](int64_t count) { return count == 2 || count == 5 ? 0.0 : 0.5; };
  const auto follows = [&](const auto& make, const std::vector<double>& expected) {
    SGD o({problem::parameter()}, 0.4), again({problem::parameter()}, 0.4);
    const SchedulePtr schedule = make(o), resumed = make(again);
    std::vector<double> rates;
    for (int i = 0; i < 8; ++i) {
      schedule->step(), resumed->step();
      rates.push_back(o.lr());
      CHECK(again.lr() == o.lr());
      if (i == 2) o.set_lr(0.3);
      if (i == 5) o.set_lr(0.8);
      resumed->load_state_dict(schedule->state_dict());
    }
    REQUIRE(rates.size() == expected.size());
    for (size_t i = 0; i < rates.size(); ++i) CHECK(rates[i] == doctest::Approx(expected[i]));
  };
  follows([&](O& o) { return std::make_shared<MultiplicativeLR>(o, function); }, {0.2, 0, 0, 0.15, 0, 0, 0.4, 0.2});
  follows(
      [&](O& o) {
        const auto first = std::make_shared<MultiplicativeLR>(o, function);
        return std::make_shared<ChainedScheduler>(o, std::vector<SchedulePtr>{first, std::make_shared<ExponentialLR>(o, 0.1)});
      },
      {0.02, 0, 0, 0.015, 0, 0, 0.04, 0.002});
  // From 0.4 on, at step 1, its count 0: 0.5 times the rate before.
  follows(
      [&](O& o) {
        const auto then = std::make_shared<MultiplicativeLR>(o, function);
        const std::vector<SchedulePtr> parts{std::make_shared<ConstantLR>(o, 1, 1), then};
        return std::make_shared<SequentialLR>(o, parts, std::vector<int64_t>{1});
      },
      {0.2, 0.1, 0, 0.15, 0.075, 0, 0.4, 0.2});
}

TEST_CASE("a rate that is set by hand within a part of a SequentialLR counts for that part, as in PyTorch") {
  SGD o({problem::parameter()}, 1.0), again({problem::parameter()}, 1.0);
  const auto make = [](Optimizer& o) {
    const std::vector<SchedulePtr> parts{std::make_shared<ExponentialLR>(o, 0.1), std::make_shared<StepLR>(o, 2, 0.5)};
    return SequentialLR(o, parts, {3});
  };
  SequentialLR schedule = make(o), resumed = make(again);
  schedule.step();
  o.set_lr(0.4);
  schedule.step();
  CHECK(o.lr() == doctest::Approx(0.04));
  resumed.load_state_dict(schedule.state_dict());
  schedule.step(), resumed.step();
  CHECK(o.lr() == 1);
  CHECK(again.lr() == 1);
  o.set_lr(0.6);
  schedule.step(), schedule.step();
  CHECK(o.lr() == doctest::Approx(0.3));

  // What another schedule makes of the rate counts in all parts.
  SGD p({problem::parameter()}, 1.0);
  SequentialLR parts = make(p);
  MultiplicativeLR beside(p, [](int64_t) { return 0.5; });
  for (int i = 0; i < 4; ++i) parts.step(), beside.step();
  CHECK(p.lr() == doctest::Approx(std::pow(0.5, 4)));
}

TEST_CASE("no rate falls below 0 by rounding") {
  for (const double from : {0.1, 0.2, 0.3, 0.7}) {
    for (const int64_t steps : {3, 6, 7, 11}) {
      CHECK(LinearLR(*std::make_unique<SGD>(std::vector<Tensor>{problem::parameter()}, 1.0), from, 0, steps).factor(steps) == 0);
    }
  }
}
