// SPDX-License-Identifier: Apache-2.0
#include "amp/step/accumulation_window.h"

#include <doctest/doctest.h>

#include "framework/base/generator.h"

using namespace halfstep;

TEST_CASE("a window's losses are weighted by samples, and its factor corrects for batches of other sizes") {
  AccumulationWindow window(4, 1);
  const BatchRows eight{0, 8, 8}, two{0, 2, 2};
  window.open(eight);
  window.begin(eight, 8.0);
  CHECK(window.loss_weight(8.0) == 0.25);
  CHECK(window.loss_weight(2.0) == 0.0625);
  for (int i = 0; i < 3; ++i) window.count(eight, 8.0);
  CHECK(window.is_last());
  CHECK(window.gradient_factor() == 32.0 / 24);  // as if it ended here
  window.count(two, 2.0);
  CHECK(window.full());
  CHECK(window.samples() == 26);
  CHECK(window.gradient_factor() == 32.0 / 26);
  window.close();
  CHECK(window.pending() == 0);
  CHECK(window.samples() == 26);  // until the next one opens
  window.open(two);
  window.begin(two, 2.0);
  CHECK(window.samples() == 0);
  CHECK(window.loss_weight(2.0) == 0.25);
}

TEST_CASE("a window expects that each target of its rows counts as usual, and corrects by what they counted") {
  AccumulationWindow window(2, 1);
  const BatchRows four{0, 4, 4};
  const auto of = [](double value) {  // of 3 positions a row, weights of 0.5
    return Denominator(12, 0.5, full({}, value, {.dtype = DType::f64, .device = Device::cpu}));
  };
  window.open(four);
  window.begin(four, of(3));
  CHECK(window.unit() == 1.5);
  CHECK(window.loss_weight(of(3)) == 0.25);  // of 2 x 4 x 1.5
  window.count(four, of(3));
  window.count(four, of(0));
  CHECK(window.total() == 3);
  CHECK(window.gradient_factor() == 4);
  CHECK(!window.counts_nothing());
  window.close();
  window.open(four);
  window.begin(four, of(0));
  window.count(four, of(0));
  CHECK(window.counts_nothing());
}

TEST_CASE("of several ranks a window expects as much from each as from rank 0") {
  AccumulationWindow window(1, 3);
  const BatchRows part{3, 3, 7};  // rank 1 of 3, with 3, 3 and 1 rows
  window.open(part);
  window.begin(part, 3.0);
  CHECK(window.loss_weight(3.0) == 3.0 / 9);
  window.count(part, 3.0);
  CHECK(window.own_samples() == 3);
  window.set_total(7, 1);
  CHECK(window.gradient_factor() == 9.0 / 7);
}

TEST_CASE("micro-batches draw the numbers of their rows in the window, and leave the generator after all of them") {
  manual_seed(5);
  const Draw whole = draw(default_generator(), 6 * 8);
  const Generator::State after = default_generator().state();

  manual_seed(5);
  AccumulationWindow window(3, 1);
  const BatchRows part{0, 2, 2};
  for (int i = 0; i < 3; ++i) {
    if (i == 0) window.open(part);
    const AccumulationWindow::Draws draws(window, part);
    const Draw own = draw(default_generator(), 2 * 8);
    CHECK(own.state.offset * 4 + uint64_t(own.skip) == whole.state.offset * 4 + uint64_t(i * 2 * 8));
    window.count(part, 2.0);
  }
  CHECK(default_generator().state().offset == after.offset);
}
