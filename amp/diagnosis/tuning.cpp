// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/tuning.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "amp/diagnosis/module_search.h"
#include "amp/diagnosis/precisions.h"

namespace halfstep {
namespace {

constexpr double kMostForRange = 0.5;    // share of the operations in float32 above which float16 is useless
constexpr double kShareRounding = 1e-9;  // by which a sum of shares may exceed the budget
constexpr double kLeastShare = 1e-3;     // added to a share, so that modules without operations have a finite gain

class Tuner {
 public:
  Tuner(const StepUnderTest& step, const TuneOptions& options) : step_(step), options_(options), precisions_(step.module) {
    out_.low = *step.low;
  }

  Tuning run() {
    if (!mend_range()) return std::move(out_);
    out_.before = out_.after = compare_with_float32(step_);
    if (out_.before.fault) {
      out_.fault = out_.before.fault;
      return std::move(out_);
    }
    if (out_.before.verdict() != Parity::Verdict::harmless) mend_precision();
    drop_needless();
    finish();
    return std::move(out_);
  }

 private:
  // Returns a step with this batch alone, at scale 1.
  StepUnderTest step_of(const TestedBatch& b) const {
    StepUnderTest step = step_;
    step.batches = {b};
    step.scale = 1;
    return step;
  }
  StepReplayResult in_low(const TestedBatch& b) const {
    return replay_step(step_of(b), {.name = joined(*step_.low, " at scale 1"), .low = step_.low, .scale = 1});
  }
  bool all_finite() const {
    return std::all_of(step_.batches.begin(), step_.batches.end(), [&](const auto& b) { return in_low(b).finite(); });
  }

  // Widens modules until every batch is finite. Returns false if none help.
  bool mend_range() {
    for (const TestedBatch& b : step_.batches) {
      if (replay_step(step_of(b), {.name = "float32", .low = {}, .scale = 1}).finite()) continue;
      out_.fault = diagnose(step_of(b));
      return false;
    }
    for (const TestedBatch& b : step_.batches) {
      for (StepReplayResult replay = in_low(b); !replay.finite(); replay = in_low(b)) {
        const std::string path = widen_origin(replay, precisions_);
        if (path.empty()) return try_bfloat16(b);
        const std::string seen = replay.event ? describe(*replay.event) : replay.origin.root;
        chosen_.push_back({path, joined(*step_.low, " cannot hold its values: ", seen.substr(0, seen.find("; it reads")))});
      }
    }
    if (step_.low == DType::f16 && share_of_all() > kMostForRange) prefer_bfloat16();
    return true;
  }

  void set_dtype(DType low, double scale) {
    step_.low = out_.low = low;
    step_.scale = scale;
  }

  // Tries bfloat16, after no modules helped. Returns whether every batch is finite in it; records a fault if not.
  bool try_bfloat16(const TestedBatch& bad) {
    for (const TunedModule& m : chosen_) precisions_.put_back(m.path);
    chosen_.clear();
    const Diagnosis why = diagnose(step_of(bad));
    if (step_.low == DType::f16) {
      set_dtype(DType::bf16, 1);
      out_.why_low = why.sentence;
      if (all_finite()) return true;
    }
    out_.fault = why;
    return false;
  }

  // Chooses bfloat16 if the modules leave little to float16, unless its coarser rounding would hurt.
  void prefer_bfloat16() {
    const double share = share_of_all(), scale = step_.scale;
    for (const TunedModule& m : chosen_) precisions_.put_back(m.path);
    set_dtype(DType::bf16, 1);
    if (all_finite() && compare_with_float32(step_).verdict() == Parity::Verdict::harmless) {
      out_.why_low = joined("the range of float16 would need ", std::round(100 * share), " % of the operations in float32");
      chosen_.clear();
      return;
    }
    set_dtype(DType::f16, scale);
    for (const TunedModule& m : chosen_) precisions_.widen(m.path);
  }

