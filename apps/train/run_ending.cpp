// SPDX-License-Identifier: Apache-2.0
#include "apps/train/run_ending.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <variant>

#include "apps/schema/shell_word.h"
#include "apps/session/ranks.h"
#include "apps/terminal/quantity_text.h"
#include "apps/train/run_lines.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {
namespace {

constexpr double kRiseFactor = 10;     // times the first loss: the loss rose
constexpr double kEnoughSamples = 50;  // for comparing an accuracy with guessing
constexpr size_t kMostColumns = 12;    // columns of a table in the line of a metric
constexpr double kManySkips = 0.25;    // share of all steps: more than a scaler's search costs

// Returns the name by which the program was called; scripts/run.sh sets it.
std::string command_name() {
  const char* const name = std::getenv("HALFSTEP_COMMAND");
  return name && *name ? name : "halfstep";
}

}  // namespace

TrainSummary RunEnding::summary(Ending ending) const {
  if (run_.counters.epoch_denominator > 0)
    run_.counters.train_loss = run_.counters.epoch_loss_sum / run_.counters.epoch_denominator;
  TrainSummary out;
  out.ending = ending;
  for (const NamedMetric& m : run_.session.metrics)
    if (m.always) out.json["val." + m.name] = nullptr;  // for a run without data.val
  out.json.update(metrics_json("val", run_.counters.val_metrics));
  out.json.update(Json{{"val.loss", or_null(run_.counters.val_loss)},
                       {"train.loss", or_null(run_.counters.train_loss)},
                       {"epochs", run_.epoch()},
                       {"stopped_early", run_.counters.stopped},
                       {"steps_applied", run_.counters.applied()},
                       {"steps_skipped", run_.counters.skipped},
                       {"seconds", run_.clock.seconds()},
                       {"samples_per_second", double(run_.counters.samples - run_.first_samples) /
                                                  std::max(kLeastSeconds, run_.clock.training_seconds())},
                       {"metrics_lines_lost", run_.dir.metrics().lost()},
                       {"peak_bytes", allocator(run_.session.device).stats().peak},
                       {"scale", run_.scale() ? Json(*run_.scale()) : Json(1.0)},
                       {"device", joined(run_.session.device)},
                       {"dtype", joined(run_.session.low.value_or(DType::f32))},
                       {"output_dir", run_.dir.path().string()}});
  out.json["best"] = best_json();
  return out;
}

// Returns the best checkpoint with its values, as {"step": 16, "epoch": 4, "val.loss": 0.3}; null: there is none here.
Json RunEnding::best_json() const {
  if (run_.counters.bests.list.empty() || !writes(run_.group)) return nullptr;
  const BestCheckpoint& best = run_.counters.bests.list[0];
  Json out = {{"step", best.step}, {"epoch", best.epoch > 0 ? Json(best.epoch) : Json()}};
  std::ifstream in(run_.dir.path() / checkpoint_name(best.step) / "state.json");
  const Json state = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  const Json trainer = state.is_object() ? state.value("trainer", Json::object()) : Json::object();
  for (const auto& [key, value] : trainer.items()) {
    if (!value.is_number()) continue;
    if (key.starts_with("val_")) out["val." + key.substr(4)] = value;
    if (key == "train_loss") out["train.loss"] = value;
  }
  return out;
}

void RunEnding::report(const Json& summary, int64_t skips_in_row) const {
  std::string values;
  for (const MetricValue& m : run_.counters.val_metrics)
    values += m.in_lines() ? "val " + shown(m) + last_value_text(m) + ", " : "";
  if (run_.session.total_steps == 0 && run_.counters.attempted == 0) {
    run_.progress.line(joined("done: 0 steps, as train.epochs says; the first values are saved", values.empty() ? "" : ", ",
                              values.substr(0, values.empty() ? 0 : values.size() - 2)));
    return print_next_commands();
  }
  if (run_.counters.attempted == run_.first_step) {
    const std::string ended = run_.counters.stopped ? "stopped early at step " : "ended at step ";
    const std::string length = run_.config.train.epochs ? "train.epochs" : "train.max_steps";
    const bool at_end =
        run_.config.train.epochs ? run_.epoch() >= *run_.config.train.epochs : run_.counters.applied() >= run_.session.total_steps;
    std::string remedy = run_.counters.stopped ? joined("train.early_stopping.patience above ", run_.counters.stop_waited) : "";
    if (at_end || remedy.empty()) remedy += (remedy.empty() ? "a larger " : " with a larger ") + length;
    run_.progress.line(joined("nothing left to do: ", values, ended, run_.counters.applied(), "; ", remedy, " continues it"));
    return print_next_commands();
  }
  std::string line = "done: ";
  if (run_.counters.stopped)
    line += joined("stopped early in epoch ", run_.epoch_now(),
                   run_.config.train.epochs ? joined(" of ", *run_.config.train.epochs) : "", ", ");
  line += joined(run_.counters.applied(), " steps applied, ", run_.counters.skipped, " skipped, ", values);
  line += duration_text(run_.clock.seconds()) + ", " + count_text(summary["samples_per_second"]) + " samples/s, peak " +
          bytes_text(summary["peak_bytes"]);
  if (run_.dir.metrics().lost() > 0) line += joined(", ", run_.dir.metrics().lost(), " lines of metrics lost");
  run_.progress.line(line);
  for (const std::string& columns : lines_by_column(run_.counters.val_metrics, kMostColumns)) run_.progress.line("val " + columns);
  warn_of_scale(skips_in_row);
  warn_of_no_progress();
  print_next_commands();
}

