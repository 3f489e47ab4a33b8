// SPDX-License-Identifier: Apache-2.0
#include "apps/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "apps/catalog/infer.h"
#include "apps/record/data_files.h"
#include "apps/session/averaged_statistics.h"
#include "apps/session/evaluate.h"
#include "apps/session/first_scale.h"
#include "apps/session/ranks.h"
#include "apps/session/seen_samples.h"
#include "apps/terminal/quantity_text.h"
#include "apps/train/resume_checks.h"
#include "framework/backend/backend.h"
#include "framework/data/loading/fingerprint.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {
namespace {

constexpr int64_t kEmptyEpochs = 10;  // passes over the data in which no target counts, before the run is stopped as endless

}  // namespace

Trainer::Trainer(const Config& config, RunDir& dir, Progress& progress, ProcessGroup* group, Watch* watch)
    : run_{config, dir, progress, group,
           make_session(config, group, dir.checkpoint() ? FirstValues::of_layers : FirstValues::with_files)},
      is_recorded_(!watch),
      explainer_(run_.config, run_.session, step_, progress, dir, group, watch),
      step_(*run_.session.model, *run_.session.loss, *run_.session.optimizer, run_.session.scaler, run_.session.schedule.get(),
            explainer_.with_callbacks(step_options(config, group))) {
  if (writes(run_.group)) {
    run_.session.data_sha256 = fingerprint(run_.session.train->dataset());
    run_.session.val_sha256 = fingerprint_of_val();
    const std::string same = samples_of_training(run_.config.json, run_.session.val_sha256, run_.session.data_sha256);
    if (!same.empty()) run_.progress.warn(same + ": its values say nothing about new data");
  }
  if (run_.dir.checkpoint())
    resume(*run_.dir.checkpoint());
  else if (run_.config.calibrates_scale)
    calibrate_scale();
  run_.first_step = run_.counters.attempted;
  outcomes_.begin();
  run_.first_samples = run_.counters.samples;
}

// Restores the state of a checkpoint, and warns of differences after which the run does not repeat bit for bit.
void Trainer::resume(const std::filesystem::path& checkpoint) {
  CheckpointContents contents = load_checkpoint(checkpoint, run_.session.device);
  const ForgottenValues other_values = forget_other_values(contents, run_.session, run_.config.json, run_.group);
  run_.counters = restore("resume", checkpoint, contents, run_.session);
  const std::string other_scale = check_meanings(contents, run_.session, run_.config.json);
  if (const std::string changed = changed_keys(run_.config.json, stored_config(contents), run_.session); !changed.empty())
    run_.progress.warn("the config differs from the checkpoint's in " + changed + ": the run will not repeat bit for bit");
  if (const int64_t now = run_.session.train->dataset().size(); now != run_.counters.data_size)
    run_.progress.warn(joined("data.train has ", now, " samples, but had ", run_.counters.data_size,
                              " when the checkpoint was written: the run will not repeat bit for bit"));
  else if (!run_.counters.data_sha256.empty() && !run_.session.data_sha256.empty() &&
           run_.counters.data_sha256 != run_.session.data_sha256)
    run_.progress.warn("data.train has other samples than when the checkpoint was written: the run will not repeat bit for bit");
  warn_of_seen_samples(contents);
  for (const std::string& former : run_.counters.past.lines()) run_.progress.warn(former);
  for (const std::string& warning : {other_scale, other_values.warning})
    if (!warning.empty()) run_.progress.warn(warning);
  for (const std::string& change : {other_scale, other_values.reason})
    if (!change.empty()) run_.counters.past.keep_change(run_.counters.applied(), change);
  if (!run_.session.pace_warning.empty()) run_.progress.warn(run_.session.pace_warning);
  run_.clock.continue_from(run_.counters.seconds);
  if (run_.dir.continues()) saver_.mark_as_saved();
  health_.continue_from_counters();
  explainer_.continue_from(run_.counters.skipped, run_.counters.usual_loss);
}

// Returns nothing for samples that cannot be read: the evaluation that needs them says so.
std::string Trainer::fingerprint_of_val() const {
  if (!run_.session.val) return "";
  try {
    return fingerprint(run_.session.val->dataset());
  } catch (const DataError&) { return ""; }
}

