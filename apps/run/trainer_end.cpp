// SPDX-License-Identifier: Apache-2.0
// What a run checks, says and gives back when it ends.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <utility>
#include <variant>

#include "apps/catalog/infer.h"
#include "apps/exit_codes.h"
#include "apps/run/plan.h"
#include "apps/run/ranks.h"
#include "apps/run/trainer.h"
#include "apps/schema/shell_word.h"
#include "framework/backend/backend.h"
#include "framework/base/number_text.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {
namespace {

constexpr double kFarAbove = 10;       // times the first loss: it rose
constexpr double kEnoughSamples = 50;  // for an accuracy that is compared with guessing
constexpr double kManySkips = 0.25;    // of all steps: more than a scale that looks for its place costs

}  // namespace

Json or_null(const std::optional<double>& v) { return v && std::isfinite(*v) ? Json(*v) : Json(); }

std::string shown(const MetricValue& m) {
  if (!m.is_share) return m.name + " " + number_text(m.value, 4);
  return m.name + " " + fixed_text(100 * m.value, 2) + " %";
}

// Losses may stay finite while an update breaks weights that no batch uses.
void Trainer::check_weights() {
  const auto look = [&](const std::string& name, const Tensor& t) {
    if (!t.defined()) return;
    const ValueCounts c = count_values(t);
    if (c.bad()) diverged(joined(name, " is not finite: ", c.nan, " NaN and ", c.inf(), " inf of ", c.numel, " values"));
  };
  const std::vector<NamedTensor> parameters = s_.model->named_parameters();
  for (const NamedTensor& p : parameters) look(p.name, p.tensor);
  if (!s_.average) return;
  for (const Tensor& t : s_.average->averages()) look("an average of the weights", t);
}

bool Trainer::due_at(int ended, const Interval& every, Clock::time_point& last) {
  return ((ended & kEpochEnds) && due(every, true, last)) || ((ended & kStepEnds) && due(every, false, last));
}

void Trainer::finish(int ended, bool evaluates) {
  if (evaluates) save_before_evaluation(ended), evaluate_now();
  if (ended & kEpochEnds) {
    consider_stopping("train/loss", n_.train_loss);
    consider_best("train/loss", n_.train_loss);
    lines_.add(epoch(), epoch_parts(evaluates), n_.bests.step() == n_.applied() && n_.bests.list[0].value == n_.bests.top);
  }
  if (due_at(ended, config_.checkpoint.every, last_save_)) save_at_interval();
}

void Trainer::save_before_evaluation(int ended) {
  if (saved_step_ != -1 || config_.checkpoint.every.unit == Interval::Unit::never) return;
  drain();
  if (bad_run_ > 0) return;
  n_.evaluation_due = ended;
  save();
  n_.evaluation_due = 0;
  saved_.reset(), saved_step_ = kSecured;  // a checkpoint of the same step with the evaluation's results replaces it
}

// Its weights are the first values, which nobody wants to evaluate or export by mistake. All is saved, the scale included.
void Trainer::check_progress() const {
  if (n_.steps == 0 || n_.applied() > 0) return;
  const std::string now = scale() ? joined("; the loss scale is ", *scale(), " now") : "";
  const std::string cause = explainer_.last_cause();
  std::string advice = scale()
                           ? R"("amp": {"scaler": {"init_scale": "auto"}} begins with a scale under which the first batches fit)"
                           : "train.guard skips steps whose gradients are not finite";
  if (n_.last_skip && n_.last_skip->cause == "targets_ignored")
    advice = "each step needs a target that is not loss.ignore_index and whose class has a weight above 0";
  else if (!cause.empty() && !cause.starts_with("overflow_scale"))  // no scale mends it
    advice = "the explanation above has the evidence, and what to change: " + cause;
  if (config_.checkpoint.every.unit != Interval::Unit::never && config_.train.epochs && !n_.stopped)
    advice += "; --resume auto with more train.epochs continues";
  fail<DivergedError>("train", "a run must apply a step, got ", n_.steps, n_.steps == 1 ? " step that was" : " steps that were all",
                      " skipped: no weight has changed", now, Help{advice});
}

void Trainer::note_first_skip(int64_t step, bool loss_finite) {
  if (skip_noted_ || explainer_.has_explained()) return;
  skip_noted_ = true;
  if (!loss_finite)
    return progress_.note(joined("step ", step,
                                 " was skipped: its loss was not finite, and no weight has changed. "
                                 "\"train.detect_anomaly\": true finds the cause"));
  if (s_.scaler.is_fixed())
    return progress_.note(joined("step ", step, " was skipped: a gradient was not finite, as train.guard looks for"));
  progress_.note(joined("step ", step,
                        " was skipped: a gradient overflowed under the loss scale. The scaler lowers the scale until they fit; "
                        "a few skips, most at the start, are normal and change no weight"));
}

