// SPDX-License-Identifier: Apache-2.0
#include "apps/train/checkpoint_saver.h"

#include "apps/session/ranks.h"

namespace halfstep::app {

void CheckpointSaver::mark_as_saved() {
  saved_ = {run_.counters.attempted, run_.session.train->state().next_batch};
  saved_step_ = run_.counters.applied();
}

void CheckpointSaver::save() {
  outcomes_.read();
  const std::pair<int64_t, int64_t> now{run_.counters.attempted, run_.session.train->state().next_batch};
  if (saved_ == now) return;
  if (outcomes_.bad_losses() > 0 && !run_.session.scaler.is_enabled()) {
    run_.progress.warn(joined("the loss is not finite at step ", run_.counters.applied(), ": no checkpoint was written"));
    return;
  }
  health_.check_weights();
  run_.counters.seconds = run_.clock.seconds();
  health_.learn_cause();
  run_.share_buffers();
  run_.make_averaged_statistics();
  if (pace_.is_due()) run_.dir.sync();  // a checkpoint requires that the lines up to its step are on disk
  write();
  saved_ = now;
  saved_step_ = run_.counters.applied();
  run_.dir.discard_overwritten();
}

void CheckpointSaver::save_at_interval() {
  outcomes_.read();
  if (saved_step_ != run_.counters.applied()) save();
}

void CheckpointSaver::save_before_evaluation(int ended) {
  if (saved_step_ != kNever || !run_.saves()) return;
  outcomes_.read();
  if (outcomes_.bad_losses() > 0) return;
  run_.counters.evaluation_due = ended;
  save();
  run_.counters.evaluation_due = 0;
  // A checkpoint of the same step, with the evaluation's results, replaces this one.
  saved_.reset();
  saved_step_ = kBeforeEvaluation;
}

bool CheckpointSaver::save_again() {
  saved_.reset();
  save();
  return saved_.has_value();
}

void CheckpointSaver::wait_until_written() {
  if (!writes(run_.group) || !pace_.has_pending()) return;
  run_.dir.sync();
  settle_checkpoints(run_.dir.path(), pace_, run_.config.checkpoint.keep_last, best_steps());
}

std::vector<int64_t> CheckpointSaver::best_steps() const {
  std::vector<int64_t> out;
  for (const BestCheckpoint& b : run_.counters.bests.list) out.push_back(b.step);
  return out;
}

// Writes on rank 0, after gathering the optimizer's states if ranks share them.
void CheckpointSaver::write() {
  const std::vector<int64_t> best = best_steps();
  CheckpointContents contents;
  if (writes(run_.group) || run_.session.optimizer->is_sharded())
    contents = pack(run_.session, run_.config.json, run_.counters, run_.group);
  if (writes(run_.group))
    save_checkpoint(run_.dir.path(), run_.counters.applied(), contents, run_.config.checkpoint.keep_last, best, &pace_);
  if (run_.group) run_.group->wait(run_.group->barrier());  // ranks wait until the checkpoint is complete
}

}  // namespace halfstep::app
