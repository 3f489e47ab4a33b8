// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/diagnose.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "amp/diagnosis/module_search.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "layers/sequences/recurrent.h"

namespace halfstep {
namespace {

const double kLargestHalf = max_value(DType::f16);
constexpr int64_t kListedRows = 5;
// Ratio of the loss scale to the largest that fits above which a lower initial scale is advised: the scaler would skip over six
// steps.
constexpr double kMuchTooLarge = 64;

std::string text_of(const ValueCounts& c) {
  const std::string nan = c.nan > 0 ? joined(c.nan, " NaN") : "", inf = c.inf() > 0 ? joined(c.inf(), " inf") : "";
  return joined(nan, !nan.empty() && !inf.empty() ? " and " : "", inf, " of ", c.numel, " values");
}

// Returns "rows 3, 7 of the batch (samples 417, 12 of the data)": the first rows that are not finite.
std::string bad_rows(const Tensor& t, const std::vector<int64_t>& samples) {
  if (t.dim() == 0 || t.size(0) == 0) return "the whole of it";
  const NoGrad off;
  const Tensor flat = t.detach().reshape({t.size(0), -1});
  const std::vector<bool> good = [&] {
    const auto values = all(isfinite(flat), {1}).to(DType::f32).to_vector<float>();
    return std::vector<bool>(values.begin(), values.end());
  }();
  std::string rows, numbers;
  int64_t count = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    if (good[i] || ++count > kListedRows) continue;
    rows += joined(count == 1 ? "" : ", ", i);
    if (samples.size() == good.size()) numbers += joined(count == 1 ? "" : ", ", samples[i]);
  }
  const char* const several = count == 1 ? "" : "s";
  return joined("row", several, ' ', rows, count > kListedRows ? joined(" and ", count - kListedRows, " more") : "",
                " of the batch", numbers.empty() ? "" : joined(" (sample", several, ' ', numbers, " of the data, counted from 0)"));
}

// Checks the inputs and targets of the step.
std::optional<Diagnosis> check_batches(const StepUnderTest& step) {
  for (size_t i = 0; i < step.batches.size(); ++i) {
    const TestedBatch& b = step.batches[i];
    for (const auto& [tensors, what] : {std::pair(&b.inputs, "input"), std::pair(&b.targets, "target")}) {
      for (const Tensor& t : *tensors) {
        if (!t.defined()) continue;
        const ValueCounts c = count_values(t);
        if (!c.any_not_finite()) continue;
        Diagnosis d{.cause = joined(what, "_nonfinite"), .where = what};
        d.sentence = joined("the ", what, "s of the batch hold ", c.nan > 0 ? "NaN" : "infinities");
        const std::string window = step.batches.size() > 1 ? joined(", micro-batch ", i + 1, " of ", step.batches.size()) : "";
        d.evidence = joined(text_of(c), ", in ", bad_rows(t, b.samples), window);
        d.remedies = {{"correct these samples, or leave them out"}};
        return d;
      }
    }
  }
  return {};
}

// Checks the weights, buffers and kept states of the step.
std::optional<Diagnosis> check_weights(const StepUnderTest& step) {
  const auto broken = [](const char* cause, const std::string& name, const ValueCounts& c, const char* remedy) {
    return Diagnosis{.cause = cause,
                     .where = name,
                     .sentence = joined(name, " was not finite before the step"),
                     .evidence = text_of(c),
                     .remedies = {{remedy}}};
  };
  for (const NamedTensor& p : step.module.named_parameters()) {
    if (const ValueCounts c = count_values(p.tensor); c.any_not_finite())
      return broken("weights_broken", p.name, c, "go back to an earlier checkpoint, or to weights that are finite");
  }
  for (const NamedTensor& b : step.module.named_buffers()) {
    if (!b.tensor.defined()) continue;
    if (const ValueCounts c = count_values(b.tensor); c.nan > 0)  // infinities may be masks
      return broken("buffers_broken", b.name, c, "go back to an earlier checkpoint, or reset the running statistics");
  }
  for (const NamedTensor& k : kept_states(step.module)) {
    if (const ValueCounts c = count_values(k.tensor); c.any_not_finite())
      return broken("state_broken", k.name, c, "reset_states(module), or go back to an earlier checkpoint");
  }
  return {};
}

class Diagnoser {
 public:
  Diagnoser(const StepUnderTest& step, const StepHistory& history) : step_(step), history_(history) {}

  Diagnosis find() {
    Diagnosis d = find_cause();
    d.replays = std::move(replays_);
    return d;
  }

 private:
  const StepReplayResult& add_replay(const std::string& name, std::optional<DType> low, double scale) {
    replays_.push_back(replay_step(step_, {.name = name, .low = low, .scale = scale}));
    return replays_.back();
  }