void Trainer::note_no_target(int64_t step) {
  if (std::exchange(no_target_noted_, true)) return;
  progress_.note(joined("step ", step,
                        " was skipped: none of its targets counts, as all are loss.ignore_index or of a class of weight 0. Such "
                        "steps change nothing; \"skipped\" counts them"));
}

void Trainer::diverged(const std::string& what) {
  std::string advice = "a lower optimizer.lr, train.clip_grad_norm or scheduler.warmup_steps often helps";
  if (s_.low == DType::f16 && !scale()) advice = "float16 without a scaler: set amp.scaler.enabled to \"auto\"";
  if (s_.low) advice += "; --no-amp shows whether the precision is to blame";
  const std::string& cause = explainer_.last_cause();
  if (!cause.empty()) advice = joined("the explanation above has the evidence, and what to change: ", cause);
  fail<DivergedError>("train", "the run diverged at step ", n_.applied(), " (epoch ",
                      std::min(epoch() + 1, config_.train.epochs.value_or(epoch() + 1)), ", lr ", s_.optimizer->lr(), "): ", what,
                      ", ", n_.skipped, " steps skipped", Help{advice});
}

TrainSummary Trainer::run() {
  try {
    TrainSummary out = run_steps();
    settle();
    if (profiler_ && !profiler_->done()) report_profile();
    if (recorded_)
      dir_.record_end(out.ending == Ending::finished      ? "finished"
                      : out.ending == Ending::interrupted ? "interrupted"
                                                          : "requeue",
                      out.json);
    return out;
  } catch (const std::exception& e) {
    lines_.end();
    try {
      settle();
    } catch (const Error& later) { progress_.warn(one_line(later)); }
    if (recorded_) dir_.record_end("failed", {{"error", e.what()}});
    throw;
  }
}

void Trainer::profile(int64_t steps) {
  if (!writes(group_)) return;
  progress_.line("profile: measuring what this machine can do");
  MachineRates rates(s_.device);
  PlannedCalls planned;
  try {
    planned = planned_calls(plan_step(config_, 0, group_ ? group_->size() : 1).calls, rates);
  } catch (const Error& e) { progress_.note("the profile has no operations, bytes and floors: " + one_line(e)); }
  profiler_.emplace(steps, s_.device, std::move(planned));
}

void Trainer::profiled(bool stepped) {
  if (!stepped) return profiler_->cancel();
  const bool before = profiler_->done();
  profiler_->end();
  if (!before && profiler_->done()) report_profile();
}

// A run is not lost because its profile cannot be written.
void Trainer::report_profile() {
  if (profiler_->taken() == 0)
    return progress_.warn(joined("no profile: it needs ", StepProfiler::kWarmUp + 2, " steps, the first ", StepProfiler::kWarmUp,
                                 " to warm up and then every other one, and this process took ", n_.steps - first_step_));
  for (const std::string& line : profile_lines(profiler_->result())) progress_.line(line);
  try {
    write_profile(dir_.path(), *profiler_);
    progress_.line(joined("profile: ", (dir_.path() / "profile").string(), " has all calls in profile.json, and trace.json.gz for ",
                          "https://ui.perfetto.dev"));
  } catch (const Error& e) { progress_.warn("no profile: " + one_line(e)); }
}

Json Trainer::run_facts() const {
  Json out = {{"device", backend_for(s_.device).describe()}, {"threads", num_threads()}, {"ranks", group_ ? group_->size() : 1}};
  if (!s_.data_sha256.empty()) out["data_sha256"] = s_.data_sha256;
  if (s_.recomputation) out["recomputation"] = to_json(*s_.recomputation);
  if (config_.logging.machine) out["host"] = host_name(), out["command"] = command_line();
  return out;
}

TrainSummary Trainer::summary(Ending ending) {
  if (n_.epoch_over > 0) n_.train_loss = n_.epoch_loss / n_.epoch_over;
  TrainSummary out;
  out.ending = ending;
  for (const NamedMetric& m : s_.metrics)
    if (m.always) out.json["val." + m.name] = nullptr;  // of a run without data.val
  out.json.update(metrics_json("val", n_.val_metrics));
  out.json.update(Json{{"val.loss", or_null(n_.val_loss)},
                       {"train.loss", or_null(n_.train_loss)},
                       {"epochs", epoch()},
                       {"stopped_early", n_.stopped},
                       {"steps_applied", n_.applied()},
                       {"steps_skipped", n_.skipped},
                       {"seconds", seconds()},
                       {"samples_per_second", double(n_.samples - first_samples_) / std::max(1e-9, training_seconds())},
                       {"metrics_lines_lost", dir_.metrics().lost()},
                       {"peak_bytes", allocator(s_.device).stats().peak},
                       {"scale", scale() ? Json(*scale()) : Json(1.0)},
                       {"device", joined(s_.device)},
                       {"dtype", joined(s_.low.value_or(DType::f32))},
                       {"output_dir", dir_.path().string()}});
  out.json["best"] = best_json();
  if (ending == Ending::finished) report_end(out.json);
  return out;
}

