// SPDX-License-Identifier: Apache-2.0
// Rates that the user sets where a schedule has none that they could continue as.
#include <doctest/doctest.h>

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
  stays([](O& o) { return std::make_shared<LinearLR>(o, 1, 0, 2); }, 4);
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
