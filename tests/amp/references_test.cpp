// SPDX-License-Identifier: Apache-2.0
// What a TrainStep refers to, and a scaler that was moved.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "amp/step/train_step.h"
#include "tests/amp/scaling.h"

using namespace halfstep;

namespace {

template <class T>
constexpr bool stays_in_place = !std::is_copy_constructible_v<T> && !std::is_move_constructible_v<T> &&
                                !std::is_copy_assignable_v<T> && !std::is_move_assignable_v<T>;
static_assert(stays_in_place<TrainStep>);
static_assert(!std::is_copy_constructible_v<GradScaler> && std::is_nothrow_move_constructible_v<GradScaler>);

}  // namespace

TEST_CASE("a scaler that was moved says so, and the one that it was moved to continues") {
  scaling::Single one;
  GradScaler a({.init_scale = 4});
  a.scale(one.p.sum()).backward();
  GradScaler b = std::move(a);
  CHECK_THROWS_WITH_AS(a.update(), doctest::Contains("[GradScaler] this scaler was moved from"), AmpError);  // NOLINT
  CHECK_THROWS_WITH_AS(a.scale(one.p.sum()), doctest::Contains("use the one that it was moved to"), AmpError);
  CHECK_THROWS_AS((void)a.state_dict(), AmpError);
  b.step(one.opt);
  b.update();
  CHECK(one.p.grad().to_vector<float>() == std::vector<float>{1, 1});
  a = GradScaler({.init_scale = 32});
  CHECK(a.get_scale() == 32);
}

TEST_CASE("a TrainStep whose optimizer, scaler or schedule is gone throws") {
  Linear net(2, 1);
  MSELoss loss;
  for (const int gone : {0, 1, 2}) {
    for (const bool flushes : {false, true}) {
      CAPTURE(gone);
      CAPTURE(flushes);
      auto opt = std::make_unique<SGD>(net.parameters(), 0.1);
      auto schedule = std::make_unique<StepLR>(*opt, 1, 0.5);
      auto scaler = std::make_unique<GradScaler>(GradScalerOptions{.init_scale = 4});
      TrainStep step(net, loss, *opt, *scaler, schedule.get(), {.accumulate_steps = flushes ? 2 : 1});
      step(ones({4, 2}), zeros({4, 1}));
      const char* const names[] = {"optimizer", "schedule", "scaler"};
      if (gone == 0) opt.reset();
      if (gone == 1) schedule.reset();
      if (gone == 2) scaler.reset();
      const std::string says = std::string("[TrainStep] its ") + names[gone] + " was destroyed";
      const auto use = [&] { flushes ? (void)step.flush() : (void)step(ones({4, 2}), zeros({4, 1})); };
      CHECK_THROWS_WITH_AS(use(), doctest::Contains(says.c_str()), ValueError);
      for (const Tensor& p : net.parameters()) p.zero_grad();
    }
  }
  std::vector<GradScaler> several;
  several.emplace_back(GradScalerOptions{.init_scale = 4});
  SGD opt(net.parameters(), 0.1);
  TrainStep step(net, loss, opt, several[0], nullptr);
  several.reserve(several.capacity() + 1);  // moves it
  CHECK_THROWS_WITH_AS(step(ones({4, 2}), zeros({4, 1})), doctest::Contains("its scaler was destroyed"), ValueError);
}