// Warns of a loss scale that began too high.
void RunEnding::warn_of_scale(int64_t skips_in_row) const {
  const std::optional<double> scale = run_.scale();
  if (!scale || *scale >= run_.config.scaler.init_scale ||
      double(run_.counters.skipped) <= kManySkips * double(run_.counters.attempted))
    return;
  const std::string now = number_text(*scale, 6);
  // Count the skips that lowered the first scale to the last one; growth made room for the others.
  const double search_skips = std::log(run_.config.scaler.init_scale / *scale) / -std::log(run_.config.scaler.backoff_factor);
  const std::string remedy =
      double(run_.counters.skipped) > 2 * search_skips + 1
          ? joined("\"amp.scaler.growth_interval\": a larger number than ", run_.config.scaler.growth_interval)
          : joined("\"amp.scaler.init_scale\": ", skips_in_row > 0 ? "\"auto\"" : now + " or \"auto\"");
  run_.progress.warn(joined(run_.counters.skipped, " of ", run_.counters.attempted,
                            " steps were skipped and changed no weight: the loss scale began at ",
                            number_text(run_.config.scaler.init_scale, 6), " and is ", now, " now. ", remedy,
                            " would have skipped fewer; bfloat16 needs no scale"));
}

// Warns of a run that did not learn: its accuracy is at most a standard error above that of guessing, or its loss is far above the
// first one.
void RunEnding::warn_of_no_progress() const {
  std::string why;
  if (const int64_t classes = run_.session.form.classes; classes > 1 && run_.session.val) {
    const double guess = 1 / double(classes);
    for (const MetricValue& m : run_.counters.val_metrics) {
      const double samples = double(m.counted > 0 ? m.counted : run_.session.val->dataset().size());
      if (m.name == "accuracy" && samples >= kEnoughSamples && m.value <= guess + std::sqrt(guess * (1 - guess) / samples))
        why = joined("val ", shown(m), ", and guessing one of ", classes, " classes gives ", number_text(100 * guess, 4), " %");
    }
  }
  for (const MetricValue& m : run_.counters.val_metrics) {
    const double samples = run_.session.val ? double(m.counted > 0 ? m.counted : run_.session.val->dataset().size()) : 0;
    if (m.name == "r2" && samples >= kEnoughSamples && m.value <= 0)
      why = joined("val ", shown(m), ", and answering the mean of the targets each time gives 0");
  }
  if (run_.counters.train_loss && run_.counters.first_loss > 0 &&
      *run_.counters.train_loss > kRiseFactor * *run_.counters.first_loss)
    why += joined(why.empty() ? "" : "; ", "train loss ", number_text(*run_.counters.train_loss, 4),
                  ", and that of the first batch was ", number_text(*run_.counters.first_loss, 4));
  if (!why.empty())
    run_.progress.warn(joined("the run has learned nothing: ", why, ". Often optimizer.lr is the cause, here ",
                              run_.session.optimizer_text, "; ", command_name(), " lr-find ",
                              shell_word((run_.dir.path() / "config.resolved.json").string()), " measures which rates suit"));
}

// Prints the model's path, and the next commands to type.
void RunEnding::print_next_commands() const {
  if (!run_.saves()) return;
  const std::string folder = run_.dir.path().string();
  const bool text = std::holds_alternative<TextForm>(run_.session.form.source);
  const std::string next =
      joined("next: ", command_name(), text ? " generate " : " predict ", shell_word(folder), text ? "" : " FILE...");
  if (run_.counters.bests.list.empty()) {
    run_.progress.line(joined("model: step ", run_.counters.applied(), " in ", folder));
    return run_.progress.line(next);
  }
  const BestCheckpoint& best = run_.counters.bests.list[0];
  std::string when = joined("step ", best.step, " of ", run_.counters.applied());
  if (best.epoch > 0) when = joined("epoch ", best.epoch, " of ", run_.epoch_now(), ", ") + when;
  std::string value = joined(run_.config.checkpoint.monitor, " ", number_text(best.value, 4));
  if (run_.counters.bests.top && *run_.counters.bests.top != best.value)
    value += joined(", within the standard error of the best, ", number_text(*run_.counters.bests.top, 4));
  run_.progress.line(joined("best model: ", (run_.dir.path() / "best").string(), ", ", when, ", ", value));
  run_.progress.line(next);
}

}  // namespace halfstep::app
