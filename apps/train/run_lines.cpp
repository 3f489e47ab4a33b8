// SPDX-License-Identifier: Apache-2.0
#include "apps/train/run_lines.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <variant>

#include "apps/catalog/class_weights.h"
#include "apps/session/averaged_statistics.h"
#include "apps/session/ranks.h"
#include "apps/terminal/quantity_text.h"
#include "framework/base/number_text.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {

Json or_null(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }

std::string shown(const MetricValue& m) {
  if (!m.is_share) return m.name + " " + number_text(m.value, 4);
  return m.name + " " + fixed_text(100 * m.value, 2) + " %";
}

RunLines::RunLines(RunContext& run)
    : run_(run), epochs_(run.progress, run.session.total_steps / std::max<int64_t>(1, run.session.steps_per_epoch)) {}

// Warns of a run that ends before the first update of an average.
void RunLines::warn_of_no_average() const {
  const TrainSection& t = run_.config.train;
  const int64_t total = run_.session.total_steps;
  const auto warn = [&](const char* key, int64_t every, int64_t steps) {
    if (total > 0 && every > steps)
      run_.progress.warn(joined("train.", key, ".every is ", every, ", and the run averages only ", steps,
                                steps == 1 ? " step" : " steps",
                                ": there will be no average, and evaluations use the trained weights"));
  };
  if (t.ema.enabled) warn("ema", t.ema.average.every, total);
  if (t.swa.enabled) warn("swa", t.swa.every.value_or(1), total - t.swa.steps_before(total));
}

void RunLines::introduce() const {
  std::string precision = "float32";
  if (run_.session.low) {
    const bool measured = run_.config.calibrates_scale && !run_.dir.checkpoint();
    precision = joined("mixed ", *run_.session.low);
    if (run_.scale()) precision += joined(", loss scale from ", *run_.scale(), measured ? " (measured)" : "");
  }
  int64_t trained = 0;
  for (const Tensor& p : run_.session.model->parameters()) trained += p.requires_grad() ? p.numel() : 0;
  const int64_t parameters = run_.session.model->parameter_count();
  run_.progress.line(joined(run_.config.name, ": ", parameters, " parameters",
                            trained < parameters ? joined(" (", trained, " trained)") : "", " on ", run_.session.device, ", ",
                            precision));
  for (const std::string& line : run_.session.weights_read) run_.progress.line(line);
  warn_of_no_average();
  if (makes_averaged_statistics(run_.session, run_.config.train))
    run_.progress.line(
        "swa: before each evaluation and checkpoint, a pass over data.train makes the norms' statistics under the mean");
  if (run_.session.recomputation) run_.progress.line("memory: " + text(*run_.session.recomputation));
  run_.progress.line(joined("data: ", run_.session.train->dataset().describe()));
  if (const std::string notes = run_.session.train->dataset().notes().line(); !notes.empty())
    run_.progress.line(joined("      ", notes));
  std::vector<std::string> classes;
  for (int64_t i = 0; i < run_.session.form.classes; ++i) classes.push_back(run_.session.form.class_name(i));
  for (const std::string& line : class_weight_lines(run_.config.json, classes, &run_.session.train->dataset()))
    run_.progress.line("      " + line);
  if (run_.session.val) run_.progress.line(joined("val:  ", run_.session.val->dataset().describe()));
  const DataNotes of_val = run_.session.val ? run_.session.val->dataset().notes() : DataNotes();
  const std::string& held_out = of_val.summary;
  const bool has_texts = run_.session.form.input_dtype == DType::i64 && std::holds_alternative<TableForm>(run_.session.form.source);
  if (held_out.starts_with("left out") || (has_texts && !held_out.empty())) run_.progress.line(joined("      ", held_out));
  if (!of_val.ignored.empty()) run_.progress.line(joined("      ", of_val.ignored));
  run_.progress.line(joined(run_.session.optimizer_text, run_.session.schedule ? ", " + run_.session.schedule->describe() : "",
                            ", ", run_.session.total_steps, " steps, ", run_.session.steps_per_epoch, " an epoch -> ",
                            run_.dir.path().string()));
  if (run_.group)
    run_.progress.line(describe_ranks(*run_.group) +
                       joined(", batches of ", run_.config.data.loader.batch_size, " in ", run_.group->size(), " parts"));
  if (run_.dir.checkpoint())
    run_.progress.line(joined("resumed from ", run_.dir.checkpoint()->string(), " at step ", run_.counters.applied()));
  if (epochs_.every() > 1)
    run_.progress.line(joined("one epoch in ", epochs_.every(), " is shown, and the best before it; metrics.jsonl has all"));
}

