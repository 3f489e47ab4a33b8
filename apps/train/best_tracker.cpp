// SPDX-License-Identifier: Apache-2.0
#include "apps/train/best_tracker.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "apps/session/ranks.h"

namespace halfstep::app {

void BestTracker::continue_from(int64_t best) {
  const std::vector<int64_t> there = list_checkpoints(run_.dir.path());
  std::vector<BestCheckpoint>& list = run_.counters.bests.list;
  if (run_.counters.bests.step() < 0 && !list.empty()) list[0].step = best;  // written by an older halfstep
  if (best != run_.counters.bests.step()) run_.counters.bests = {};
  std::erase_if(list, [&](const BestCheckpoint& b) { return std::find(there.begin(), there.end(), b.step) == there.end(); });
  if (run_.group) agree();
}

void BestTracker::consider(const std::string& what, std::optional<double> value, int64_t samples) {
  const CheckpointSection& ck = run_.config.checkpoint;
  if (ck.monitor != what || ck.keep_best < 1 || !run_.saves()) return;
  if (!value || !std::isfinite(*value)) return;
  const BestRule rule{.larger_is_better = ck.mode == "max", .samples = samples, .keep = ck.keep_best};
  const BestCheckpoints before = run_.counters.bests;
  std::optional<BestCheckpoints> after = rule.with(before, {*value, run_.counters.applied(), run_.epoch_now()});
  if (!after) return;
  run_.counters.bests = std::move(*after);
  if (!saver_.save_again())
    run_.counters.bests = before;
  else if (run_.counters.bests.step() == run_.counters.applied() && writes(run_.group))
    mark_best(run_.dir.path(), run_.counters.applied(), Waits::no);
}

void BestTracker::agree() {
  Json all;
  store(all, run_.counters.bests);
  const nlohmann::json first = nlohmann::json::parse(from_first(*run_.group, all).dump());
  run_.counters.bests = stored_bests(StoredJson(first));
}

}  // namespace halfstep::app
