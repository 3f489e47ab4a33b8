// SPDX-License-Identifier: Apache-2.0
#include "apps/train/run_health.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "apps/exit_codes.h"
#include "framework/backend/backend.h"

namespace halfstep::app {

void RunHealth::note_skip(int64_t step, bool loss_finite) {
  if (skip_noted_ || explainer_.has_explained()) return;
  skip_noted_ = true;
  if (!loss_finite)
    return run_.progress.note(joined("step ", step,
                                     " was skipped: its loss was not finite, and no weight has changed. "
                                     "\"train.detect_anomaly\": true finds the cause"));
  if (run_.session.scaler.is_fixed())
    return run_.progress.note(joined("step ", step, " was skipped: a gradient was not finite, as train.guard looks for"));
  run_.progress.note(joined("step ", step,
                            " was skipped: a gradient overflowed under the loss scale. The scaler lowers the scale until they fit; "
                            "a few skips, most at the start, are normal and change no weight"));
}

void RunHealth::note_no_target(int64_t step) {
  if (std::exchange(no_target_noted_, true)) return;
  run_.progress.note(
      joined("step ", step,
             " was skipped: none of its targets counts, as all are loss.ignore_index or of a class of weight 0. Such "
             "steps change nothing; \"skipped\" counts them"));
}

void RunHealth::learn_cause() {
  if (!run_.counters.last_skip) return;
  if (const std::string cause = explainer_.cause_of(run_.counters.last_skip->step); !cause.empty())
    run_.counters.last_skip->cause = cause;
}

void RunHealth::check_weights() const {
  const auto check_finite = [&](const std::string& name, const Tensor& t) {
    if (!t.defined()) return;
    const ValueCounts c = count_values(t);
    if (c.any_not_finite())
      fail_diverged(joined(name, " is not finite: ", c.nan, " NaN and ", c.inf(), " inf of ", c.numel, " values"));
  };
  const std::vector<NamedTensor> parameters = run_.session.model->named_parameters();
  for (const NamedTensor& p : parameters) check_finite(p.name, p.tensor);
  if (!run_.session.average) return;
  for (const Tensor& t : run_.session.average->averages()) check_finite("an average of the weights", t);
}

void RunHealth::check_progress() const {
  if (run_.counters.attempted == 0 || run_.counters.applied() > 0) return;
  const std::string now = run_.scale() ? joined("; the loss scale is ", *run_.scale(), " now") : "";
  const std::string cause = explainer_.last_cause();
  std::string advice = run_.scale()
                           ? R"("amp": {"scaler": {"init_scale": "auto"}} begins with a scale under which the first batches fit)"
                           : "train.guard skips steps whose gradients are not finite";
  if (run_.counters.last_skip && run_.counters.last_skip->cause == "targets_ignored")
    advice = "each step needs a target that is not loss.ignore_index and whose class has a weight above 0";
  else if (!cause.empty() && !cause.starts_with("overflow_scale"))  // a lower scale does not cure it
    advice = "the explanation above has the evidence, and what to change: " + cause;
  if (run_.saves() && run_.config.train.epochs && !run_.counters.stopped)
    advice += "; --resume auto with more train.epochs continues";
  fail<DivergedError>("train", "a run must apply a step, got ", run_.counters.attempted,
                      run_.counters.attempted == 1 ? " step that was" : " steps that were all", " skipped: no weight has changed",
                      now, Help{advice});
}

void RunHealth::fail_diverged(const std::string& fault) const {
  std::string advice = "a lower optimizer.lr, train.clip_grad_norm or scheduler.warmup_steps often helps";
  if (run_.session.low == DType::f16 && !run_.scale()) advice = "float16 without a scaler: set amp.scaler.enabled to \"auto\"";
  if (run_.session.low) advice += "; --no-amp shows whether the precision is to blame";
  const std::string& cause = explainer_.last_cause();
  if (!cause.empty()) advice = joined("the explanation above has the evidence, and what to change: ", cause);
  fail<DivergedError>("train", "the run diverged at step ", run_.counters.applied(), " (epoch ",
                      std::min(run_.epoch() + 1, run_.config.train.epochs.value_or(run_.epoch() + 1)), ", lr ",
                      run_.session.optimizer->lr(), "): ", fault, ", ", run_.counters.skipped, " steps skipped", Help{advice});
}

}  // namespace halfstep::app
