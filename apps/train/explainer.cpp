// SPDX-License-Identifier: Apache-2.0
#include "apps/train/explainer.h"

#include <algorithm>
#include <cmath>

#include "apps/catalog/infer.h"
#include "apps/exit_codes.h"
#include "apps/train/config_path.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

constexpr size_t kExplanations = 20;  // most explanations in a run

double loss_of(const StepResult& r) { return r.loss.defined() ? r.loss.item<double>() : NAN; }

}  // namespace

Explainer::Explainer(const Config& config, Session& session, TrainStep& step, Progress& progress, RunDir& dir, ProcessGroup* group,
                     Watch* watch)
    : config_(config),
      s_(session),
      step_(step),
      progress_(progress),
      group_(group),
      watch_(watch),
      observer_(config, session, step, dir, group != nullptr, watch != nullptr),
      looks_{.seeks = watch && watch->on_diagnosis, .on = false, .at_once = false},
      history_{.skips = SkipCount(config.train.detect_anomaly)} {
  const bool asked = config.diagnostics.explain || config.train.detect_anomaly || looks_.seeks;
  looks_.on = asked && !session.optimizer->needs_closure();
  looks_.at_once = looks_.on && (session.device.is_cpu() || config.train.detect_anomaly || looks_.seeks);
}

bool Explainer::Findings::is_full() const { return explained.size() >= kExplanations; }

TrainStepOptions Explainer::added_to(TrainStepOptions o) {
  if (!looks_.at_once || group_) return o;  // ranks know a loss only at the end of a window: see stepped()
  o.on_bad_loss = [this](const StepUnderTest& step) {
    observer_.stop();
    explain(step, "the loss is not finite");
  };
  o.keeps_states = true;
  return o;
}

void Explainer::begin(int64_t attempt, int64_t applied, int64_t epoch, const Batch& batch) {
  now_ = {.step = attempt - history_.skips.skipped(), .attempt = attempt, .epoch = epoch};
  if (watch_ && watch_->begins) watch_->begins(attempt, batch);
  observer_.begin(applied + 1, attempt, epoch);
  if (step_.pending() == 0) {
    const bool may_be_explained = looks_.on && s_.scaler.is_enabled() &&
                                  (history_.skips.is_enough(history_.skips.in_row() + 1) || (group_ && looks_.at_once));
    kept_.is_kept = looks_.seeks || observer_.observes() || may_be_explained;
    step_.keep_step(kept_.is_kept);
    kept_.samples.clear();
  }
  if (kept_.is_kept) kept_.samples.push_back(s_.train->samples_of_part());
  if (!looks_.seeks || step_.pending() > 0) return;
  const NoGrad off;
  weights_.before.clear();
  for (const Tensor& p : s_.model->parameters()) weights_.before.push_back(p.detach().clone());
}

void Explainer::stepped(const StepResult& r) {
  for (const Diagnosis& d : observer_.stepped(r)) say_quiet(d);
  if (!r.stepped) return;
  if (r.no_target) history_.skips.add_without_target(), counted_ = now_.attempt;  // the numbers are in order
  const bool examines = looks_.on && (looks_.at_once || step_.kept_step()) && !r.no_target;
  if (examines) examine(r);
  if (!watch_) return;
  const AttemptedStep tried{now_.attempt, now_.step, loss_of(r), r.outcome.applied()};
  if (!examines && !r.no_target) count(tried.applied, tried.loss);
  counted_ = now_.attempt;
  if (watch_->stepped) watch_->stepped(tried, s_);
  ended_ = ended_ || (watch_->until && tried.applied && now_.step >= *watch_->until);
  ended_ = ended_ || (watch_->until_attempt && now_.attempt >= *watch_->until_attempt);
}

void Explainer::examine(const StepResult& r) {
  const bool applied = r.outcome.applied(), kept = step_.kept_step().has_value();
  const double loss = loss_of(r);
  counted_ = now_.attempt;
  if (looks_.seeks && applied && !ended_) look_at_weights();
  count(applied, loss);
  if (applied || !kept || ended_) return;
  if (group_ && !std::isfinite(loss)) return explain(*step_.kept_step(), "the loss is not finite");
  const int64_t skips = history_.skips.in_row();
  if (!history_.skips.is_enough(skips)) return;
  history_.skips.explained();
  explain(*step_.kept_step(),
          skips == 1 ? "skipped" : joined("skipped, as ", skips == 2 ? "was 1" : joined("were ", skips - 1), " before it"));
  if (!looks_.seeks) step_.keep_step(false);
}

void Explainer::say_quiet(Diagnosis d) {
  d.config_path = place_in_config(config_, d.where);
  if (!findings_.is_full() && findings_.add(d))
    progress_.warn(joined("step ", now_.step, " (epoch ", now_.epoch, "): observed\n", d.text()));
}

