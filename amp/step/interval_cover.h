// SPDX-License-Identifier: Apache-2.0
// Which of some items, each a stretch of a line, save enough at the least cost. The arithmetic of amp/step/recomputation.h.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace halfstep {

struct IntervalCover {
  struct Item {
    size_t begin, end;  // begin < end: the places that it covers, as calls of a forward. Chosen items do not overlap
    double saves, cost;
  };
  std::vector<Item> items;
  // needs[p]: what chosen items that end at or before place p must save together. An item that covers p, begin < p < end, does not
  // count for p.
  std::vector<double> needs;
};

// The choice with the least cost, as places in `items`, in order; nothing: no choice saves enough. It is found by going along the
// line with all pairs of savings and costs of which no other has more of one for less of the other. Where there are more pairs than
// `most` some are left out: the choice still saves enough, and may cost a little more.
std::optional<std::vector<size_t>> cheapest(const IntervalCover& problem, size_t most = 2000);

}  // namespace halfstep
