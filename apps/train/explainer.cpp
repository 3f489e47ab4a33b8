// SPDX-License-Identifier: Apache-2.0
#include "apps/train/explainer.h"

#include <algorithm>
#include <cmath>

#include "apps/catalog/infer.h"
#include "apps/config/config_path.h"
#include "apps/exit_codes.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

constexpr size_t kMostExplanations = 20;  // in a run

double loss_of(const StepResult& r) { return r.loss.defined() ? r.loss.item<double>() : NAN; }

}  // namespace

Explainer::Explainer(const Config& config, Session& session, TrainStep& step, Progress& progress, RunDir& dir, ProcessGroup* group,
                     Watch* watch)
    : config_(config),
      session_(session),
      step_(step),
      progress_(progress),
      group_(group),
      watch_(watch),
      observer_(config, session, step, dir, group != nullptr, watch != nullptr),
      mode_{.seeks_fault = watch && watch->on_diagnosis, .explains = false, .explains_at_once = false},
      history_{.skips = SkipCount(config.train.detect_anomaly)} {
  const bool requested = config.diagnostics.explain || config.train.detect_anomaly || mode_.seeks_fault;
  mode_.explains = requested && !session.optimizer->needs_closure();
  mode_.explains_at_once = mode_.explains && (session.device.is_cpu() || config.train.detect_anomaly || mode_.seeks_fault);
}

bool Explainer::Findings::is_full() const { return causes.size() >= kMostExplanations; }

TrainStepOptions Explainer::with_callbacks(TrainStepOptions options) {
  if (!mode_.explains_at_once || group_) return options;  // ranks have a loss only at the end of a window: see examine()
  options.on_bad_loss = [this](const StepUnderTest& step) {
    observer_.stop();
    explain(step, "the loss is not finite");
  };
  options.keeps_states = true;
  return options;
}

void Explainer::begin(int64_t attempt, int64_t applied, int64_t epoch, const Batch& batch) {
  place_ = {.step = attempt - history_.skips.skipped(), .attempt = attempt, .epoch = epoch};
  if (watch_ && watch_->on_begin) watch_->on_begin(attempt, batch);
  observer_.begin(applied + 1, attempt, epoch);
  if (step_.pending() == 0) {
    const bool may_be_explained = mode_.explains && session_.scaler.is_enabled() &&
                                  (history_.skips.is_examined(history_.skips.in_row() + 1) || (group_ && mode_.explains_at_once));
    current_.is_kept = mode_.seeks_fault || observer_.observes() || may_be_explained;
    step_.keep_step(current_.is_kept);
    current_.samples.clear();
  }
  if (current_.is_kept) current_.samples.push_back(session_.train->samples_of_part());
  if (!mode_.seeks_fault || step_.pending() > 0) return;
  const NoGrad off;
  weights_.before.clear();
  for (const Tensor& p : session_.model->parameters()) weights_.before.push_back(p.detach().clone());
}

void Explainer::end(const StepResult& r) {
  for (const Diagnosis& d : observer_.end(r)) warn_of_silent_cause(d);
  if (!r.stepped) return;
  if (r.no_target) {
    history_.skips.add_without_target();
    counted_ = place_.attempt;
  }
  const bool examines = mode_.explains && (mode_.explains_at_once || step_.kept_step()) && !r.no_target;
  if (examines) examine(r);
  if (!watch_) return;
  const AttemptedStep tried{place_.attempt, place_.step, loss_of(r), r.outcome.applied()};
  if (!examines && !r.no_target) count_outcome(tried.applied, tried.loss);
  counted_ = place_.attempt;
  if (watch_->on_step) watch_->on_step(tried, session_);
  ended_ = ended_ || (watch_->until && tried.applied && place_.step >= *watch_->until);
  ended_ = ended_ || (watch_->until_attempt && place_.attempt >= *watch_->until_attempt);
}

void Explainer::examine(const StepResult& r) {
  const bool applied = r.outcome.applied(), kept = step_.kept_step().has_value();
  const double loss = loss_of(r);
  counted_ = place_.attempt;
  if (mode_.seeks_fault && applied && !ended_) examine_update();
  count_outcome(applied, loss);
  if (applied || !kept || ended_) return;
  if (group_ && !std::isfinite(loss)) return explain(*step_.kept_step(), "the loss is not finite");
  const int64_t skips = history_.skips.in_row();
  if (!history_.skips.is_examined(skips)) return;
  history_.skips.wait_longer();
  explain(*step_.kept_step(),
          skips == 1 ? "skipped" : joined("skipped, as ", skips == 2 ? "was 1" : joined("were ", skips - 1), " before it"));
  if (!mode_.seeks_fault) step_.keep_step(false);
}

void Explainer::warn_of_silent_cause(Diagnosis d) {
  d.config_path = place_in_config(config_, d.where);
  if (!findings_.is_full() && findings_.add(d))
    progress_.warn(joined("step ", place_.step, " (epoch ", place_.epoch, "): observed\n", d.text()));
}

// Measures the update of a watched step. If it left weights that are not finite, restores them and explains the step.
void Explainer::examine_update() {
  const NoGrad off;
  const std::vector<Tensor> now = session_.model->parameters();
  bool broken = false;
  for (size_t i = 0; i < now.size(); ++i)
    broken = broken || (count_values(now[i]).any_not_finite() && !count_values(weights_.before[i]).any_not_finite());
  weights_.update = std::max(weights_.update, relative_change(weights_.before, now).value_or(0));
  if (!broken || !step_.kept_step() || place_.step < watch_->from) return;
  for (size_t i = 0; i < now.size(); ++i) now[i].copy_(weights_.before[i]);
  explain(*step_.kept_step(), "its update left weights that are not finite", true);
}

