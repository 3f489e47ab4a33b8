// SPDX-License-Identifier: Apache-2.0
#include "framework/base/draws.h"

#include <doctest/doctest.h>

using namespace halfstep;

TEST_CASE("draws: the parts of a batch take what the whole would, and leave the generator where it would") {
  Generator& g = default_generator();
  for (const int64_t each : {1, 3, 4, 10}) {  // numbers a row
    g.manual_seed(5);
    const Generator::State start = draw(g, each * 10).state, end = g.state();
    for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 3}, {3, 3}, {6, 2}, {8, 2}}) {
      g.manual_seed(5);
      const DrawsOf part(BatchRows{first, rows, 10});
      const Draw d = draw(g, each * rows);
      CHECK(int64_t(d.state.offset - start.offset) * 4 + d.skip == first * each);
      CHECK(d.skip < 4);
      CHECK(g.state() == end);
    }
  }
}

TEST_CASE("draws: what is not drawn row by row, and other generators, are as outside") {
  Generator own(5);
  default_generator().manual_seed(5);
  const DrawsOf part(BatchRows{4, 4, 8});
  CHECK(draw(own, 16).state.offset == 0);
  CHECK(own.state().offset == 4);
  CHECK(draw(default_generator(), 7).state.offset == 0);
  CHECK(default_generator().state().offset == 2);
  {
    const DrawsOf whole(std::nullopt);
    CHECK(!DrawsOf::current());
  }
  CHECK(DrawsOf::current()->first == 4);
}
