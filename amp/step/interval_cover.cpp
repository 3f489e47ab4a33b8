// SPDX-License-Identifier: Apache-2.0
// The cheapest intervals of a line that save enough (IntervalCover), by dynamic programming over its places. The front of place p
// holds the Pareto-optimal pairs (savings, cost) of choices that end at or before p. Each pair moves on in two ways:
//   to p + 1 without an interval:       (s, c)
//   to e by an interval i from p to e:  (s + saves_i, c + cost_i), if s >= needs[q] at all q between p and e
#include <algorithm>

#include "amp/step/recomputation.h"

namespace halfstep {
namespace {

// A choice among the intervals that end at or before a place.
struct PartialChoice {
  double saved = 0, cost = 0;
  int last = -1;  // index in `links` of the interval chosen last; -1: none
};
// An element of a list that is linked from its last interval to its first.
struct ChosenInterval {
  size_t item;  // index in IntervalCover::items
  int before;   // index in `links` of the interval chosen before it; -1: none
};

// Keeps the Pareto-optimal pairs, largest savings first; of more than max_pairs, evenly chosen ones.
void thin(std::vector<PartialChoice>& front, size_t max_pairs) {
  std::stable_sort(front.begin(), front.end(), [](const PartialChoice& a, const PartialChoice& b) {
    return a.saved != b.saved ? a.saved > b.saved : a.cost < b.cost;
  });
  size_t kept = 0;
  for (const PartialChoice& p : front)
    if (kept == 0 || p.cost < front[kept - 1].cost) front[kept++] = p;
  front.resize(kept);
  if (kept <= max_pairs || max_pairs < 2) return;
  for (size_t i = 0; i < max_pairs; ++i) front[i] = front[i * (kept - 1) / (max_pairs - 1)];  // keeps the first and the last
  front.resize(max_pairs);
}

}  // namespace

std::optional<std::vector<size_t>> cheapest(const IntervalCover& problem, size_t max_pairs) {
  const size_t places = problem.needs.size();
  if (places == 0) return std::vector<size_t>();
  std::vector<double> later_need(places, 0);  // the largest at a place or behind it: more savings are useless
  for (size_t p = places; p-- > 0;) later_need[p] = std::max(problem.needs[p], p + 1 < places ? later_need[p + 1] : 0);
  std::vector<std::vector<size_t>> starting(places);
  for (size_t i = 0; i < problem.items.size(); ++i) starting[problem.items[i].begin].push_back(i);

  std::vector<std::vector<PartialChoice>> fronts(places);
  std::vector<ChosenInterval> links;
  fronts[0] = {{}};
  for (size_t p = 0; p < places; ++p) {
    std::vector<PartialChoice>& here = fronts[p];
    std::erase_if(here, [&](const PartialChoice& choice) { return choice.saved < problem.needs[p]; });
    thin(here, max_pairs);
    for (const size_t i : starting[p]) {
      const IntervalCover::Interval& item = problem.items[i];
      double within = 0;  // need that only earlier savings can meet
      for (size_t q = p + 1; q < item.end; ++q) within = std::max(within, problem.needs[q]);
      for (const PartialChoice& choice : here) {
        if (choice.saved < within) break;  // pairs are sorted by falling savings
        fronts[item.end].push_back(
            {std::min(choice.saved + item.saves, later_need[item.end]), choice.cost + item.cost, int(links.size())});
        links.push_back({i, choice.last});
      }
    }
    if (p + 1 == places) break;
    for (PartialChoice choice : here) {
      choice.saved = std::min(choice.saved, later_need[p + 1]);
      fronts[p + 1].push_back(choice);
    }
    here = {};
  }
  const std::vector<PartialChoice>& end = fronts[places - 1];
  if (end.empty()) return {};
  const auto best =
      std::min_element(end.begin(), end.end(), [](const PartialChoice& a, const PartialChoice& b) { return a.cost < b.cost; });
  std::vector<size_t> out;
  for (int at = best->last; at >= 0; at = links[size_t(at)].before) out.push_back(links[size_t(at)].item);
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace halfstep
