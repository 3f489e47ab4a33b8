// SPDX-License-Identifier: Apache-2.0
// From which rate a schedule starts: after another one, after a loaded state, and at a count. The rates are PyTorch's (2.15).
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optim/schedule_parts.h"
#include "tests/optim/problem.h"

using namespace halfstep;

namespace {

struct Case {
  std::function<SchedulePtr(Optimizer&)> make;
  std::vector<double> second;  // rates of a schedule that is made when StepLR(2) has come from 0.1 to 0.01
};

std::vector<Case> cases() {
  return {
      {[](Optimizer& o) { return std::make_shared<StepLR>(o, 3); }, {0.01, 0.01, 0.01, 0.001, 0.001, 0.001, 0.0001}},
      {[](Optimizer& o) { return std::make_shared<CosineAnnealingLR>(o, 10); },
       {0.01, 0.00975528, 0.00904508, 0.00793893, 0.00654508, 0.005, 0.00345492}},
      {[](Optimizer& o) { return std::make_shared<LambdaLR>(o, [](int64_t t) { return std::pow(0.9, double(t)); }); },
       {0.1, 0.09, 0.081, 0.0729, 0.06561, 0.059049, 0.0531441}},
      {[](Optimizer& o) { return std::make_shared<ExponentialLR>(o, 0.5); },
       {0.01, 0.005, 0.0025, 0.00125, 0.000625, 0.0003125, 0.00015625}},
      {[](Optimizer& o) { return std::make_shared<PolynomialLR>(o, 5); }, {0.01, 0.008, 0.006, 0.004, 0.002, 0, 0}},
      {[](Optimizer& o) { return std::make_shared<LinearLR>(o, 0.5, 1, 4); }, {0.005, 0.00625, 0.0075, 0.00875, 0.01, 0.01, 0.01}},
      {[](Optimizer& o) { return std::make_shared<ConstantLR>(o, 0.5, 4); }, {0.005, 0.005, 0.005, 0.005, 0.01, 0.01, 0.01}},
      {[](Optimizer& o) { return std::make_shared<CosineAnnealingWarmRestarts>(o, 4); },
       {0.1, 0.0853553, 0.05, 0.0146447, 0.1, 0.0853553, 0.05}},
      {[](Optimizer& o) {
         return std::make_shared<MultiStepLR>(o, Milestones{2, 4});
       },
       {0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001, 0.0001}},
      {[](Optimizer& o) { return std::make_shared<MultiplicativeLR>(o, [](int64_t) { return 0.9; }); },
       {0.01, 0.009, 0.0081, 0.00729, 0.006561, 0.0059049, 0.00531441}},
      {[](Optimizer& o) {
         return std::make_shared<OneCycleLR>(o, OneCycleOptions{.max_lr = 1, .total_steps = 10, .cycle_momentum = false});
       },
       {0.04, 0.52, 1, 0.950485, 0.811746, 0.611262, 0.388742}},
      {[](Optimizer& o) {
         const SchedulePtr up = std::make_shared<LinearLR>(o, 0.5, 1, 2), down = std::make_shared<ExponentialLR>(o, 0.5);
         return std::make_shared<ChainedScheduler>(o, std::vector<SchedulePtr>{up, down});
       },
       {0.005, 0.00375, 0.0025, 0.00125, 0.000625, 0.0003125, 0.00015625}},
      {[](Optimizer& o) {
         const SchedulePtr up = std::make_shared<LinearLR>(o, 0.5, 1, 2), down = std::make_shared<ExponentialLR>(o, 0.5);
         return std::make_shared<SequentialLR>(o, std::vector<SchedulePtr>{up, down}, std::vector<int64_t>{3});
       },
       {0.05, 0.075, 0.1, 0.1, 0.05, 0.025, 0.0125}},
      // Not in PyTorch: as the schedule that they hold.
      {[](Optimizer& o) { return std::make_shared<Epochs>(o, std::make_shared<ExponentialLR>(o, 0.5), 2); },
       {0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025, 0.00125}},
      {[](Optimizer& o) { return std::make_shared<WarmupLR>(o, std::make_shared<ExponentialLR>(o, 0.5), 2); },
       {0.005, 0.01, 0.01, 0.005, 0.0025, 0.00125, 0.000625}},
  };
}

// Calls with every schedule, an optimizer, and how to make the schedule.
template <class F>
void each_case(const F& f) {
  for (const Case& c : cases()) {
    SGD probe({problem::parameter()}, 0.1);
    const std::string name = c.make(probe)->describe();
    CAPTURE(name);
    f(c);
  }
}

}  // namespace

