// SPDX-License-Identifier: Apache-2.0
#include "apps/train/observer.h"

#include <cstdlib>

#include "apps/terminal/quantity_text.h"
#include "framework/base/number_text.h"

namespace halfstep::app {
namespace {

// Rounds to four digits, which keeps lines short.
Json short_number(double v) { return number_of(number_text(v, 4)).value_or(v); }

Json line_of(int64_t step, int64_t attempt, double lr, const Observation& seen) {
  Json layers = Json::object();
  for (const TensorObservation& t : seen.tensors) {
    Json entry = {{"grad", {{"first", t.exponents.first}, {"counts", t.exponents.counts}}},
                  {"zero", short_number(t.zero)},
                  {"subnormal", short_number(t.subnormal)},
                  {"overflow", short_number(t.overflow)}};
    const auto add = [&](const char* name, const std::optional<double>& value) {
      if (value) entry[name] = short_number(*value);
    };
    add("flushed", t.flushed), add("lost", t.lost), add("lost_16", t.lost_16), add("update", t.update);
    layers[t.name] = std::move(entry);
  }
  Json line = {{"step", step}, {"attempted", attempt}, {"lr", lr}, {"scale", seen.scale}};
  if (seen.room) line["room"] = short_number(*seen.room);
  line["layers"] = std::move(layers);
  return line;
}

}  // namespace

RunObserver::RunObserver(const Config& config, Session& session, TrainStep& step, RunDir& dir, bool has_ranks, bool is_off)
    : config_(config),
      session_(session),
      step_(step),
      dir_(dir),
      has_ranks_(has_ranks),
      is_on_(!is_off && config.diagnostics.every.unit != Interval::Unit::never && !session.optimizer->needs_closure()) {}

std::optional<int64_t> RunObserver::number_of(int64_t step, int64_t epoch) const {
  const Interval& every = config_.diagnostics.every;
  const auto count = int64_t(every.count);
  if (is_due(step)) return step / count;
  const bool epoch_begins = every.unit == Interval::Unit::epochs && session_.train->state().next_batch == 1;
  if (epoch_begins && epoch > 1 && (epoch - 1) % count == 0) return (epoch - 1) / count;
  return {};
}

bool RunObserver::is_due(int64_t step) const {
  const Interval& every = config_.diagnostics.every;
  return is_on_ && every.unit == Interval::Unit::steps && step % int64_t(every.count) == 0;
}

void RunObserver::begin(int64_t step, int64_t attempt, int64_t epoch) {
  if (!is_on_) return;
  if (step_.pending() == 0) {
    observer_.reset();
    const std::optional<int64_t> number = number_of(step, epoch);
    if (!number) return;
    applied_step_ = step;
    attempt_ = attempt;
    lr_ = session_.optimizer->lr();
    observer_.emplace(*session_.model, session_.device, session_.scaler.get_scale(), *number);
  }
  if (observer_) observer_->open();
}

std::vector<Diagnosis> RunObserver::end(const StepResult& r) {
  if (!observer_) return {};
  observer_->close();
  if (!r.stepped) return {};
  std::vector<Diagnosis> out;
  try {
    Observation seen = observer_->finish(r.outcome.applied() && lr_ != 0);
    if (config_.diagnostics.explain && step_.kept_step()) {
      StepUnderTest step = *step_.kept_step();
      if (has_ranks_) step.batches.clear();
      out = silent_causes_.look(seen, step);
    }
    dir_.observed().write(line_of(applied_step_, attempt_, lr_, seen));
  } catch (const MemoryError&) {}  // leave the memory to the run
  observer_.reset();
  return out;
}

}  // namespace halfstep::app
