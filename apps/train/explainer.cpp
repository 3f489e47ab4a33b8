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

constexpr int64_t kSkipsInARow = 3;   // fewer are the scaler's search for its scale
constexpr size_t kExplanations = 20;  // of a run
constexpr size_t kLosses = 200;       // whose median is known

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
      seeks_(watch && watch->found),
      on_((config.diagnostics.explain || config.train.detect_anomaly || seeks_) && !session.optimizer->needs_closure()),
      at_once_(on_ && (session.device.is_cpu() || config.train.detect_anomaly || seeks_)),
      next_look_(config.train.detect_anomaly ? 1 : kSkipsInARow) {}

TrainStepOptions Explainer::added_to(TrainStepOptions o) {
  if (!at_once_ || group_) return o;  // ranks know a loss at the end of a window only: see stepped()
  o.on_bad_loss = [this](const StepUnderTest& step) {
    observer_.stop();
    explain(step, "the loss is not finite");
  };
  o.keeps_states = true;
  return o;
}

void Explainer::begin(int64_t attempt, int64_t applied, int64_t epoch, const Batch& batch) {
  number_ = attempt;
  name_ = attempt - skipped_;
  epoch_ = epoch;
  if (watch_ && watch_->begins) watch_->begins(attempt, batch);
  observer_.begin(applied + 1, attempt, epoch);
  if (step_.pending() == 0) {
    const bool may_be_explained = on_ && s_.scaler.is_enabled() && (skips_ + 1 >= next_look_ || (group_ && at_once_));
    keeps_ = seeks_ || observer_.observes() || may_be_explained;
    step_.keep_step(keeps_);
    samples_.clear();
  }
  if (keeps_) samples_.push_back(s_.train->samples_of_part());
  if (!seeks_ || step_.pending() > 0) return;
  const NoGrad off;
  before_.clear();
  for (const Tensor& p : s_.model->parameters()) before_.push_back(p.detach().clone());
}

void Explainer::stepped(const StepResult& r) {
  for (const Diagnosis& d : observer_.stepped(r)) say_quiet(d);
  if (!r.stepped) return;
  if (r.no_target) ++skipped_, counted_ = number_;  // nothing is wrong with the numbers
  const bool examines = on_ && (at_once_ || step_.kept_step()) && !r.no_target;
  if (examines) examine(r);
  if (!watch_) return;
  const TriedStep tried{number_, name_, loss_of(r), r.outcome.applied()};
  if (!examines && !r.no_target) count(tried.applied, tried.loss);
  counted_ = number_;
  if (watch_->stepped) watch_->stepped(tried, s_);
  ended_ = ended_ || (watch_->until && tried.applied && name_ >= *watch_->until);
  ended_ = ended_ || (watch_->until_attempt && number_ >= *watch_->until_attempt);
}

void Explainer::examine(const StepResult& r) {
  const bool applied = r.outcome.applied(), kept = step_.kept_step().has_value();
  const double loss = loss_of(r);
  counted_ = number_;
  if (seeks_ && applied && !ended_) look_at_weights();
  count(applied, loss);
  if (applied || !kept || ended_) return;
  if (group_ && !std::isfinite(loss)) return explain(*step_.kept_step(), "the loss is not finite");
  if (skips_ < next_look_) return;
  next_look_ = config_.train.detect_anomaly ? skips_ + 1 : 4 * skips_;  // the cause may change while the scale falls
  explain(*step_.kept_step(),
          skips_ == 1 ? "skipped" : joined("skipped, as ", skips_ == 2 ? "was 1" : joined("were ", skips_ - 1), " before it"));
  if (!seeks_) step_.keep_step(false);
}

void Explainer::say_quiet(Diagnosis d) {
  d.place = place_in_config(config_, d.where);
  if (explained_.size() < kExplanations && explained_.insert({d.cause, d.where}).second)
    progress_.warn(joined("step ", name_, " (epoch ", epoch_, "): observed\n", d.text()));
}

