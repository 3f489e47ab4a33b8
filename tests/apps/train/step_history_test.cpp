// SPDX-License-Identifier: Apache-2.0
#include "apps/train/step_history.h"

#include <doctest/doctest.h>

using namespace halfstep::app;

TEST_CASE("skips are looked at from the third in a row on, and then after four times as many") {
  SkipCount skips(/*examines_each=*/false);
  skips.continue_from(5);
  for (const bool applied : {false, false, true, false, false}) skips.add(applied);
  CHECK(skips.skipped() == 9);
  CHECK(skips.in_row() == 2);
  CHECK(!skips.is_examined(skips.in_row()));
  CHECK(skips.is_examined(skips.in_row() + 1));
  skips.add(false);
  skips.wait_longer();
  CHECK(!skips.is_examined(11));
  CHECK(skips.is_examined(12));
  skips.add(true);
  CHECK(skips.is_examined(3));
  skips.add_without_target();
  CHECK(skips.skipped() == 11);
  CHECK(skips.in_row() == 0);
}

TEST_CASE("each skipped step is looked at where that is asked for") {
  SkipCount skips(/*examines_each=*/true);
  skips.add(false);
  CHECK(skips.is_examined(skips.in_row()));
  skips.wait_longer();
  CHECK(!skips.is_examined(1));
  CHECK(skips.is_examined(2));
}

TEST_CASE("the usual loss is the median of the latest 200 magnitudes, or that of the process before") {
  RecentLosses losses;
  CHECK(losses.median() == 0);
  losses.continue_from(3);
  CHECK(losses.median() == 3);
  for (const double loss : {-1.0, 7.0, 2.0}) losses.add(loss);
  CHECK(losses.median() == 2);
  for (int i = 0; i < 200; ++i) losses.add(-5);
  losses.add(100);
  CHECK(losses.median() == 5);
}
