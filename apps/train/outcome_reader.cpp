// SPDX-License-Identifier: Apache-2.0
#include "apps/train/outcome_reader.h"

#include <algorithm>
#include <cmath>

namespace halfstep::app {
namespace {

// Losses in a row that are not finite, from which on a run has diverged: without a scaler, or at the run's end with one; and
// before its end with one, which may still find a scale that fits.
constexpr int64_t kBadLosses = 10, kBadLossesScaled = 100;
constexpr int64_t kSkipsAtLeastScale = 10;  // skips in a row from which on a run has diverged, if the scale cannot fall
constexpr double kLatestLossWeight = 0.02;  // of the latest loss in the usual one

}  // namespace

void OutcomeReader::read() {
  int64_t step = first_step_;
  for (const Pending& p : pending_) {
    if (p.stepped) ++step;
    const double loss = p.loss.defined() ? p.loss.item<double>() : NAN;
    const bool applied = !p.stepped || p.outcome.applied();
    if (p.stepped && !p.no_target) explainer_.add_outcome(step, applied, loss);
    // A step without targets says nothing about the scale, and does not end a row of skips.
    if (p.stepped) skips_in_row_ = applied ? 0 : p.no_target ? std::max<int64_t>(skips_in_row_, 1) : skips_in_row_ + 1;
    if (!applied) {
      run_.counters.last_skip = {step - run_.counters.skipped, p.no_target ? "targets_ignored" : ""};
      if (p.no_target)
        health_.note_no_target(run_.counters.last_skip->step);
      else
        health_.note_skip(run_.counters.last_skip->step, std::isfinite(loss));
      ++run_.counters.skipped;
    }
    const double denominator = p.loss.defined() ? p.denominator.value() : 0;
    if (denominator == 0) continue;  // no target counted
    bad_in_row_ = std::isfinite(loss) ? 0 : bad_in_row_ + 1;
    if (!std::isfinite(loss)) continue;
    if (!run_.counters.first_loss) run_.counters.first_loss = loss;
    for (auto* sum : {&run_.counters.epoch_loss_sum, &run_.counters.line_loss_sum}) *sum += loss * denominator;
    if (const double size = std::abs(loss); size > 0)
      run_.counters.usual_loss = run_.counters.usual_loss > 0
                                     ? run_.counters.usual_loss * std::pow(size / run_.counters.usual_loss, kLatestLossWeight)
                                     : size;
    run_.counters.epoch_denominator += denominator;
    run_.counters.line_denominator += denominator;
  }
  pending_.clear();
  first_step_ = run_.counters.attempted;
  if (bad_in_row_ >= (run_.session.scaler.is_enabled() ? kBadLossesScaled : kBadLosses))
    health_.fail_diverged(joined("the last ", bad_in_row_, " losses are not finite"));
  if (skips_in_row_ >= kSkipsAtLeastScale && run_.scale() &&
      *run_.scale() * run_.session.scaler.get_backoff_factor() < run_.session.scaler.get_min_scale())
    health_.fail_diverged(joined("the last ", skips_in_row_, " steps were skipped, and the loss scale, ", *run_.scale(),
                                 ", cannot fall below amp.scaler.min_scale"));
}

bool OutcomeReader::applied_reach(int64_t count) {
  if (run_.counters.applied() >= count) read();
  return run_.counters.applied() >= count;
}

bool OutcomeReader::are_bad_at_end() const { return bad_in_row_ >= (run_.session.scaler.is_enabled() ? kBadLosses : 1); }

}  // namespace halfstep::app