TEST_CASE("a schedule that is made after another was stepped starts as PyTorch's") {
  each_case([](const Case& c) {
    SGD o({problem::parameter()}, 0.1);
    StepLR first(o, 2);
    first.step(), first.step();
    const SchedulePtr second = c.make(o);
    for (size_t n = 0; n < c.second.size(); ++n) {
      CAPTURE(n);
      if (n > 0) second->step();
      CHECK(o.lr() == doctest::Approx(c.second[n]).epsilon(1e-5));
    }
  });
  SGD o({problem::parameter()}, 0.1);
  StepLR first(o, 1);
  first.step();
  ReduceLROnPlateau plateau(o, {.patience = 0});
  CHECK(o.lr() == doctest::Approx(0.01));
  plateau.step(1.0), plateau.step(2.0);
  CHECK(o.lr() == doctest::Approx(0.001));
}

TEST_CASE("a rate set by hand after a schedule was made is where a later one starts, unless it starts at the initial rate") {
  each_case([](const Case& c) {
    for (const int steps : {0, 2}) {
      CAPTURE(steps);
      SGD o({problem::parameter()}, 0.1);
      StepLR first(o, 2);
      for (int i = 0; i < steps; ++i) first.step();
      o.set_lr(0.06);
      const SchedulePtr second = c.make(o);
      const bool at_initial = second->is_absolute() || second->describe().starts_with("SequentialLR");
      for (size_t n = 0; n < c.second.size(); ++n) {
        CAPTURE(n);
        if (n > 0) second->step();
        CHECK(o.lr() == doctest::Approx(c.second[n] * (at_initial ? 1 : 6)).epsilon(1e-5));
      }
    }
  });
}

TEST_CASE("a schedule resumes at a count with the rates of the run that went on, whenever it is made") {
  each_case([](const Case& c) {
    for (const int64_t at : {1, 4}) {
      CAPTURE(at);
      SGD whole({problem::parameter()}, 0.1);
      const SchedulePtr goes_on = c.make(whole);
      for (int64_t n = 0; n < at; ++n) goes_on->step();
      const auto state = whole.state_dict();
      std::vector<double> want;
      for (int n = 0; n < 4; ++n) want.push_back(whole.lr()), goes_on->step();
      enum { before_loading, after_loading, without_loading, after_the_first_one };
      for (const int made : {before_loading, after_loading, without_loading, after_the_first_one}) {
        CAPTURE(made);
        SGD o({problem::parameter()}, 0.1);
        SchedulePtr resumed = made == before_loading || made == after_the_first_one ? c.make(o) : nullptr;
        if (made == before_loading || made == after_loading) o.load_state_dict(state);
        if (made == after_the_first_one) {
          for (int64_t n = 0; n < at; ++n) resumed->step();
          resumed = nullptr;
        }
        if (!resumed) resumed = c.make(o);
        resumed->set_count(at);
        for (const double rate : want) {
          CHECK(o.lr() == doctest::Approx(rate));
          resumed->step();
        }
      }
    }
  });
}

TEST_CASE("a schedule that is made after a state was loaded, and not resumed, continues from the loaded rate, as PyTorch's") {
  SGD a({problem::parameter()}, 0.1), b({problem::parameter()}, 0.1);
  CosineAnnealingLR first(a, 10);
  for (int n = 0; n < 4; ++n) first.step();
  b.load_state_dict(a.state_dict());
  CosineAnnealingLR second(b, 10);
  for (const double rate : {0.0654508, 0.0638492, 0.0592008, 0.0519609}) {
    CHECK(b.lr() == doctest::Approx(rate).epsilon(1e-5));
    second.step();
  }
  second.set_count(0);  // from its own first rate
  CHECK(b.lr() == doctest::Approx(0.0654508).epsilon(1e-5));
}

TEST_CASE("the maximum of OneCycleLR is one for all groups, as PyTorch's, or each group's own rate") {
  const auto run = [](double max_lr) {
    SGD o(std::vector<ParamGroup>{{.params = {problem::parameter()}, .lr = 0.1}, {.params = {problem::parameter()}, .lr = 0.01}},
          {.lr = 1});
    OneCycleLR cycle(o, {.max_lr = max_lr, .total_steps = 10, .cycle_momentum = false});
    std::vector<double> rates{o.lr(0), o.lr(1)};
    for (int n = 0; n < 4; ++n) cycle.step(), rates.push_back(o.lr(0)), rates.push_back(o.lr(1));
    return rates;
  };
  const std::vector<double> one_max = run(1), own_max = run(0), want{0.04, 0.52, 1, 0.95048463, 0.81174565};
  for (size_t n = 0; n < want.size(); ++n) {
    CAPTURE(n);
    CHECK(one_max[2 * n] == doctest::Approx(want[n]));
    CHECK(one_max[2 * n + 1] == doctest::Approx(want[n]));
    CHECK(own_max[2 * n] == doctest::Approx(0.1 * want[n]));
    CHECK(own_max[2 * n + 1] == doctest::Approx(0.01 * want[n]));
  }
  SGD still({problem::parameter()}, 0.0);  // PyTorch's takes no notice of it
  OneCycleLR cycle(still, {.max_lr = 1, .total_steps = 10, .cycle_momentum = false});
  CHECK(still.lr() == doctest::Approx(0.04));
}