// The best checkpoint with its own values, as {"step": 16, "epoch": 4, "val.loss": 0.3}; null: there is none here.
Json Trainer::best_json() const {
  if (n_.bests.list.empty() || !writes(group_)) return nullptr;
  const Best& best = n_.bests.list[0];
  Json out = {{"step", best.step}, {"epoch", best.epoch > 0 ? Json(best.epoch) : Json()}};
  std::ifstream in(dir_.path() / checkpoint_name(best.step) / "state.json");
  const Json state = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  const Json trainer = state.is_object() ? state.value("trainer", Json::object()) : Json::object();
  for (const auto& [key, value] : trainer.items())
    for (const std::string split : {"val_", "train_"})
      if (key.starts_with(split) && (split == "val_" || key == "train_loss") && value.is_number())
        out[split.substr(0, split.size() - 1) + "." + key.substr(split.size())] = value;
  return out;
}

void Trainer::report_end(const Json& summary) {
  lines_.end();
  std::string values;
  for (const MetricValue& m : n_.val_metrics) values += m.in_lines() ? "val " + shown(m) + beside(m) + ", " : "";
  if (s_.total_steps == 0 && n_.steps == 0) {
    progress_.line(joined("done: 0 steps, as train.epochs says; the first values are saved", values.empty() ? "" : ", ",
                          values.substr(0, values.empty() ? 0 : values.size() - 2)));
    return say_next();
  }
  if (n_.steps == first_step_) {
    progress_.line(joined("nothing left to do: ", values, n_.stopped ? "stopped early at step " : "ended at step ", n_.applied(),
                          n_.stopped             ? ""
                          : config_.train.epochs ? "; a larger train.epochs continues it"
                                                 : "; a larger train.max_steps continues it"));
    return say_next();
  }
  std::string line = "done: ";
  if (n_.stopped)
    line += joined("stopped early in epoch ", epoch_now(), config_.train.epochs ? joined(" of ", *config_.train.epochs) : "", ", ");
  line += joined(n_.applied(), " steps applied, ", n_.skipped, " skipped, ", values);
  line += duration_text(seconds()) + ", " + count_text(summary["samples_per_second"]) + " samples/s, peak " +
          bytes_text(summary["peak_bytes"]);
  if (dir_.metrics().lost() > 0) line += joined(", ", dir_.metrics().lost(), " lines of metrics lost");
  progress_.line(line);
  for (const std::string& columns : lines_by_column(n_.val_metrics, 12)) progress_.line("val " + columns);
  if (scale() && *scale() < config_.scaler.init_scale && double(n_.skipped) > kManySkips * double(n_.steps)) {
    const std::string now = number_text(*scale(), 6);
    // Of the skips, those that lowered the first scale to the last one; growth made room for the others.
    const double first = std::log(config_.scaler.init_scale / *scale()) / -std::log(config_.scaler.backoff_factor);
    const std::string remedy = double(n_.skipped) > 2 * first + 1
                                   ? joined("\"amp.scaler.growth_interval\": a larger number than ", config_.scaler.growth_interval)
                                   : joined("\"amp.scaler.init_scale\": ", skips_in_row_ > 0 ? "\"auto\"" : now + " or \"auto\"");
    progress_.warn(joined(n_.skipped, " of ", n_.steps, " steps were skipped and changed no weight: the loss scale began at ",
                          number_text(config_.scaler.init_scale, 6), " and is ", now, " now. ", remedy,
                          " would have skipped fewer; bfloat16 needs no scale"));
  }
  warn_of_no_progress();
  say_next();
}

// Warns of a run that did not learn: its accuracy is that of guessing, or its loss is far above the first one.
void Trainer::warn_of_no_progress() {
  std::string why;
  if (const int64_t classes = s_.form.classes; classes > 1 && s_.val) {
    const double guess = 1 / double(classes);
    for (const MetricValue& m : n_.val_metrics) {
      const double n = double(m.counted > 0 ? m.counted : s_.val->dataset().size());
      if (m.name == "accuracy" && n >= kEnoughSamples && m.value <= guess + std::sqrt(guess * (1 - guess) / n))
        why = joined("val ", shown(m), ", and guessing one of ", classes, " classes gives ", number_text(100 * guess, 4), " %");
    }
  }
  if (n_.train_loss && n_.first_loss > 0 && *n_.train_loss > kFarAbove * *n_.first_loss)
    why += joined(why.empty() ? "" : "; ", "train loss ", number_text(*n_.train_loss, 4), ", and that of the first batch was ",
                  number_text(*n_.first_loss, 4));
  if (!why.empty())
    progress_.warn(joined("the run has learned nothing: ", why, ". Often optimizer.lr is the cause, here ", s_.optimizer_text, "; ",
                          command_name(), " lr-find ", shell_word((dir_.path() / "config.resolved.json").string()),
                          " measures which rates suit"));
}

}  // namespace halfstep::app