// Warns of held-out data with samples that the run has trained on, which is no measure any more.
void Trainer::warn_of_seen_samples(const CheckpointContents& contents) {
  const std::string& then = run_.counters.data_sha256;
  const bool data_changed = run_.session.train->dataset().size() != run_.counters.data_size ||
                            (!then.empty() && !run_.session.data_sha256.empty() && run_.session.data_sha256 != then);
  const Json& config = run_.config.json;
  const std::string& now = run_.session.data_sha256;
  const TrainedRun former = trained_run(contents, &run_.session.form);
  for (const std::string& line : newly_seen_samples(config, former, run_.session.val_sha256, now, data_changed))
    run_.progress.warn(line +
                       "; its values say nothing about new data: continue with the same parts, seed and files, or train "
                       "anew in another output_dir");
  run_.counters.past.keep_samples(samples_of(former.config, then), samples_of(config, now));
}

// Measures the first scale that fits the first batches, and begins with it.
void Trainer::calibrate_scale() {
  GradScalerOptions options = run_.config.scaler;
  const double measured = first_scale(run_.config.scaler, run_.session, step_, run_.group);
  options.init_scale = std::max(measured, run_.config.scaler.min_scale);
  run_.session.scaler = GradScaler(options);
  if (measured < options.init_scale)
    run_.progress.warn(joined("the loss scale begins at amp.scaler.min_scale, ", options.init_scale,
                              ", under which the first batches overflow: ", measured, " was measured"));
}

TrainSummary Trainer::run() {
  try {
    TrainSummary out = run_steps();
    saver_.wait_until_written();
    profile_.end_run();
    if (is_recorded_)
      run_.dir.record_end(out.ending == Ending::finished      ? "finished"
                          : out.ending == Ending::interrupted ? "interrupted"
                                                              : "requeue",
                          out.json);
    return out;
  } catch (const std::exception& e) {
    lines_.print_pending();
    try {
      saver_.wait_until_written();
    } catch (const Error& later) { run_.progress.warn(one_line(later)); }
    if (is_recorded_) run_.dir.record_end("failed", {{"error", e.what()}});
    throw;
  }
}

TrainSummary Trainer::run_steps() {
  run_.clock.start();
  due_.start();
  const auto stopped = [&](const std::string& when) {
    const bool interrupt = ranks_.stop_requested() == SIGINT;
    lines_.print_pending();
    run_.progress.line((interrupt ? "interrupted " : "stopped by a signal ") + when);
    return ending_.summary(interrupt ? Ending::interrupted : Ending::requeue);
  };
  ranks_.adopt_early_signals();
  if (ranks_.stop_requested()) return stopped("before training began; nothing was changed");
  const ResumePoint from{run_.counters.attempted,    run_.counters.last_log_step, run_.counters.last_eval_step,
                         run_.counters.bests.step(), run_.counters.applied(),     run_.epoch()};
  const int64_t best = run_.dir.open(run_.config.json, from, run_.config.logging.sinks);
  if (is_recorded_) run_.dir.record_start(run_facts(), run_.counters.applied());
  if (run_.dir.continues()) bests_.continue_from(best);
  lines_.introduce();
  if (run_.progress.has_bar()) lines_.update_bar();
  run_.session.model->train();
  allocator(run_.session.device).reset_peak();
  lines_.begin_interval();
  if (const int ended = std::exchange(run_.counters.evaluation_due, 0)) follow_up(ended, run_.session.val != nullptr);
  while (!is_finished()) {
    train_batch();
    if (run_.progress.is_due()) lines_.update_bar();
    if (explainer_.ended()) return ending_.summary(Ending::interrupted);
    // Stop only between optimizer steps, since checkpoints do not contain the gradients of an open window.
    if (ranks_.stop_requested() && step_.pending() == 0) {
      saver_.save();
      return stopped(joined("after step ", run_.counters.applied(), "; continue with --resume auto"));
    }
  }
  outcomes_.read();
  // Such weights are not saved, so the run must not end successfully.
  if (outcomes_.are_bad_at_end()) health_.fail_diverged("the last losses are not finite");
  if (run_.session.val && run_.counters.last_eval_step != run_.counters.attempted)
    saver_.save_before_evaluation(0), evaluate_and_consider();
  if (run_.counters.epoch_denominator > 0)
    bests_.consider("train/loss", run_.counters.epoch_loss_sum / run_.counters.epoch_denominator);  // for an incomplete epoch
  if (run_.saves())
    saver_.save();
  else
    run_.dir.discard_overwritten();  // for a run that leaves no checkpoint
  if (is_recorded_) health_.check_progress();
  TrainSummary out = ending_.summary(Ending::finished);
  lines_.print_pending();
  ending_.report(out.json, outcomes_.skips_in_row());
  return out;
}