  Diagnosis find_cause() {
    replays_.reserve(4);
    if (auto d = check_batches(step_)) return *d;
    if (auto d = check_weights(step_)) return *d;
    const std::string dtype = step_.low ? joined(*step_.low) : "float32";
    const StepReplayResult& unchanged = add_replay("as it was", step_.low, step_.scale);
    if (!unchanged.error.empty()) return diagnose_error(unchanged);
    if (unchanged.finite()) return diagnose_good_step(unchanged);
    const StepReplayResult& float32 = step_.low ? add_replay("float32", {}, 1) : unchanged;
    if (!float32.finite()) return verdict_of_origin(float32, history_);
    if (auto d = find_loss_jump(float32)) return *d;
    const StepReplayResult& unscaled = add_replay(dtype + " at scale 1", step_.low, 1);
    if (!unscaled.finite()) return diagnose_range(unscaled);
    return diagnose_scale(unchanged, float32);
  }

  Diagnosis diagnose_error(const StepReplayResult& unchanged) {
    if (!unchanged.index_error)
      return {.cause = "error", .sentence = "the step throws", .evidence = unchanged.error, .remedies = {{"see the message"}}};
    return {.cause = "target_index",
            .where = "target",
            .sentence = "a target or an index is outside of its range",
            .evidence = unchanged.error,
            .remedies = {{"labels lie in [0, classes), indices below num_embeddings"}}};
  }

  // Diagnoses a step in which no kernel wrote a bad value.
  Diagnosis diagnose_good_step(const StepReplayResult& unchanged) {
    if (history_.broke_weights) {
      // The update of a weight whose gradients were all 0 is divided by eps alone.
      std::vector<Remedy> remedies = {{"a lower optimizer.lr"}, {"scheduler.warmup_steps"}};
      if (history_.eps == 0.0) remedies.insert(remedies.begin(), {"optimizer.eps above 0"});
      return {.cause = "optimizer_blowup",
              .where = "the update",
              .sentence = "gradients were finite, and the weights were not after the update",
              .evidence = joined("loss ", unchanged.loss, ", all gradients finite"),
              .remedies = remedies};
    }
    return {.cause = "not_reproduced",
            .sentence = "the step is finite when it is computed again",
            .evidence = joined("loss ", unchanged.loss, ", all gradients finite"),
            .remedies = {{"a transient fault of the hardware, or code that draws its own random numbers or counts its calls"}}};
  }

  // Blames the optimizer if the loss is over 100 times its median before, or over 10 times after a step larger than the weights.
  std::optional<Diagnosis> find_loss_jump(const StepReplayResult& float32) const {
    const double before = history_.loss, now = std::abs(float32.loss);
    if (before <= 0 || now <= 10 * before || (now <= 100 * before && history_.update <= 1)) return {};
    std::string evidence = joined("the loss is ", float32.loss, " in float32 too; its median was ", before);
    if (history_.update > 0) evidence += joined("; the largest step changed the weights by ", history_.update, " of their norm");
    return Diagnosis{.cause = "optimizer_blowup",
                     .where = "the weights",
                     .sentence = "the steps before drove the weights away",
                     .evidence = evidence,
                     .remedies = {{"a lower optimizer.lr"}, {"scheduler.warmup_steps"}, {"train.clip_grad_norm"}}};
  }

  std::string replays_text() const {
    std::string out;
    for (size_t i = 1; i < replays_.size(); ++i) {
      const StepReplayResult& a = replays_[i];
      out += joined("; ", a.name, ": ", a.finite() ? joined("good, loss ", a.loss) : "bad");
    }
    return out;
  }

  // Tries the step in bfloat16, which has float32's range.
  Remedy bfloat16() {
    const StepReplayResult& b = add_replay("bfloat16", DType::bf16, 1);
    return {R"("amp": {"dtype": "bfloat16"})", b.finite() ? Remedy::Tried::holds : Remedy::Tried::fails,
            b.finite() ? joined("loss ", b.loss) : ""};
  }

  // Diagnoses a step whose values leave the range of 16 bits at scale 1, too. unscaled: that replay.
  Diagnosis diagnose_range(const StepReplayResult& unscaled) {
    Diagnosis d;
    const std::string dtype = joined(*step_.low);
    const double input = largest_of(&TestedBatch::inputs);
    d.where = place_of(unscaled);
    const std::string weight = weight_behind(unscaled);
    if (*step_.low == DType::f16 && input > kLargestHalf) {
      d.cause = "input_range";
      d.where = "input";
      d.sentence = "float16 cannot hold the inputs";
      d.evidence = joined("inputs up to ", input, ", where float16 ends at ", kLargestHalf);
      d.remedies = {{"scale the inputs, for example by the data's mean and standard deviation"}};
    } else if (!weight.empty()) {
      d.cause = "weight_range";
      d.where = weight;
      d.sentence = joined(dtype, " cannot hold the values of ", weight);
      double largest = 0;
      for (const NamedTensor& p : step_.module.named_parameters())
        if (p.name == weight) largest = count_values(p.tensor).largest;
      d.evidence = joined("weights up to ", largest, ", where ", dtype, " ends at ", max_value(*step_.low));
      d.remedies = {{"smaller initial weights, or optimizer.weight_decay"}};
    } else {
      const bool forward = !unscaled.loss_finite || !unscaled.event || unscaled.event->pass == StepPass::forward;
      d.cause = forward ? "activation_range" : "gradient_range";
      d.sentence = joined(dtype, forward ? " cannot hold what " : " cannot hold the gradients of ", layer_phrase(d.where),
                          forward ? " computes" : "");
      d.evidence = unscaled.event ? describe(*unscaled.event) : "";
    }
    const double target = largest_of(&TestedBatch::targets);
    if (*step_.low == DType::f16 && target > kLargestHalf)
      d.remedies.insert(d.remedies.begin(),
                        {joined("scale the targets, which go up to ", target, ": by their mean and standard deviation")});
    add_trials(d, unscaled);
    d.evidence += replays_text();
    return d;
  }