// Of a watched run: what the update did.
void Explainer::look_at_weights() {
  const NoGrad off;
  const std::vector<Tensor> now = s_.model->parameters();
  bool broken = false;
  for (size_t i = 0; i < now.size(); ++i) broken = broken || (count_values(now[i]).bad() && !count_values(before_[i]).bad());
  update_ = std::max(update_, relative_change(before_, now).value_or(0));
  if (!broken || !step_.kept_step() || name_ < watch_->from) return;
  for (size_t i = 0; i < now.size(); ++i) now[i].copy_(before_[i]);
  explain(*step_.kept_step(), "its update left weights that are not finite", true);
}

void Explainer::read(int64_t step, bool applied, double loss) {
  if (on_ && step > counted_) count(applied, loss);
}

void Explainer::count(bool applied, double loss) {
  skips_ = applied ? 0 : skips_ + 1;
  skipped_ += applied ? 0 : 1;
  if (!applied) return;
  next_look_ = config_.train.detect_anomaly ? 1 : kSkipsInARow;
  if (!std::isfinite(loss)) return;
  last_cause_.clear();
  if (losses_.size() < kLosses)
    losses_.push_back(std::abs(loss));
  else
    losses_[next_loss_++ % kLosses] = std::abs(loss);
}

double Explainer::median_loss() const {
  if (losses_.empty()) return loss_before_;
  std::vector<double> sorted = losses_;
  const auto middle = sorted.begin() + std::ptrdiff_t(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

// Each rank computes its own rows; one that found a fault knows more than one that found none.
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

// The line that names the file, on all ranks; the rank whose verdict it is writes it.
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
  if (explained_.size() >= kExplanations || ended_ || (seeks_ && name_ < watch_->from)) return;
  const auto samples = step.batches.size() == 1 ? std::vector<std::vector<int64_t>>{s_.train->samples_of_part()} : samples_;
  for (size_t i = 0; i < samples.size() && samples.size() == step.batches.size(); ++i) step.batches[i].samples = samples[i];
  StepHistory history{.loss = median_loss(), .update = update_, .broke_weights = broke_weights};
  if (const Json& o = config_.optimizer; o.contains("eps") && o["eps"].is_number()) history.eps = o["eps"].get<double>();
  Diagnosis d;
  try {
    d = diagnose(step, history);
  } catch (const MemoryError&) {  // the run itself has what it needs
    d = {.cause = "unexplained", .sentence = "there is no memory to compute the step again", .remedies = {{"a smaller batch"}}};
  }
  d.place = place_in_config(config_, d.where);
  bool own = true;
  d = of_all_ranks(std::move(d), own);
  if (seeks_) {
    if (d.is_fault()) watch_->found({name_, number_, epoch_}, d);
    ended_ = d.is_fault();
    return;
  }
  found_ = d.cause;
  found_in_ = name_;
  // What a broken step leaves behind is not another fault.
  if (!last_cause_.empty() && d.cause.ends_with("_broken")) return;
  last_cause_ = joined(d.cause, d.sentence.empty() ? "" : ": ", d.sentence);
  if (!explained_.insert({d.cause, d.where}).second && !config_.train.detect_anomaly) return;
  const std::string file = keep_in_capsule(step, {.number = name_, .epoch = epoch_, .what = what, .history = history}, d, own);
  if (d.cause == "divergence" || d.cause == "optimizer_blowup")
    d.remedies.push_back({joined("halfstep doctor ", config_.output_dir, " tries lower rates on these steps")});
  if (d.cause == "weights_broken")
    d.remedies.push_back({joined("halfstep doctor ", config_.output_dir, " finds the step whose update broke them")});
  const std::string text = joined("step ", name_, " (epoch ", epoch_, "): ", what, '\n', d.text(), file);
  if (d.is_fault())
    progress_.warn(text);
  else
    progress_.note(text);
  if (config_.train.detect_anomaly && d.is_fault())
    fail<DivergedError>("train", "train.detect_anomaly ends the run at step ", name_, ": ", last_cause_);
}

}  // namespace halfstep::app