  double share_of(const std::string& path) const {
    double out = 0;
    for (const auto& [name, share] : options_.shares)
      if (path.empty() || name == path || name.starts_with(path + ".")) out += share;
    return out;
  }
  double share_of_all() const {
    double out = 0;
    for (const auto& [name, share] : options_.shares) {
      const auto in = [&name = name](const TunedModule& m) { return name == m.path || name.starts_with(m.path + "."); };
      if (std::any_of(chosen_.begin(), chosen_.end(), in)) out += share;
    }
    return out;
  }

  // Sets the module to float32 if the budget allows it. Returns whether it did.
  bool choose(const std::string& path, const std::string& why) {
    const double share = share_of(path);
    if (spent_ + share > options_.budget + kShareRounding || path.empty() || !precisions_.widen(path)) return false;
    spent_ += share;
    chosen_.push_back({path, why});
    return true;
  }

  // Widens the modules that lose precision, then the one with the largest gain, until 16 bits are harmless or the budget is spent.
  void mend_precision() {
    bool any = false;
    for (const ModuleParity& m : out_.after.modules)
      if (m.loses_precision())
        any |= choose(m.path, joined("its error is ", m.ratio(), " times that of its ", m.roundings, " roundings"));
    if (any) out_.after = compare_with_float32(step_);
    while (out_.after.verdict() != Parity::Verdict::harmless) {
      if (!choose_best()) return;
      out_.after = compare_with_float32(step_);
    }
  }

  // Chooses the module that lowers the error most in relation to its operations.
  bool choose_best() {
    std::vector<ParityVariant> trials;
    for (const ModuleParity& m : out_.after.modules)
      if (m.roundings > 0 && !m.path.empty() && spent_ + share_of(m.path) <= options_.budget + kShareRounding)
        trials.push_back({.name = m.path, .modules = {m.path}});
    if (trials.empty()) return false;
    const Parity p = compare_with_float32(step_, trials);
    double best_gain = 0;
    size_t best = 0;
    for (size_t i = 0; i < trials.size(); ++i) {
      const double gain = (p.measure() - p.variants[i]) / (share_of(trials[i].name) + kLeastShare);
      if (gain > best_gain) best_gain = gain, best = i;
    }
    return best_gain > 0 && choose(trials[best].name, joined("the error falls from ", p.measure(), " to ", p.variants[best],
                                                             p.by_noise ? " of the noise" : " of the gradient"));
  }

  // Removes modules that are not needed.
  void drop_needless() {
    if (chosen_.size() < 2 && out_.before.verdict() == Parity::Verdict::harmless) return;
    for (const TunedModule& m : std::vector<TunedModule>(chosen_)) {
      precisions_.put_back(m.path);
      if (all_finite()) {
        Parity without = compare_with_float32(step_);
        if (!without.fault && without.verdict() <= out_.after.verdict()) {
          std::erase_if(chosen_, [&](const TunedModule& c) { return c.path == m.path; });
          out_.after = std::move(without);
          continue;
        }
      }
      precisions_.widen(m.path);
    }
  }

  void finish() {
    std::vector<std::string> paths;
    for (const TunedModule& m : chosen_) paths.push_back(m.path);
    precisions_.sort(paths);
    for (const std::string& path : paths)
      out_.modules.push_back(*std::find_if(chosen_.begin(), chosen_.end(), [&](const TunedModule& m) { return m.path == path; }));
    out_.share = share_of_all();
  }

  StepUnderTest step_;
  const TuneOptions& options_;
  Precisions precisions_;
  std::vector<TunedModule> chosen_;
  double spent_ = 0;  // share of the operations moved to float32 for precision: at most the budget
  Tuning out_;
};

}  // namespace

Tuning tune(const StepUnderTest& step, const TuneOptions& options) {
  check<ValueError>(step.low && is_half(*step.low), "tune", "step.low must be float16 or bfloat16");
  check<ValueError>(!step.batches.empty(), "tune", "tuning needs a batch");
  return Tuner(step, options).run();
}

}  // namespace halfstep
