// SPDX-License-Identifier: Apache-2.0
// Several schedules of one optimizer, and groups that come later. The rates are PyTorch's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "optim/device_rates.h"
#include "optim/schedule_parts.h"
#include "tests/optim/problem.h"

using namespace halfstep;

TEST_CASE("schedules that are each stepped multiply, in any order, with a group that is added later") {
  SGD o({problem::parameter()}, 1.0);
  PolynomialLR down(o, 10, 1);
  LinearLR up(o, 0.25, 1, 4);
  StepLR halves(o, 3, 0.5);
  const auto factor = [](int n) { return (1 - n / 10.0) * (0.25 + 0.75 * std::min(n, 4) / 4) * std::pow(0.5, n / 3); };
  CHECK(o.lr() == doctest::Approx(0.25));
  double late = 0;
  for (int n = 1; n <= 8; ++n) {
    CAPTURE(n);
    halves.step(), down.step(), up.step();
    CHECK(o.lr(0) == doctest::Approx(factor(n)));
    if (n > 4) CHECK(o.lr(1) == doctest::Approx(late *= factor(n) / factor(n - 1)));
    if (n == 4) o.add_param_group({.params = {problem::parameter()}, .lr = late = 3});
  }
}

TEST_CASE("a warm-up beside ReduceLROnPlateau warms up, and the reduction stays") {
  SGD o({problem::parameter()}, 1.0);
  LinearLR warm(o, 0.2, 1, 4);
  ReduceLROnPlateau plateau(o, {.factor = 0.1, .patience = 0});
  std::vector<double> rates;
  for (const double loss : {3.0, 2.0, 2.0, 1.0, 1.0}) {
    warm.step();
    plateau.step(loss);
    rates.push_back(o.lr());
  }
  CHECK(rates[0] == doctest::Approx(0.4));
  CHECK(rates[1] == doctest::Approx(0.6));
  CHECK(rates[2] == doctest::Approx(0.08));
  CHECK(rates[3] == doctest::Approx(0.1));
  CHECK(rates[4] == doctest::Approx(0.01));
}

TEST_CASE("a schedule that sets rates whatever another made of them is refused beside it, not after it") {
  SGD o({problem::parameter()}, {.lr = 1, .momentum = 0.9});
  ExponentialLR decay(o, 0.5);
  CyclicLR cycle(o, {.base_lr = 0.1, .max_lr = 1, .step_size_up = 3});
  cycle.step();
  decay.step();
  CHECK_THROWS_WITH_AS(cycle.step(),
                       doctest::Contains("CyclicLR(base_lr=0.1, max_lr=1, step_size_up=3, step_size_down=3, "
                                         "mode=triangular) sets rates whatever the optimizer's other schedule"),
                       ValueError);
  SGD p({problem::parameter()}, 1.0);
  LambdaLR first(p, [](int64_t t) { return 1 / double(t + 1); });
  first.step(), first.step();
  CosineAnnealingWarmRestarts second(p, 4);
  second.step(), second.step();
  CHECK(p.lr() == doctest::Approx(0.5));
}

TEST_CASE("schedules of one optimizer that are saved at one time continue together, in any order of loading") {
  const auto run = [](int saved_at, bool turned) {
    SGD a({problem::parameter()}, 1.0), b({problem::parameter()}, 1.0);
    const auto make = [](Optimizer& o) {
      return std::vector<SchedulePtr>{std::make_shared<ExponentialLR>(o, 0.9),
                                      std::make_shared<MultiStepLR>(o, Milestones{2, 4}, 0.1)};
    };
    std::vector<SchedulePtr> s = make(a), t = make(b);
    Optimizer* now = &a;
    for (int n = 0; n < 6; ++n) {
      if (n == saved_at) {
        b.load_state_dict(a.state_dict());
        for (const size_t i : turned ? std::vector<size_t>{1, 0} : std::vector<size_t>{0, 1})
          t[i]->load_state_dict(s[i]->state_dict());
        s = t, now = &b;
      }
      s[0]->step(), s[1]->step();
    }
    return now->lr();
  };
  for (const int at : {1, 3, 5}) {
    CHECK(run(at, false) == doctest::Approx(std::pow(0.9, 6) * 0.01));
    CHECK(run(at, true) == doctest::Approx(std::pow(0.9, 6) * 0.01));
  }
}

TEST_CASE("OneCycleLR reaches max_lr where the rate was set before it was made") {
  SGD o({problem::parameter()}, {.lr = 1, .momentum = 0.9});
  o.set_lr(0.5);
  OneCycleLR cycle(o, {.max_lr = 0.1, .total_steps = 11, .pct_start = 0.5});
  double top = 0;
  for (int i = 0; i < 10; ++i) cycle.step(), top = std::max(top, o.lr());
  CHECK(top == doctest::Approx(0.1).epsilon(0.05));
}

TEST_CASE("in a SequentialLR a MultiplicativeLR continues from the rate that was reached, others begin anew") {
  SGD o({problem::parameter()}, 1.0);
  const auto parts = [&]() {
    return std::vector<SchedulePtr>{std::make_shared<ExponentialLR>(o, 0.5),
                                    std::make_shared<MultiplicativeLR>(o, [](int64_t t) { return 0.9 - 0.1 * double(t); }),
                                    std::make_shared<ConstantLR>(o, 0.25, 9)};
  };
  SequentialLR s(o, parts(), {3, 5});
  std::vector<double> rates{o.lr()};
  for (int i = 0; i < 6; ++i) s.step(), rates.push_back(o.lr());
  const std::vector<double> want{1, 0.5, 0.25, 0.225, 0.18, 0.25, 0.25};
  for (size_t i = 0; i < want.size(); ++i) CHECK(rates[i] == doctest::Approx(want[i]));
  SequentialLR set(o, parts(), {3, 5});
  for (int i = 0; i < 3; ++i) set.step();
  o.set_lr(0.1);
  set.step();
  CHECK(o.lr() == doctest::Approx(0.08));
}

TEST_CASE("a schedule on the device continues from what another has made of the rate on the host") {
  SGD o({problem::parameter()}, 1.0);
  StepLR counted(o, 2, 0.5);
  ExponentialLR beside(o, 0.9);
  DeviceRates rates(o, &counted, Device::cpu);
  math::StepTail tail;
  rates.add_to(tail);
  for (int n = 1; n <= 5; ++n) {
    CAPTURE(n);
    rates.prepare();
    backend_for(Device::cpu).end_step(nullptr, tail);
    rates.note_step();
    beside.step();
    CHECK(o.lr() == doctest::Approx(std::pow(0.5, n / 2) * std::pow(0.9, n)));
  }
}
