// SPDX-License-Identifier: Apache-2.0
#include "apps/run/trainer.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "amp/step/data_parallel.h"
#include "apps/catalog/datasets.h"
#include "apps/catalog/infer.h"
#include "apps/exit_codes.h"
#include "apps/run/averaged_statistics.h"
#include "apps/run/evaluate.h"
#include "apps/run/first_scale.h"
#include "apps/run/ranks.h"
#include "apps/run/signals.h"
#include "framework/backend/backend.h"
#include "framework/data/fingerprint.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {
namespace {

constexpr int64_t kBadLosses = 10;         // in a row, before a run without a scaler counts as diverged, or one that ends with them
constexpr int64_t kEmptyEpochs = 10;       // of parts of the data without a target that counts, before a run counts as endless
constexpr double kNewLoss = 0.02;          // share of the latest loss in the usual one
constexpr int64_t kBadLossesScaled = 100;  // with one: overflow may pass

}  // namespace

Trainer::Trainer(const Config& config, RunDir& dir, Progress& progress, ProcessGroup* group, Watch* watch)
    : config_(config),
      dir_(dir),
      progress_(progress),
      group_(group),
      recorded_(!watch),
      s_(make_session(config, group, dir.checkpoint() ? FirstValues::of_layers : FirstValues::with_files)),
      lines_(progress, s_.total_steps / std::max<int64_t>(1, s_.steps_per_epoch)),
      explainer_(config_, s_, step_, progress, dir, group, watch),
      step_(*s_.model, *s_.loss, *s_.optimizer, s_.scaler, s_.schedule.get(), explainer_.added_to(step_options(config, group))) {
  if (writes(group_)) s_.data_sha256 = fingerprint(s_.train->dataset());
  if (dir_.checkpoint()) {
    const CheckpointContents contents = load_checkpoint(*dir_.checkpoint(), s_.device);
    n_ = restore("resume", *dir_.checkpoint(), contents, s_);
    if (const std::string changed = changed_keys(config_.json, stored_config(contents), s_); !changed.empty())
      progress_.warn("the config differs from the checkpoint's in " + changed + ": the run will not repeat bit for bit");
    if (const int64_t now = s_.train->dataset().size(); now != n_.data_size)
      progress_.warn(joined("data.train has ", now, " samples, but had ", n_.data_size,
                            " when the checkpoint was written: the run will not repeat bit for bit"));
    else if (!n_.data_sha256.empty() && !s_.data_sha256.empty() && n_.data_sha256 != s_.data_sha256)
      progress_.warn("data.train has other samples than when the checkpoint was written: the run will not repeat bit for bit");
    if (!s_.other_pace.empty()) progress_.warn(s_.other_pace);
    earlier_seconds_ = n_.seconds;
    if (dir_.continues()) saved_ = {n_.steps, s_.train->state().next_batch}, saved_step_ = n_.applied();
    skip_noted_ = n_.skipped > 0;
    explainer_.resumed(n_.skipped, n_.usual_loss);
  } else if (config_.calibrates_scale) {
    GradScalerOptions fitting = config_.scaler;
    const double measured = first_scale(config_.scaler, s_, step_, group_);
    fitting.init_scale = std::max(measured, config_.scaler.min_scale);
    s_.scaler = GradScaler(fitting);
    if (measured < fitting.init_scale)
      progress_.warn(joined("the loss scale begins at amp.scaler.min_scale, ", fitting.init_scale,
                            ", under which the first batches "
                            "overflow: ",
                            measured, " was measured"));
  }
  first_step_ = first_pending_step_ = n_.steps;
  first_samples_ = n_.samples;
}

