// SPDX-License-Identifier: Apache-2.0
// Chooses intervals of a line that save enough at the least cost, for amp/step/recomputation.h.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace halfstep {

struct IntervalCover {
  struct Interval {
    size_t begin, end;  // begin < end: the places that it covers, as calls of a forward. Chosen items do not overlap
    double saves, cost;
  };
  std::vector<Interval> items;
  // needs[p]: total savings required of chosen items that end at or before place p. An item with begin < p < end does not count
  // for p.
  std::vector<double> needs;
};

// Returns the cheapest choice that saves enough, as ascending indices of `items`; nothing if there is none. Walks along the line
// with all Pareto-optimal pairs of savings and cost. If there are more than `most` pairs, some are dropped: the choice still saves
// enough, but may cost a little more.
std::optional<std::vector<size_t>> cheapest(const IntervalCover& problem, size_t most = 2000);

}  // namespace halfstep