// Records the update's effect on the weights in a watched run.
void Explainer::look_at_weights() {
  const NoGrad off;
  const std::vector<Tensor> now = s_.model->parameters();
  bool broken = false;
  for (size_t i = 0; i < now.size(); ++i)
    broken = broken || (count_values(now[i]).any_not_finite() && !count_values(weights_.before[i]).any_not_finite());
  weights_.update = std::max(weights_.update, relative_change(weights_.before, now).value_or(0));
  if (!broken || !step_.kept_step() || now_.step < watch_->from) return;
  for (size_t i = 0; i < now.size(); ++i) now[i].copy_(weights_.before[i]);
  explain(*step_.kept_step(), "its update left weights that are not finite", true);
}

void Explainer::read(int64_t step, bool applied, double loss) {
  if (looks_.on && step > counted_) count(applied, loss);
}

void Explainer::count(bool applied, double loss) {
  history_.skips.add(applied);
  if (!applied || !std::isfinite(loss)) return;
  findings_.last_cause.clear();
  history_.losses.add(loss);
}

// Combines the ranks' diagnoses of their own rows: one that found a fault wins over one that found none.
Diagnosis Explainer::of_all_ranks(Diagnosis d, bool& own) const {
  if (!group_ || group_->size() == 1) return d;
  const bool finds_nothing = d.cause == "not_reproduced" || d.cause == "overflow_scale";
  const std::string mine = joined(finds_nothing ? '1' : '0', d.cause, '\n', d.where, '\n', d.text());
  const std::vector<std::string> all = group_->gather(mine);
  const auto worst = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a[0] < b[0]; });
  own = worst == all.begin() + group_->rank();
  if (own) return d;
  const size_t first = worst->find('\n'), second = worst->find('\n', first + 1);
  Diagnosis other{.cause = worst->substr(1, first - 1), .where = worst->substr(first + 1, second - first - 1)};
  other.whole_text = joined("  rank      ", worst - all.begin(), '\n', worst->substr(second + 1));
  return other;
}

// Returns the line that names the file, on all ranks; the rank with the diagnosis writes the file.
std::string Explainer::keep_in_capsule(const StepUnderTest& step, CapsuleStep about, const Diagnosis& d, bool own) const {
  if (!d.is_fault()) return "";
  if (group_) about.rank = group_->rank(), about.ranks = group_->size();
  std::string line;
  try {
    if (const auto path = own ? write_capsule(config_, s_, step, about, d) : std::nullopt)
      line = joined("\n  capsule   ", path->string());
  } catch (const Error& e) { line = joined("\n  capsule   not written: ", one_line(e)); }
  if (!group_) return line;
  for (const std::string& of_rank : group_->gather(line)) line += of_rank;
  return line;
}

void Explainer::explain(StepUnderTest step, const std::string& what, bool broke_weights) {
  if (findings_.is_full() || ended_ || (looks_.seeks && now_.step < watch_->from)) return;
  const auto samples = step.batches.size() == 1 ? std::vector<std::vector<int64_t>>{s_.train->samples_of_part()} : kept_.samples;
  for (size_t i = 0; i < samples.size() && samples.size() == step.batches.size(); ++i) step.batches[i].samples = samples[i];
  StepHistory history{.loss = history_.losses.median(), .update = weights_.update, .broke_weights = broke_weights};
  if (const Json& o = config_.optimizer; o.contains("eps") && o["eps"].is_number()) history.eps = o["eps"].get<double>();
  Diagnosis d;
  try {
    d = diagnose(step, history);
  } catch (const MemoryError&) {  // leave the memory to the run
    d = {.cause = "unexplained", .sentence = "there is no memory to compute the step again", .remedies = {{"a smaller batch"}}};
  }
  d.config_path = place_in_config(config_, d.where);
  bool own = true;
  d = of_all_ranks(std::move(d), own);
  if (looks_.seeks) {
    if (d.is_fault()) watch_->on_diagnosis(now_, d);
    ended_ = d.is_fault();
    return;
  }
  findings_.latest = d.cause;
  findings_.step = now_.step;
  // Consequences of a broken step are not another fault.
  if (!findings_.last_cause.empty() && d.cause.ends_with("_broken")) return;
  findings_.last_cause = joined(d.cause, d.sentence.empty() ? "" : ": ", d.sentence);
  if (!findings_.add(d) && !config_.train.detect_anomaly) return;
  const std::string file =
      keep_in_capsule(step, {.number = now_.step, .epoch = now_.epoch, .what = what, .history = history}, d, own);
  if (d.cause == "divergence" || d.cause == "optimizer_blowup")
    d.remedies.push_back({joined("halfstep doctor ", config_.output_dir, " tries lower rates on these steps")});
  if (d.cause == "weights_broken")
    d.remedies.push_back({joined("halfstep doctor ", config_.output_dir, " finds the step whose update broke them")});
  const std::string text = joined("step ", now_.step, " (epoch ", now_.epoch, "): ", what, '\n', d.text(), file);
  if (d.is_fault())
    progress_.warn(text);
  else
    progress_.note(text);
  if (config_.train.detect_anomaly && d.is_fault())
    fail<DivergedError>("train", "train.detect_anomaly ends the run at step ", now_.step, ": ", findings_.last_cause);
}

}  // namespace halfstep::app