TrainSummary Trainer::run_steps() {
  start_ = last_log_ = last_eval_ = last_save_ = Clock::now();
  const auto stopped = [&](const std::string& when) {
    const bool interrupt = stop_requested() == SIGINT;
    lines_.end();
    progress_.line((interrupt ? "interrupted " : "stopped by a signal ") + when);
    return summary(interrupt ? Ending::interrupted : Ending::requeue);
  };
  if (group_) agree_on_start();
  if (stop_requested()) return stopped("before training began; nothing was changed");
  const ResumePoint from{n_.steps, n_.last_log_step, n_.last_eval_step, n_.bests.step(), n_.applied(), epoch()};
  const int64_t best = dir_.open(config_.json, from, config_.logging.sinks);
  if (recorded_) dir_.record_start(run_facts(), n_.applied());
  if (dir_.continues()) {  // of the best, those whose checkpoint is gone are forgotten: the next evaluation marks one
    const std::vector<int64_t> there = list_checkpoints(dir_.path());
    std::vector<Best>& list = n_.bests.list;
    if (n_.bests.step() < 0 && !list.empty()) list[0].step = best;  // of an older halfstep
    if (best != n_.bests.step()) n_.bests = {};
    std::erase_if(list, [&](const Best& b) { return std::find(there.begin(), there.end(), b.step) == there.end(); });
    if (group_) agree_on_bests();
  }
  introduce();
  if (progress_.has_bar()) show();
  s_.model->train();
  allocator(s_.device).reset_peak();
  logged_.samples = n_.samples;
  if (const int ended = std::exchange(n_.evaluation_due, 0)) finish(ended, s_.val != nullptr);
  while (!finished()) {
    train_batch();
    if (progress_.is_due()) show();
    if (explainer_.ended()) return summary(Ending::interrupted);
    // Stop only between optimizer steps, since checkpoints do not hold the gradients of an open window.
    if (stop_requested() && step_.pending() == 0) {
      save();
      return stopped(joined("after step ", n_.applied(), "; continue with --resume auto"));
    }
  }
  drain();
  // No checkpoint is written of such weights, so that a run that ends with them is not done.
  if (bad_run_ >= (s_.scaler.is_enabled() ? kBadLosses : 1)) diverged("the last losses are not finite");
  if (s_.val && n_.last_eval_step != n_.steps) save_before_evaluation(0), evaluate_now();
  if (n_.epoch_over > 0) consider_best("train/loss", n_.epoch_loss / n_.epoch_over);  // of an epoch cut short
  if (config_.checkpoint.every.unit != Interval::Unit::never)
    save();
  else
    dir_.established();  // a run that was to leave no checkpoint
  if (recorded_) check_progress();
  return summary(Ending::finished);
}

bool Trainer::finished() {
  if (n_.stopped) return true;
  const auto& epochs = config_.train.epochs;
  return epochs ? epoch() >= *epochs : applied_steps_reach(s_.total_steps);
}

void Trainer::train_batch() {
  if (profiler_ && step_.pending() == 0) profiler_->begin();
  std::optional<Batch> batch;
  if (s_.train->state().next_batch >= s_.batches_per_epoch && s_.batches_per_epoch < s_.train->size()) {
    s_.train->set_state({epoch() + 1, 0});
  } else {
    const ProfileEntry span(SpanKind::wait, "data");
    batch = s_.train->next();
  }
  if (!batch) return end_epoch();
  const auto [input, target] = on_device(*batch, s_.device);
  grad_norm_ = Tensor();  // nothing of a recorded step may be held when it is recorded anew
  agreed_ = 0;
  std::optional<BatchRows> part;
  if (group_) {
    part = s_.train->part();
    step_.notify(notices());
  }
  if (step_.pending() == 0 && explainer_.observes(n_.applied() + 1)) drain();
  explainer_.begin(n_.steps + 1, n_.applied(), epoch() + 1, {input, target});
  StepResult r = step_(input, target, part);
  explainer_.stepped(r);
  n_.samples += s_.train->part().total;
  own_samples_ += s_.train->part().rows;
  if (group_ && !r.stepped) return;
  // Ranks know a window's loss, one process each micro-batch's.
  pending_.push_back({r.loss, r.outcome, r.stepped, r.no_target, group_ ? r.over : s_.loss->denominator(target)});
  if (!r.stepped) return;
  if (group_) agree();
  grad_norm_ = r.grad_norm;
  ++n_.steps;
  if (profiler_) profiled(true);
  after_step();
}

void Trainer::end_epoch() {
  agreed_ = 0;
  if (group_) step_.notify(notices());
  const StepResult last = step_.flush();
  explainer_.stepped(last);
  if (last.stepped) {
    pending_.push_back({last.loss, last.outcome, true, last.no_target, last.over});
    if (group_) agree();
    grad_norm_ = last.grad_norm;
    ++n_.steps;
  }
  if (profiler_) profiled(last.stepped);
  reset_states(*s_.model);  // the streams of the data begin anew
  drain();
  // train.max_steps counts applied steps: where none of the data's targets counts it would never be reached.
  const bool whole = s_.batches_per_epoch == s_.train->size();
  if (!config_.train.epochs && n_.epoch_over == 0 && bad_run_ == 0 && (whole || epoch() >= kEmptyEpochs)) check_progress();
  n_.train_loss = n_.epoch_over > 0 ? std::optional(n_.epoch_loss / n_.epoch_over) : std::nullopt;
  n_.epoch_loss = 0, n_.epoch_over = 0;
  // In this order, so that a checkpoint has the lines of its step behind it, and none is written twice after resuming.
  const int ended = kEpochEnds | (last.stepped ? kStepEnds : 0);
  if (due_at(ended, config_.logging.every, last_log_))
    log(true);
  else
    log_epoch();
  finish(ended, s_.val && due_at(ended, config_.train.eval_every, last_eval_));
}

