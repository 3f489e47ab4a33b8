// SPDX-License-Identifier: Apache-2.0
#include "apps/train/best_tracker.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "apps/session/ranks.h"

namespace halfstep::app {

void BestTracker::continue_from(int64_t best_step) {
  const std::vector<int64_t> existing = list_checkpoints(run_.dir.path());
  std::vector<BestCheckpoint>& list = run_.counters.bests.list;
  if (run_.counters.bests.step() < 0 && !list.empty()) list[0].step = best_step;  // written by an older halfstep
  if (best_step != run_.counters.bests.step()) run_.counters.bests = {};
  std::erase_if(list,
                [&](const BestCheckpoint& b) { return std::find(existing.begin(), existing.end(), b.step) == existing.end(); });
  if (run_.group) take_first_list();
}

void BestTracker::consider(const std::string& metric, std::optional<double> value, int64_t samples) {
  const CheckpointSection& section = run_.config.checkpoint;
  if (section.monitor != metric || section.keep_best < 1 || !run_.saves()) return;
  if (!value || !std::isfinite(*value)) return;
  const BestRule rule{.larger_is_better = section.mode == "max", .samples = samples, .keep = section.keep_best};
  const BestCheckpoints before = run_.counters.bests;
  std::optional<BestCheckpoints> after = rule.with(before, {*value, run_.counters.applied(), run_.epoch_now()});
  if (!after) return;
  run_.counters.bests = std::move(*after);
  if (!saver_.save_again())
    run_.counters.bests = before;
  else if (run_.counters.bests.step() == run_.counters.applied() && writes(run_.group))
    mark_best(run_.dir.path(), run_.counters.applied(), Waits::no);
}

void BestTracker::take_first_list() {
  Json own;
  store(own, run_.counters.bests);
  const nlohmann::json first = nlohmann::json::parse(value_of_rank0(*run_.group, own).dump());
  run_.counters.bests = stored_bests(StoredJson(first));
}

}  // namespace halfstep::app