bool Trainer::is_finished() {
  if (run_.counters.stopped) return true;
  const auto& epochs = run_.config.train.epochs;
  return epochs ? run_.epoch() >= *epochs : outcomes_.applied_reach(run_.session.total_steps);
}

void Trainer::train_batch() {
  if (step_.pending() == 0) profile_.begin_step();
  std::optional<Batch> batch;
  if (run_.session.train->state().next_batch >= run_.session.batches_per_epoch &&
      run_.session.batches_per_epoch < run_.session.train->size()) {
    run_.session.train->set_state({run_.epoch() + 1, 0});
  } else {
    const CallScope span(SpanKind::wait, "data");
    batch = run_.session.train->next();
  }
  if (!batch) return end_epoch();
  const auto [input, target] = on_device(*batch, run_.session.device);
  run_.grad_norm = Tensor();  // a recorded step's memory must not be held when the step is recorded again
  ranks_.forget_notices();
  std::optional<BatchRows> part;
  if (run_.group) {
    part = run_.session.train->part();
    ranks_.notify(step_, due_.due_by_clock());
  }
  if (step_.pending() == 0 && explainer_.observes(run_.counters.applied() + 1)) outcomes_.read();
  explainer_.begin(run_.counters.attempted + 1, run_.counters.applied(), run_.epoch() + 1, {input, target});
  StepResult r = step_(input, target, part);
  explainer_.end(r);
  run_.counters.samples += run_.session.train->part().total;
  run_.own_samples += run_.session.train->part().rows;
  if (run_.group && !r.stepped) return;
  // With ranks a window has one loss, in one process each micro-batch.
  outcomes_.add({r.loss, r.outcome, r.stepped, r.no_target, run_.group ? r.denominator : run_.session.loss->denominator(target)});
  if (!r.stepped) return;
  ranks_.take_notices(step_);
  run_.grad_norm = r.grad_norm;
  ++run_.counters.attempted;
  profile_.end_step(true);
  if (run_.config.train.swa.follows_epochs()) {
    const bool ends_epoch =
        run_.session.train->left() <= 0 || run_.session.train->state().next_batch >= run_.session.batches_per_epoch;
    if (ends_epoch || is_finished()) average_weights(run_.epoch() + 1);
  }
  after_step();
}

// Takes the weights into the mean of train.swa, at the end of an epoch or of the run, unless that is before averaging begins.
void Trainer::average_weights(int64_t epochs) {
  const TrainSection& t = run_.config.train;
  outcomes_.read();  // for the number of applied steps
  const bool begins =
      t.epochs ? epochs > t.swa.steps_before(*t.epochs) : run_.counters.applied() > t.swa.steps_before(*t.max_steps);
  if (begins) run_.session.average->update();
}

void Trainer::end_epoch() {
  ranks_.forget_notices();
  if (run_.group) ranks_.notify(step_, due_.due_by_clock());
  const StepResult last = step_.flush();
  explainer_.end(last);
  if (last.stepped) {
    outcomes_.add({last.loss, last.outcome, true, last.no_target, last.denominator});
    ranks_.take_notices(step_);
    run_.grad_norm = last.grad_norm;
    ++run_.counters.attempted;
    if (run_.config.train.swa.follows_epochs()) average_weights(run_.epoch());
  }
  profile_.end_step(last.stepped);
  reset_states(*run_.session.model);  // the data's streams begin again
  outcomes_.read();
  // train.max_steps counts applied steps, and would never be reached if no target of the data counts.
  const bool whole_epoch = run_.session.batches_per_epoch == run_.session.train->size();
  if (!run_.config.train.epochs && run_.counters.epoch_denominator == 0 && outcomes_.bad_losses() == 0 &&
      (whole_epoch || run_.epoch() >= kEmptyEpochs))
    health_.check_progress();
  run_.counters.train_loss = run_.counters.epoch_denominator > 0
                                 ? std::optional(run_.counters.epoch_loss_sum / run_.counters.epoch_denominator)
                                 : std::nullopt;
  run_.counters.epoch_loss_sum = 0, run_.counters.epoch_denominator = 0;
  // Keep this order: a checkpoint then follows the lines of its step, and resuming writes none twice.
  const int ended = kEpochEnds | (last.stepped ? kStepEnds : 0);
  if (due_.take_due(Due::log, ended))
    log(true);
  else
    lines_.log_epoch();
  follow_up(ended, run_.session.val && due_.take_due(Due::evaluation, ended));
}