void Trainer::after_step() {
  if (due(config_.logging.every, false, last_log_)) log();
  finish(kStepEnds, s_.val && n_.last_eval_step != n_.steps && due(config_.train.eval_every, false, last_eval_));
}

void Trainer::drain() {
  int64_t step = first_pending_step_;
  for (const Pending& p : pending_) {
    if (p.stepped) ++step;
    const double loss = p.loss.defined() ? p.loss.item<double>() : NAN;
    const bool applied = !p.stepped || p.outcome.applied();
    if (p.stepped && !p.no_target) explainer_.read(step, applied, loss);
    // A step without targets says nothing about the scale, and ends no row of skips.
    if (p.stepped) skips_in_row_ = applied ? 0 : p.no_target ? std::max<int64_t>(skips_in_row_, 1) : skips_in_row_ + 1;
    if (!applied) {
      n_.last_skip = {step - n_.skipped, p.no_target ? "targets_ignored" : ""};
      if (p.no_target)
        note_no_target(n_.last_skip->step);
      else
        note_first_skip(n_.last_skip->step, std::isfinite(loss));
      ++n_.skipped;
    }
    const double over = p.loss.defined() ? p.over.value() : 0;
    if (over == 0) continue;  // nothing was learned from it
    bad_run_ = std::isfinite(loss) ? 0 : bad_run_ + 1;
    if (!std::isfinite(loss)) continue;
    if (!n_.first_loss) n_.first_loss = loss;
    for (auto* sum : {&n_.epoch_loss, &n_.window_loss}) *sum += loss * over;
    if (const double size = std::abs(loss); size > 0)
      n_.usual_loss = n_.usual_loss > 0 ? n_.usual_loss * std::pow(size / n_.usual_loss, kNewLoss) : size;
    n_.epoch_over += over;
    n_.window_over += over;
  }
  pending_.clear();
  first_pending_step_ = n_.steps;
  if (bad_run_ >= (s_.scaler.is_enabled() ? kBadLossesScaled : kBadLosses))
    diverged(joined("the last ", bad_run_, " losses are not finite"));
  if (skips_in_row_ >= kBadLosses && scale() && *scale() * s_.scaler.get_backoff_factor() < s_.scaler.get_min_scale())
    diverged(joined("the last ", skips_in_row_, " steps were skipped, and the loss scale, ", *scale(),
                    ", cannot fall below amp.scaler.min_scale"));
}

// The line of an epoch at whose end no other is due. It leaves the window of the next training line open.
void Trainer::log_epoch() {
  dir_.metrics().write({{"step", n_.applied()},
                        {"attempted", n_.steps},
                        {"epoch", epoch()},
                        {"train/epoch_loss", or_null(n_.train_loss)},
                        {"samples", n_.samples},
                        {"seconds", seconds()}});
}

void Trainer::log(bool epoch_end) {
  drain();
  const double loss = n_.window_over > 0 ? n_.window_loss / n_.window_over : NAN;
  const double spent = std::max(1e-9, training_seconds() - logged_.seconds), wait = s_.train->wait_seconds() - logged_.wait;
  Json entry = {{"step", n_.applied()},
                {"attempted", n_.steps},
                {"epoch", epoch()},
                {"train/loss", n_.window_over > 0 ? Json(loss) : Json()},
                {"lr", s_.optimizer->lr()},
                {"skipped", n_.skipped},
                {"samples", n_.samples},
                {"seconds", seconds()},
                {"samples_per_second", double(n_.samples - logged_.samples) / spent},
                {"data_wait", std::clamp(wait / spent, 0.0, 1.0)},
                {"peak_bytes", allocator(s_.device).stats().peak}};
  if (epoch_end) entry["train/epoch_loss"] = or_null(n_.train_loss);
  if (group_) entry["rank_wait"] = std::clamp((group_->wait_seconds() - logged_.rank_wait) / spent, 0.0, 1.0);
  if (scale()) entry["scale"] = *scale();
  learn_cause();
  if (const auto& skip = n_.last_skip)
    entry["last_skip"] = {{"step", skip->step}, {"cause", skip->cause.empty() ? Json() : Json(skip->cause)}};
  if (grad_norm_.defined()) entry["grad_norm"] = or_null(grad_norm_.item<double>());
  n_.last_log_step = n_.steps;
  dir_.metrics().write(entry);
  show();
  n_.window_loss = 0, n_.window_over = 0;
  logged_ = {training_seconds(), s_.train->wait_seconds(), group_ ? group_->wait_seconds() : 0, n_.samples};
}