  double largest_of(Tensors TestedBatch::*tensors) const {
    double out = 0;
    for (const TestedBatch& b : step_.batches)
      for (const Tensor& x : b.*tensors)
        if (x.defined() && x.is_floating_point()) out = std::max(out, count_values(x).largest);
    return out;
  }

  // Puts remedies that were tried first: modules in float32, and bfloat16.
  void add_trials(Diagnosis& d, const StepReplayResult& bad) {
    std::vector<Remedy> tried;
    if (d.cause != "input_range") {
      const ModuleSearch found = search_modules(step_, {.name = bad.name, .low = step_.low, .scale = 1});
      if (found.holds && !found.modules.empty())
        tried.push_back({as_setting(step_.module, found.modules), Remedy::Tried::holds, joined("loss ", found.replay.loss)});
    }
    if (*step_.low == DType::f16) tried.push_back(bfloat16());
    d.remedies.insert(d.remedies.begin(), tried.begin(), tried.end());
  }

  // Returns the weight whose 16-bit copy is not finite, if that is the origin.
  static std::string weight_behind(const StepReplayResult& replay) {
    const bool cast = replay.event && replay.event->op == "autocast" && replay.event->pass == StepPass::forward;
    return cast || replay.origin.root.starts_with("copy:") ? replay.weight : "";
  }

  // Diagnoses a step whose gradients overflow under its loss scale alone.
  Diagnosis diagnose_scale(const StepReplayResult& unchanged, const StepReplayResult& float32) {
    GradientPeak peak;
    const double fits = largest_scale(step_, &peak);
    Diagnosis d{.cause = step_.scale <= 1 ? "gradient_range" : "overflow_scale", .where = place_of(unchanged)};
    d.sentence = joined("the gradients do not fit into ", *step_.low, " under a loss scale of 2^", std::log2(step_.scale));
    d.evidence =
        joined("float32: good, loss ", float32.loss, "; largest 16-bit gradient at scale 1: ", peak.largest, " in ", peak.where);
    if (fits > 0) d.evidence += joined("; scales up to 2^", std::log2(fits), " fit");
    d.remedies = {{"none needed: the scaler lowers the scale and skips such steps"}};
    if (step_.scale <= 1) {
      d.remedies.clear();
      add_trials(d, unchanged);
      return d;
    }
    if (fits > 0 && fits * kMuchTooLarge < step_.scale)
      d.remedies = {{joined(R"("amp": {"scaler": {"init_scale": )", fits / 2, "}}"), Remedy::Tried::untried, ""}};
    return d;
  }

  const StepUnderTest& step_;
  const StepHistory& history_;
  std::vector<StepReplayResult> replays_;
};

}  // namespace

double largest_scale(const StepUnderTest& step, GradientPeak* peak) {
  // Compare two scales: gradients grow with the scale. Values that backward computes again, such as the probabilities of attention,
  // do not.
  constexpr double factor = 1024;
  const StepReplayResult unscaled = replay_step(step, {.name = "bfloat16", .low = DType::bf16, .scale = 1});
  const StepReplayResult scaled = replay_step(step, {.name = "bfloat16", .low = DType::bf16, .scale = factor});
  GradientPeak highest;
  if (unscaled.peaks.size() != scaled.peaks.size()) return 0;
  for (size_t i = 0; i < unscaled.peaks.size(); ++i) {
    const double largest = unscaled.peaks[i].largest;
    if (scaled.peaks[i].largest > factor / 2 * largest && largest > highest.largest) highest = unscaled.peaks[i];
  }
  if (peak) *peak = highest;
  return highest.largest > 0 && std::isfinite(highest.largest) ? std::exp2(std::floor(std::log2(kLargestHalf / highest.largest)))
                                                               : 0;
}

Diagnosis diagnose(const StepUnderTest& step, const StepHistory& history) { return Diagnoser(step, history).find(); }

std::string Diagnosis::text() const {
  if (!whole_text.empty()) return whole_text;
  std::string out = joined("  cause     ", cause, ": ", sentence);
  if (!config_path.empty()) out += "\n  where     " + config_path;
  if (!evidence.empty()) out += "\n  evidence  " + evidence;
  std::string label = "\n  remedy    ";
  for (const Remedy& r : remedies) {
    out += label + r.text;
    if (r.tried != Remedy::Tried::untried)
      out += joined("   tried: ", r.tried == Remedy::Tried::holds ? "good" : "not enough", r.result.empty() ? "" : ", " + r.result);
    label = "\n            ";
  }
  return out;
}

}  // namespace halfstep
