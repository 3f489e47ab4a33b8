// SPDX-License-Identifier: Apache-2.0
#include "apps/session/best.h"

#include <algorithm>
#include <cmath>

namespace halfstep::app {

double BestRule::standard_error(double value) const {
  if (samples < 1) return 0;
  constexpr double kRounding = 1e-9;  // tolerance for shares, which are sums of floats
  const double n = double(samples), p = std::clamp(value, 0.0, 1.0);
  return std::max(std::sqrt(p * (1 - p) / n), 1 / n) + kRounding;
}

std::optional<BestCheckpoints> BestRule::with(BestCheckpoints bests, const BestCheckpoint& now) const {
  const double sign = larger_is_better ? 1 : -1;
  const auto at_least = [&](double a, double b) { return sign * a >= sign * b; };
  std::vector<BestCheckpoint>& list = bests.list;
  // Only skipped steps were in between, so it has the same weights.
  std::erase_if(list, [&](const BestCheckpoint& b) { return b.step == now.step; });
  if (!bests.top || at_least(now.value, *bests.top)) bests.top = now.value;
  if (list.empty() || at_least(now.value, *bests.top - sign * standard_error(*bests.top))) {
    list.insert(list.begin(), now);
  } else {
    list.insert(std::find_if(list.begin() + 1, list.end(), [&](const BestCheckpoint& b) { return at_least(now.value, b.value); }),
                now);
  }
  if (int64_t(list.size()) <= keep) return bests;
  // Keep the first; of the others drop the worst, of equal ones the earliest.
  const auto worst = std::min_element(list.begin() + 1, list.end(), [&](const BestCheckpoint& a, const BestCheckpoint& b) {
    return a.value != b.value ? sign * a.value < sign * b.value : a.step < b.step;
  });
  const int64_t dropped_step = keep > 1 ? worst->step : list[1].step;
  std::erase_if(list, [&](const BestCheckpoint& b) { return b.step == dropped_step; });
  return dropped_step == now.step ? std::nullopt : std::optional(bests);
}

void store(Json& trainer, const BestCheckpoints& bests) {
  const bool none = bests.list.empty();
  trainer["best"] = none ? Json() : Json(bests.list[0].value);
  trainer["best_step"] = bests.step();
  trainer["best_epoch"] = none ? -1 : bests.list[0].epoch;
  trainer["best_top"] = bests.top ? Json(*bests.top) : Json();
  trainer["next_best"] = Json::array();
  for (size_t i = 1; i < bests.list.size(); ++i) trainer["next_best"].push_back({bests.list[i].value, bests.list[i].step});
}

BestCheckpoints stored_bests(const StoredJson& trainer) {
  BestCheckpoints out;
  // A state without best_step leaves it to the file `best`.
  if (const auto value = trainer.number_or_null("best"))
    out.list.push_back({*value, trainer.integer("best_step", -1, -1), trainer.integer("best_epoch", -1, -1)});
  out.top = trainer.has("best_top") ? trainer.number_or_null("best_top") : trainer.number_or_null("best");
  const auto& list = trainer.get("next_best");
  const auto is_best = [](const auto& b) { return b.is_array() && b.size() == 2 && b[0].is_number() && b[1].is_number_integer(); };
  trainer.expect(list.is_null() || (list.is_array() && std::all_of(list.begin(), list.end(), is_best)), "next_best",
                 "a list of values and steps");
  for (const auto& b : list) out.list.push_back({b[0].template get<double>(), b[1].template get<int64_t>()});
  return out;
}

}  // namespace halfstep::app