// A step may be explained after its outcome was read.
void Trainer::learn_cause() {
  if (!n_.last_skip) return;
  if (const std::string cause = explainer_.cause_of(n_.last_skip->step); !cause.empty()) n_.last_skip->cause = cause;
}

void Trainer::evaluate_now() {
  drain();
  if (progress_.has_bar()) show(true);
  share_buffers();
  make_averaged_statistics();
  std::optional<WeightAverage::Scope> averaged;
  if (s_.average) averaged.emplace(*s_.average);
  std::optional<AveragedStatistics> statistics(s_);
  const EvalResult r = evaluate(*s_.model, *s_.loss, config_.loss, s_.metrics, *s_.val, s_.device, s_.region, group_);
  statistics.reset(), averaged.reset();
  eval_seconds_ += r.seconds;
  n_.val_loss = r.loss, n_.val_metrics = r.metrics, n_.last_eval_step = n_.steps;
  Json entry = {{"step", n_.applied()}, {"attempted", n_.steps}, {"epoch", epoch()}, {"val/loss", or_null(r.loss)}};
  for (const MetricValue& m : r.metrics) {
    entry["val/" + m.name] = or_null(m.value);
    if (m.last_value) entry["val/" + m.name + ".last_value"] = or_null(*m.last_value);
    if (!m.details.is_null()) entry["val/" + m.name + "/table"] = m.details;
  }
  dir_.metrics().write(entry);
  consider_stopping("val/loss", r.loss);
  for (const MetricValue& m : r.metrics) consider_stopping("val/" + m.name, m.value);
  consider_best("val/loss", r.loss);
  for (const MetricValue& m : r.metrics)
    consider_best("val/" + m.name, m.value, !m.is_share ? 0 : m.counted > 0 ? m.counted : r.samples);
}

// What a value decides: a schedule that looks at it, and whether training ends. Before a checkpoint of this moment is written, so
// that it holds the decisions.
void Trainer::consider_stopping(const std::string& what, std::optional<double> value) {
  if (s_.schedule && config_.checkpoint.monitor == what && value) s_.schedule->observe(*value);
  const Json& stop = config_.train.early_stopping;
  if (stop.is_null() || stop["monitor"] != what || n_.stopped) return;
  const double least = stop["min_delta"];
  const bool finite = value && std::isfinite(*value);
  const bool better =
      finite && (!n_.stop_best || (stop["mode"] == "max" ? *value > *n_.stop_best + least : *value < *n_.stop_best - least));
  if (better) n_.stop_best = value;
  n_.stop_waited = better ? 0 : n_.stop_waited + 1;
  if (n_.stop_waited < stop["patience"].get<int64_t>()) return;
  n_.stopped = true;
  progress_.note(joined("stopped early: ", what, " got no better than ", n_.stop_best ? number_text(*n_.stop_best, 4) : "nothing",
                        " in ", n_.stop_waited, " evaluations"));
}

// Weights that only skipped steps lie behind are saved already. The older checkpoint stays, since `halfstep doctor` can compute
// those steps again from there.
void Trainer::save_at_interval() {
  drain();
  if (saved_step_ != n_.applied()) save();
}

void Trainer::save() {
  drain();
  const std::pair<int64_t, int64_t> now{n_.steps, s_.train->state().next_batch};
  if (saved_ == now) return;
  if (bad_run_ > 0 && !s_.scaler.is_enabled()) {
    progress_.warn(joined("the loss is not finite at step ", n_.applied(), ": no checkpoint was written"));
    return;
  }
  check_weights();
  n_.seconds = seconds();
  learn_cause();
  share_buffers();
  make_averaged_statistics();
  if (pace_.is_due()) dir_.sync();  // a checkpoint promises the lines until its step
  write_checkpoint();
  saved_ = now;
  saved_step_ = n_.applied();
  dir_.established();
}

void Trainer::make_averaged_statistics() {
  const auto begin = Clock::now();
  app::make_averaged_statistics(s_, config_.train, n_.steps, group_);
  eval_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
}

double Trainer::seconds() const { return earlier_seconds_ + std::chrono::duration<double>(Clock::now() - start_).count(); }

double Trainer::training_seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count() - eval_seconds_; }

std::optional<double> Trainer::scale() const {
  return s_.scaler.is_enabled() && !s_.scaler.is_fixed() ? std::optional(s_.scaler.get_scale()) : std::nullopt;
}

}  // namespace halfstep::app
