// SPDX-License-Identifier: Apache-2.0
#include "amp/step/accumulation_window.h"

#include <doctest/doctest.h>

#include "framework/base/generator.h"

using namespace halfstep;

TEST_CASE("a window's losses are weighted by samples, and its factor corrects for batches of other sizes") {
  AccumulationWindow window(4, 1);
  const BatchRows eight{0, 8, 8}, two{0, 2, 2};
  window.open(eight);
  CHECK(window.loss_weight(eight) == 0.25);
  CHECK(window.loss_weight(two) == 0.0625);
  for (int i = 0; i < 3; ++i) window.count(eight);
  CHECK(window.at_last());
  CHECK(window.gradient_factor() == 32.0 / 24);  // as if it ended here
  window.count(two);
  CHECK(window.full());
  CHECK(window.samples() == 26);
  CHECK(window.gradient_factor() == 32.0 / 26);
  window.close();
  CHECK(window.pending() == 0);
  CHECK(window.samples() == 26);  // until the next one opens
  window.open(two);
  CHECK(window.samples() == 0);
  CHECK(window.loss_weight(two) == 0.25);
}

TEST_CASE("of several ranks a window expects as much from each as from rank 0") {
  AccumulationWindow window(1, 3);
  const BatchRows part{3, 3, 7};  // rank 1 of 3, with 3, 3 and 1 rows
  window.open(part);
  CHECK(window.loss_weight(part) == 3.0 / 9);
  window.count(part);
  CHECK(window.own_samples() == 3);
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
    window.count(part);
  }
  CHECK(default_generator().state().offset == after.offset);
}