void Explainer::add_outcome(int64_t attempt, bool applied, double loss) {
  if (mode_.explains && attempt > counted_) count_outcome(applied, loss);
}

void Explainer::count_outcome(bool applied, double loss) {
  history_.skips.add(applied);
  if (!applied || !std::isfinite(loss)) return;
  findings_.last_cause.clear();
  history_.losses.add(loss);
}

// Returns the diagnosis of the first rank that found a fault in its own rows, or of rank 0 if none did. Sets `is_own` to whether
// that is this rank.
Diagnosis Explainer::worst_of_ranks(Diagnosis own, bool& is_own) const {
  is_own = true;
  if (!group_ || group_->size() == 1) return own;
  const bool finds_nothing = own.cause == "not_reproduced" || own.cause == "overflow_scale" || own.cause == "unexplained";
  // A message of each rank: '0' for a fault or '1' for none, the cause, the place and the text, in lines.
  const std::string mine = joined(finds_nothing ? '1' : '0', own.cause, '\n', own.where, '\n', own.text());
  const std::vector<std::string> all = group_->gather(mine);
  const auto worst = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a[0] < b[0]; });
  is_own = worst == all.begin() + group_->rank();
  if (is_own) return own;
  const size_t first = worst->find('\n'), second = worst->find('\n', first + 1);
  Diagnosis other{.cause = worst->substr(1, first - 1), .where = worst->substr(first + 1, second - first - 1)};
  other.whole_text = joined("  rank      ", worst - all.begin(), '\n', worst->substr(second + 1));
  return other;
}

// Writes a capsule on the rank whose diagnosis it is. Returns on all ranks the line that names the file, or says why there is none;
// empty for no fault and if the run has enough capsules.
std::string Explainer::save_capsule(const StepUnderTest& step, CapsuleStep about, const Diagnosis& d, bool is_own) const {
  if (!d.is_fault()) return "";
  if (group_) {
    about.rank = group_->rank();
    about.ranks = group_->size();
  }
  std::string line;
  try {
    if (const auto path = is_own ? write_capsule(config_, session_, step, about, d) : std::nullopt)
      line = joined("\n  capsule   ", path->string());
  } catch (const Error& e) { line = joined("\n  capsule   not written: ", one_line(e)); }
  if (!group_) return line;
  for (const std::string& of_rank : group_->gather(line)) line += of_rank;
  return line;
}

// Gives each micro-batch of the step the numbers of its samples, where they are known.
void Explainer::add_samples(StepUnderTest& step) const {
  const auto samples =
      step.batches.size() == 1 ? std::vector<std::vector<int64_t>>{session_.train->samples_of_part()} : current_.samples;
  if (samples.size() != step.batches.size()) return;
  for (size_t i = 0; i < samples.size(); ++i) step.batches[i].samples = samples[i];
}

// Computes the step again on this rank.
Diagnosis Explainer::own_diagnosis(const StepUnderTest& step, const StepHistory& history) const {
  Diagnosis out;
  try {
    out = diagnose(step, history);
  } catch (const MemoryError&) {  // leave the memory to the run
    out = {.cause = "unexplained", .sentence = "there is no memory to compute the step again", .remedies = {{"a smaller batch"}}};
  }
  out.config_path = place_in_config(config_, out.where);
  return out;
}

// Diagnoses the step and gives the finding to the watch, or prints it and writes a capsule. Throws DivergedError for a fault under
// train.detect_anomaly.
void Explainer::explain(StepUnderTest step, const std::string& fault, bool broke_weights) {
  if (findings_.is_full() || ended_ || (mode_.seeks_fault && place_.step < watch_->from)) return;
  add_samples(step);
  StepHistory history{.loss = history_.losses.median(), .update = weights_.update, .broke_weights = broke_weights};
  if (const Json& optimizer = config_.optimizer; optimizer.contains("eps") && optimizer["eps"].is_number())
    history.eps = optimizer["eps"].get<double>();
  bool is_own = true;
  Diagnosis d = worst_of_ranks(own_diagnosis(step, history), is_own);
  if (mode_.seeks_fault) {
    if (d.is_fault()) watch_->on_diagnosis(place_, d);
    ended_ = d.is_fault();
    return;
  }
  findings_.latest = d.cause;
  findings_.step = place_.step;
  // Consequences of a broken step are not another fault.
  if (!findings_.last_cause.empty() && d.cause.ends_with("_broken")) return;
  findings_.last_cause = joined(d.cause, d.sentence.empty() ? "" : ": ", d.sentence);
  if (!findings_.add(d) && !config_.train.detect_anomaly) return;
  const std::string file =
      save_capsule(step, {.number = place_.step, .epoch = place_.epoch, .what = fault, .history = history}, d, is_own);
  if (d.cause == "divergence" || d.cause == "optimizer_blowup")
    d.remedies.push_back({joined("halfstep doctor ", config_.output_dir, " tries lower rates on these steps")});
  if (d.cause == "weights_broken")
    d.remedies.push_back({joined("halfstep doctor ", config_.output_dir, " finds the step whose update broke them")});
  const std::string text = joined("step ", place_.step, " (epoch ", place_.epoch, "): ", fault, '\n', d.text(), file);
  if (d.is_fault())
    progress_.warn(text);
  else
    progress_.note(text);
  if (config_.train.detect_anomaly && d.is_fault())
    fail<DivergedError>("train", "train.detect_anomaly ends the run at step ", place_.step, ": ", findings_.last_cause);
}

}  // namespace halfstep::app
