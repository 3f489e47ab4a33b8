// SPDX-License-Identifier: Apache-2.0
// What a run says to a person while it trains.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <variant>

#include "apps/run/averaged_statistics.h"
#include "apps/run/ranks.h"
#include "apps/run/trainer.h"
#include "apps/schema/shell_word.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {

std::string command_name() {
  const char* const name = std::getenv("HALFSTEP_COMMAND");
  return name && *name ? name : "halfstep";
}

void Trainer::introduce() const {
  std::string precision = "float32";
  if (s_.low)
    precision = joined(
        "mixed ", *s_.low,
        scale() ? joined(", loss scale from ", *scale(), config_.calibrates_scale && !dir_.checkpoint() ? " (measured)" : "") : "");
  int64_t trained = 0;
  for (const Tensor& p : s_.model->parameters()) trained += p.requires_grad() ? p.numel() : 0;
  const int64_t all = s_.model->parameter_count();
  progress_.line(joined(config_.name, ": ", all, " parameters", trained < all ? joined(" (", trained, " trained)") : "", " on ",
                        s_.device, ", ", precision));
  for (const std::string& line : s_.weights_read) progress_.line(line);
  if (makes_averaged_statistics(s_, config_.train))
    progress_.line("swa: before each evaluation and checkpoint, a pass over data.train makes the norms' statistics under the mean");
  if (s_.recomputation) progress_.line("memory: " + text(*s_.recomputation));
  progress_.line(joined("data: ", s_.train->dataset().describe()));
  if (const std::string notes = s_.train->dataset().notes().line(); !notes.empty()) progress_.line(joined("      ", notes));
  if (s_.val) progress_.line(joined("val:  ", s_.val->dataset().describe()));
  const DataNotes of_val = s_.val ? s_.val->dataset().notes() : DataNotes();
  const std::string& held_out = of_val.made;
  const bool has_texts = s_.form.input_dtype == DType::i64 && std::holds_alternative<TableForm>(s_.form.source);
  if (held_out.starts_with("left out") || (has_texts && !held_out.empty())) progress_.line(joined("      ", held_out));
  if (!of_val.ignored.empty()) progress_.line(joined("      ", of_val.ignored));
  progress_.line(joined(s_.optimizer_text, s_.schedule ? ", " + s_.schedule->describe() : "", ", ", s_.total_steps, " steps, ",
                        s_.steps_per_epoch, " an epoch -> ", dir_.path().string()));
  if (group_)
    progress_.line(describe_ranks(*group_) +
                   joined(", batches of ", config_.data.loader.batch_size, " in ", group_->size(), " parts"));
  if (dir_.checkpoint()) progress_.line(joined("resumed from ", dir_.checkpoint()->string(), " at step ", n_.applied()));
  if (lines_.every() > 1)
    progress_.line(joined("one epoch in ", lines_.every(), " is shown, and the best before it; metrics.jsonl has all"));
}

// The bar of a terminal moves between losses that are read, which costs a GPU its lead: it shows what is known.
void Trainer::show(bool evaluates) {
  const double spent = std::chrono::duration<double>(Clock::now() - start_).count();
  const int64_t steps = n_.steps - first_step_;
  ProgressView v;
  v.epochs = config_.train.epochs.value_or(0);
  v.epoch = v.epochs > 0 ? std::min(epoch() + (evaluates ? 0 : 1), v.epochs) : epoch() + 1;
  v.step = n_.applied(), v.steps = s_.total_steps;
  v.lr = s_.optimizer->lr();
  v.samples_per_second = steps > 0 ? double(n_.samples - first_samples_) / std::max(1e-9, training_seconds()) : 0;
  // Epochs count all steps, train.max_steps those that are applied.
  const int64_t done = config_.train.epochs ? n_.steps : n_.applied(), left = std::max<int64_t>(s_.total_steps - done, 0);
  v.seconds_left = steps > 0 ? spent / double(steps) * double(left) : INFINITY;
  v.skipped = n_.skipped;
  v.loader_wait = steps > 0 ? std::clamp(s_.train->wait_seconds() / std::max(1e-9, training_seconds()), 0.0, 1.0) : 0;
  if (group_) v.rank_wait = std::clamp(group_->wait_seconds() / std::max(1e-9, training_seconds()), 0.0, 1.0);
  if (progress_.has_bar()) {
    v.step = done;
    v.evaluates = evaluates;
    v.loss = n_.epoch_over > 0 ? std::optional(n_.epoch_loss / n_.epoch_over) : n_.train_loss;
    return progress_.update(v);
  }
  if (n_.window_over > 0) v.loss = n_.window_loss / n_.window_over;
  v.scale = scale();
  if (grad_norm_.defined()) v.grad_norm = grad_norm_.item<double>();
  v.peak_bytes = double(allocator(s_.device).stats().peak);
  progress_.update(v);
}

std::vector<LinePart> Trainer::epoch_parts(bool evaluated) const {
  const bool terminal = progress_.has_bar();  // which has columns, and less room
  const std::string all = config_.train.epochs ? joined("/", *config_.train.epochs) : "", now = joined(epoch());
  const std::string indent(terminal ? all.size() - std::min(all.size(), now.size() + 1) : 0, ' ');
  std::vector<LinePart> out = {{"epoch " + indent + now + all}};
  const auto add = [&](const std::string& name, const std::string& brief, const std::string& value) {
    out.push_back({name + value, brief + value});
  };
  add("train loss ", "train ", n_.train_loss ? number_text(*n_.train_loss, 4) : "not finite");
  if (evaluated) add("val loss ", "val ", number_text(*n_.val_loss, 4));
  if (evaluated)
    for (const MetricValue& m : n_.val_metrics)
      if (m.in_lines()) add(terminal ? "" : "val ", "", shown(m));
  out.push_back({"lr " + number_text(s_.optimizer->lr(), 3), "", true});
  if (scale()) {
    out.push_back({joined("scale ", *scale()), "", true});
    out.push_back({joined("skipped ", n_.skipped), "", n_.skipped == 0});
  }
  out.push_back({duration_text(seconds())});
  return out;
}

// Where the model is, and what to type next.
void Trainer::say_next() {
  if (config_.checkpoint.every.unit == Interval::Unit::never) return;
  const std::string folder = dir_.path().string();
  const bool text = std::holds_alternative<TextForm>(s_.form.source);
  const std::string next =
      joined("next: ", command_name(), text ? " generate " : " predict ", shell_word(folder), text ? "" : " FILE...");
  if (n_.bests.list.empty()) {
    progress_.line(joined("model: step ", n_.applied(), " in ", folder));
    return progress_.line(next);
  }
  const Best& best = n_.bests.list[0];
  std::string when = joined("step ", best.step, " of ", n_.applied());
  if (best.epoch > 0) when = joined("epoch ", best.epoch, " of ", epoch_now(), ", ") + when;
  std::string value = joined(config_.checkpoint.monitor, " ", number_text(best.value, 4));
  if (n_.bests.top && *n_.bests.top != best.value)
    value += joined(", within the standard error of the best, ", number_text(*n_.bests.top, 4));
  progress_.line(joined("best model: ", (dir_.path() / "best").string(), ", ", when, ", ", value));
  progress_.line(next);
}

}  // namespace halfstep::app
