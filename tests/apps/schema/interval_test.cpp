// SPDX-License-Identifier: Apache-2.0
#include "apps/schema/interval.h"

#include <doctest/doctest.h>

using namespace halfstep::app;

TEST_CASE("intervals in steps, epochs and time") {
  CHECK(parse_interval("500 steps")->count == 500);
  CHECK(parse_interval("10 min")->count == 600);
  CHECK(parse_interval("epoch")->unit == Interval::Unit::epochs);
  CHECK(parse_interval(25)->unit == Interval::Unit::steps);
  CHECK(parse_interval("never")->unit == Interval::Unit::never);
  for (const Json& bad : {Json("0 steps"), Json("1.5 epochs"), Json("often"), Json("1 epoch or so"), Json(-3), Json(true)})
    CHECK_FALSE(parse_interval(bad));
}
