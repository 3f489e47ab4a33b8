// SPDX-License-Identifier: Apache-2.0
// The ranks of a run write checkpoints, and agree on signals, on whether an evaluation or a checkpoint is due, and on the best
// checkpoints.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "apps/run/ranks.h"
#include "apps/run/signals.h"
#include "apps/run/trainer.h"

namespace halfstep::app {
namespace {

// Notices of ranks: a signal, and actions that are due by rank 0's clock.
constexpr uint32_t kInterrupt = 1, kStop = 2, kLogDue = 4, kEvalDue = 8, kSaveDue = 16;

}  // namespace

int Trainer::stop_requested() const { return group_ ? stop_ : stop_signal(); }

uint32_t Trainer::notices() const {
  uint32_t out = stop_signal() == 0 ? 0 : stop_signal() == SIGINT ? kInterrupt : kStop;
  if (group_->rank() != 0) return out;
  const auto clock = [&](const Interval& every, const Clock::time_point& last, uint32_t bit) {
    if (every.unit != Interval::Unit::seconds) return;
    if (std::chrono::duration<double>(Clock::now() - last).count() >= every.count) out |= bit;
  };
  clock(config_.logging.every, last_log_, kLogDue);
  clock(config_.train.eval_every, last_eval_, kEvalDue);
  clock(config_.checkpoint.every, last_save_, kSaveDue);
  return out;
}

// What the ranks agreed on in a step that has just ended a window.
void Trainer::agree() {
  agreed_ = step_.notices();
  if (agreed_ & kStop) stop_ = SIGTERM;
  if (agreed_ & kInterrupt) stop_ = SIGINT;
}

// A signal from before the first step.
void Trainer::agree_on_start() {
  for (const std::vector<double>& of : group_->gather(std::vector<double>{double(stop_signal())}))
    if (of[0] != 0 && stop_ != SIGINT) stop_ = int(of[0]);
}

// Rank 0's: only it looks at the folder.
void Trainer::agree_on_bests() {
  Json all;
  store(all, n_.bests);
  const nlohmann::json first = nlohmann::json::parse(from_first(*group_, all).dump());
  n_.bests = stored_bests(StoredJson(first));
}

std::vector<int64_t> Trainer::best_steps() const {
  std::vector<int64_t> out;
  for (const Best& b : n_.bests.list) out.push_back(b.step);
  return out;
}

void Trainer::share_buffers() {
  if (group_) average_buffers(*s_.model, *group_, double(std::exchange(own_samples_, 0)));
}

// What was saved without waiting for the disk is on it when a run ends.
void Trainer::settle() {
  if (!writes(group_) || !pace_.has_pending()) return;
  dir_.sync();
  settle_checkpoints(dir_.path(), pace_, config_.checkpoint.keep_last, best_steps());
}

// Rank 0 writes; where ranks share the optimizer's states, it first gathers them.
void Trainer::write_checkpoint() {
  const std::vector<int64_t> best = best_steps();
  CheckpointContents contents;
  if (writes(group_) || s_.optimizer->is_sharded()) contents = pack(s_, config_.json, n_, group_);
  if (writes(group_)) save_checkpoint(dir_.path(), n_.applied(), contents, config_.checkpoint.keep_last, best, &pace_);
  if (group_) group_->wait(group_->barrier());  // no rank ends before the checkpoint is whole
}

// Makes a checkpoint of now one of the best if `what` is monitored and few were better (best.h). Which ones are the best is in the
// checkpoint itself, so that a run that dies before `best` is written finds it again.
void Trainer::consider_best(const std::string& what, std::optional<double> value, int64_t samples) {
  const CheckpointSection& ck = config_.checkpoint;
  if (ck.monitor != what || ck.keep_best < 1 || ck.every.unit == Interval::Unit::never) return;
  if (!value || !std::isfinite(*value)) return;
  const BestRule rule{.larger_is_better = ck.mode == "max", .samples = samples, .keep = ck.keep_best};
  const Bests before = n_.bests;
  std::optional<Bests> after = rule.with(before, {*value, n_.applied(), epoch_now()});
  if (!after) return;
  n_.bests = std::move(*after);
  saved_.reset();
  save();
  if (!saved_)
    n_.bests = before;
  else if (n_.bests.step() == n_.applied() && writes(group_))
    mark_best(dir_.path(), n_.applied(), Waits::no);
}

// Outcomes that have not been read count as applied until they are: they are read where that matters, so that nothing comes late.
bool Trainer::applied_steps_reach(int64_t count) {
  if (n_.applied() >= count) drain();
  return n_.applied() >= count;
}

bool Trainer::due(const Interval& every, bool epoch_end, Clock::time_point& last) {
  const auto at_multiple = [&] { return n_.applied() % int64_t(every.count) == 0; };
  switch (every.unit) {
    case Interval::Unit::never: return false;
    case Interval::Unit::steps:
      if (epoch_end || !at_multiple()) return false;
      drain();
      return at_multiple() && skips_in_row_ == 0;  // a skipped step comes after the event of the applied one before it
    case Interval::Unit::epochs: return epoch_end && epoch() % int64_t(every.count) == 0;
    case Interval::Unit::seconds: break;
  }
  const uint32_t bit = &last == &last_log_ ? kLogDue : &last == &last_eval_ ? kEvalDue : kSaveDue;
  const bool now = group_ ? agreed_ & bit : std::chrono::duration<double>(Clock::now() - last).count() >= every.count;
  if (epoch_end || !now) return false;
  last = Clock::now();
  return true;
}

}  // namespace halfstep::app