void RunLines::update_bar(bool evaluates) {
  const double own_seconds = run_.clock.own_seconds();
  const int64_t steps = run_.counters.attempted - run_.first_step;
  ProgressView view;
  view.epochs = run_.config.train.epochs.value_or(0);
  view.epoch = view.epochs > 0 ? std::min(run_.epoch() + (evaluates ? 0 : 1), view.epochs) : run_.epoch() + 1;
  view.step = run_.counters.applied(), view.steps = run_.session.total_steps;
  view.lr = run_.session.optimizer->lr();
  view.samples_per_second =
      steps > 0 ? double(run_.counters.samples - run_.first_samples) / std::max(kLeastSeconds, run_.clock.training_seconds()) : 0;
  // Epochs count all steps, train.max_steps applied ones.
  const int64_t done_steps = run_.config.train.epochs ? run_.counters.attempted : run_.counters.applied(),
                left_steps = std::max<int64_t>(run_.session.total_steps - done_steps, 0);
  view.seconds_left = steps > 0 ? own_seconds / double(steps) * double(left_steps) : INFINITY;
  view.skipped = run_.counters.skipped;
  view.loader_wait =
      steps > 0 ? std::clamp(run_.session.train->wait_seconds() / std::max(kLeastSeconds, run_.clock.training_seconds()), 0.0, 1.0)
                : 0;
  if (run_.group)
    view.rank_wait = std::clamp(run_.group->wait_seconds() / std::max(kLeastSeconds, run_.clock.training_seconds()), 0.0, 1.0);
  if (run_.progress.has_bar()) {
    view.step = done_steps;
    view.evaluates = evaluates;
    view.loss = run_.counters.epoch_denominator > 0 ? std::optional(run_.counters.epoch_loss_sum / run_.counters.epoch_denominator)
                                                    : run_.counters.train_loss;
    return run_.progress.update(view);
  }
  if (run_.counters.line_denominator > 0) view.loss = run_.counters.line_loss_sum / run_.counters.line_denominator;
  view.scale = run_.scale();
  if (run_.grad_norm.defined()) view.grad_norm = run_.grad_norm.item<double>();
  view.peak_bytes = double(allocator(run_.session.device).stats().peak);
  run_.progress.update(view);
}

void RunLines::log(bool epoch_end) {
  const double loss = run_.counters.line_denominator > 0 ? run_.counters.line_loss_sum / run_.counters.line_denominator : NAN;
  const double seconds = std::max(kLeastSeconds, run_.clock.training_seconds() - logged_.seconds),
               wait = run_.session.train->wait_seconds() - logged_.wait;
  Json entry = {{"step", run_.counters.applied()},
                {"attempted", run_.counters.attempted},
                {"epoch", run_.epoch()},
                {"train/loss", run_.counters.line_denominator > 0 ? Json(loss) : Json()},
                {"lr", run_.session.optimizer->lr()},
                {"skipped", run_.counters.skipped},
                {"samples", run_.counters.samples},
                {"seconds", run_.clock.seconds()},
                {"samples_per_second", double(run_.counters.samples - logged_.samples) / seconds},
                {"data_wait", std::clamp(wait / seconds, 0.0, 1.0)},
                {"peak_bytes", allocator(run_.session.device).stats().peak}};
  if (epoch_end) entry["train/epoch_loss"] = or_null(run_.counters.train_loss);
  if (run_.group) entry["rank_wait"] = std::clamp((run_.group->wait_seconds() - logged_.rank_wait) / seconds, 0.0, 1.0);
  if (run_.scale()) entry["scale"] = *run_.scale();
  if (const auto& skip = run_.counters.last_skip)
    entry["last_skip"] = {{"step", skip->step}, {"cause", skip->cause.empty() ? Json() : Json(skip->cause)}};
  if (run_.grad_norm.defined()) entry["grad_norm"] = or_null(run_.grad_norm.item<double>());
  run_.counters.last_log_step = run_.counters.attempted;
  run_.dir.metrics().write(entry);
  update_bar();
  run_.counters.line_loss_sum = 0, run_.counters.line_denominator = 0;
  logged_ = {run_.clock.training_seconds(), run_.session.train->wait_seconds(), run_.group ? run_.group->wait_seconds() : 0,
             run_.counters.samples};
}

void RunLines::log_epoch() {
  run_.dir.metrics().write({{"step", run_.counters.applied()},
                            {"attempted", run_.counters.attempted},
                            {"epoch", run_.epoch()},
                            {"train/epoch_loss", or_null(run_.counters.train_loss)},
                            {"samples", run_.counters.samples},
                            {"seconds", run_.clock.seconds()}});
}

void RunLines::end_epoch(bool evaluated, bool is_best) { epochs_.add(run_.epoch(), epoch_parts(evaluated), is_best); }

std::vector<LinePart> RunLines::epoch_parts(bool evaluated) const {
  const bool in_terminal = run_.progress.has_bar();  // which has columns, and less room
  const std::string all = run_.config.train.epochs ? joined("/", *run_.config.train.epochs) : "", now = joined(run_.epoch());
  const std::string indent(in_terminal ? all.size() - std::min(all.size(), now.size() + 1) : 0, ' ');
  std::vector<LinePart> out = {{"epoch " + indent + now + all}};
  const auto add = [&](const std::string& name, const std::string& brief, const std::string& value) {
    out.push_back({name + value, brief + value});
  };
  add("train loss ", "train ", run_.counters.train_loss ? number_text(*run_.counters.train_loss, 4) : "not finite");
  if (evaluated) add("val loss ", "val ", number_text(*run_.counters.val_loss, 4));
  if (evaluated)
    for (const MetricValue& m : run_.counters.val_metrics)
      if (m.in_lines()) add(in_terminal ? "" : "val ", "", shown(m));
  out.push_back({"lr " + number_text(run_.session.optimizer->lr(), 3), "", true});
  if (run_.scale()) {
    out.push_back({joined("scale ", *run_.scale()), "", true});
    out.push_back({joined("skipped ", run_.counters.skipped), "", run_.counters.skipped == 0});
  }
  out.push_back({duration_text(run_.clock.seconds())});
  return out;
}

}  // namespace halfstep::app