void Trainer::after_step() {
  if (due_.take_due(Due::log, kStepEnds)) log(false);
  follow_up(kStepEnds, run_.session.val && run_.counters.last_eval_step != run_.counters.attempted &&
                           due_.take_due(Due::evaluation, kStepEnds));
}

void Trainer::follow_up(int ended, bool evaluates) {
  if (evaluates) saver_.save_before_evaluation(ended), evaluate_and_consider();
  if (ended & kEpochEnds) {
    observe_value("train/loss", run_.counters.train_loss);
    bests_.consider("train/loss", run_.counters.train_loss);
    lines_.end_epoch(evaluates, run_.counters.bests.step() == run_.counters.applied() &&
                                    run_.counters.bests.list[0].value == run_.counters.bests.top);
  }
  if (due_.take_due(Due::checkpoint, ended)) saver_.save_at_interval();
}

void Trainer::log(bool epoch_end) {
  outcomes_.read();
  health_.learn_cause();
  lines_.log(epoch_end);
}

void Trainer::evaluate_and_consider() {
  outcomes_.read();
  if (run_.progress.has_bar()) lines_.update_bar(true);
  run_.share_buffers();
  run_.make_averaged_statistics();
  std::optional<WeightAverage::Scope> averaged;
  if (run_.session.average) averaged.emplace(*run_.session.average);
  std::optional<AveragedStatistics> statistics(run_.session);
  const EvalResult r = evaluate(*run_.session.model, *run_.session.loss, run_.config.loss, run_.session.metrics, *run_.session.val,
                                run_.session.device, run_.session.region, run_.group);
  statistics.reset(), averaged.reset();
  run_.clock.exclude_evaluation(r.seconds);
  run_.counters.val_loss = r.loss, run_.counters.val_metrics = r.metrics, run_.counters.last_eval_step = run_.counters.attempted;
  Json entry = {{"step", run_.counters.applied()},
                {"attempted", run_.counters.attempted},
                {"epoch", run_.epoch()},
                {"val/loss", or_null(r.loss)}};
  for (const MetricValue& m : r.metrics) {
    entry["val/" + m.name] = or_null(m.value);
    if (m.last_value) entry["val/" + m.name + ".last_value"] = or_null(*m.last_value);
    if (!m.details.is_null()) entry["val/" + m.name + "/table"] = m.details;
  }
  run_.dir.metrics().write(entry);
  observe_value("val/loss", r.loss);
  for (const MetricValue& m : r.metrics) observe_value("val/" + m.name, m.value);
  bests_.consider("val/loss", r.loss);
  for (const MetricValue& m : r.metrics)
    bests_.consider("val/" + m.name, m.value, !m.is_share ? 0 : m.counted > 0 ? m.counted : r.samples);
}

void Trainer::observe_value(const std::string& metric, std::optional<double> value) {
  if (run_.session.schedule && run_.config.checkpoint.monitor == metric && value) run_.session.schedule->observe(*value);
  const Json& rule = run_.config.train.early_stopping;
  if (rule.is_null() || rule["monitor"] != metric || run_.counters.stopped) return;
  const double min_delta = rule["min_delta"];
  const bool is_finite = value && std::isfinite(*value);
  const bool is_better =
      is_finite && (!run_.counters.stop_best || (rule["mode"] == "max" ? *value > *run_.counters.stop_best + min_delta
                                                                       : *value < *run_.counters.stop_best - min_delta));
  if (is_better) run_.counters.stop_best = value;
  run_.counters.stop_waited = is_better ? 0 : run_.counters.stop_waited + 1;
  if (run_.counters.stop_waited < rule["patience"].get<int64_t>()) return;
  run_.counters.stopped = true;
  run_.progress.note(joined("stopped early: ", metric, " got no better than ",
                            run_.counters.stop_best ? number_text(*run_.counters.stop_best, 4) : "nothing", " in ",
                            run_.counters.stop_waited, " evaluations"));
}

Json Trainer::run_facts() const {
  Json out = {{"device", backend_for(run_.session.device).describe()},
              {"threads", num_threads()},
              {"ranks", run_.group ? run_.group->size() : 1}};
  if (!run_.session.data_sha256.empty()) out["data_sha256"] = run_.session.data_sha256;
  const Json files = writes(run_.group) ? data_files_sha256(run_.config.json) : Json();
  if (!files.empty()) out["files_sha256"] = files;
  if (run_.session.recomputation) out["recomputation"] = to_json(*run_.session.recomputation);
  if (run_.config.logging.machine) out["host"] = host_name(), out["command"] = command_line();
  return out;
}

}  // namespace halfstep::app
