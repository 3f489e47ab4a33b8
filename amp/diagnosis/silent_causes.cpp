// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/silent_causes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr double kFaultShare = 0.5;             // share of a tensor's elements, and of its gradient's norm, above which it is bad
constexpr int64_t kFewestGradients = 16;        // fewest elements with a gradient for which lost updates are reported
constexpr double kLargestUsefulScale = 0x1p24;  // scale at which float16's smallest number is a gradient of 2^-48
constexpr double kDefaultScale = 65536;         // GradScalerOptions::init_scale

// Returns "fc1.weight, fc1.bias, fc2.weight and 3 more".
std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 3); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > 3 ? joined(out, " and ", names.size() - 3, " more") : out;
}

std::string percent(double share) { return joined(std::round(share * 1000) / 10, " %"); }

// Error of a tensor's 16-bit gradient against the float32 one.
struct GradientError {
  std::string name;
  bool zero = false;   // in float32
  double flushed = 0;  // share of zeros among the elements that are not zero in float32
  double error = 0;    // |difference| / |gradient|
};

// Compares all tensors with a gradient. Gradients that are not finite in 16 bits have no error here: other causes cover them.
std::vector<GradientError> compare(const StepUnderTest& step, const StepReplayResult& rounded, double scale,
                                   const StepReplayResult& float32) {
  std::vector<GradientError> out;
  if (!float32.finite()) return out;
  const NoGrad off;
  const std::vector<NamedTensor> all = step.module.named_parameters();
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& exact = float32.gradients[i];
    if (!exact.defined()) continue;
    const Tensor nonzero = exact != 0.0;
    const int64_t count = count_nonzero(nonzero).item<int64_t>();
    GradientError e{.name = all[i].name, .zero = count == 0};
    if (count > 0 && rounded.finite() && rounded.gradients[i].defined()) {
      const Tensor& low = rounded.gradients[i];
      e.flushed = double(count_nonzero(logical_and(low == 0.0, nonzero)).item<int64_t>()) / double(count);
      const Tensor wide = exact.to(DType::f64);
      e.error = (norm(low.to(DType::f64) / scale - wide) / norm(wide)).item<double>();
    }
    out.push_back(std::move(e));
  }
  return out;
}

StepReplayResult in_float32(const StepUnderTest& step) { return replay_step(step, {.name = "float32", .keep_gradients = true}); }
StepReplayResult in_16_bits(const StepUnderTest& step, DType low, double scale) {
  return replay_step(step, {.name = joined(low), .low = low, .scale = scale, .keep_gradients = true});
}

bool underflows(const GradientError& e) { return e.flushed > kFaultShare && e.error > kFaultShare; }

double most_flushed(const std::vector<GradientError>& errors) {
  double out = 0;
  for (const GradientError& e : errors) out = std::max(out, e.flushed);
  return out;
}

// Tries the step with another dtype or scale.
Remedy try_remedy(const std::string& text, const StepUnderTest& step, DType low, double scale, const StepReplayResult& float32) {
  const StepReplayResult replay = in_16_bits(step, low, scale);
  if (!replay.finite()) return {text, Remedy::Tried::fails};
  const std::vector<GradientError> errors = compare(step, replay, scale, float32);
  const bool holds = std::none_of(errors.begin(), errors.end(), underflows);
  return {text, holds ? Remedy::Tried::holds : Remedy::Tried::fails,
          joined("at most ", percent(most_flushed(errors)), " of a tensor's gradient flushed")};
}

Diagnosis underflow(const StepUnderTest& step, const std::vector<std::string>& names, const GradientError& worst) {
  Diagnosis d{.cause = "underflow", .where = worst.name};
  d.sentence = joined("gradients are too small for ", *step.low, " in ", listed(names));
  d.evidence = joined(percent(worst.flushed), " of the gradient of ", worst.name, " is 0, and not in float32; relative error ",
                      worst.error, "; loss scale ", step.scale);
  const StepReplayResult float32 = in_float32(step);
  const double fits = largest_scale(step) / 2, scale = std::min(kDefaultScale, fits);
  if (*step.low == DType::f16 && scale > step.scale) {
    const char* const enabled = step.scale == 1 ? R"("enabled": true, )" : "";
    d.remedies.push_back(
        try_remedy(joined(R"("amp": {"scaler": {)", enabled, R"("init_scale": )", scale, "}}"), step, DType::f16, scale, float32));
  }
  if (*step.low == DType::f16)
    d.remedies.push_back(try_remedy(R"("amp": {"dtype": "bfloat16"})", step, DType::bf16, 1, float32));
  else
    d.remedies.push_back({"float32: --no-amp"});
  return d;
}

// Describes the cause. loss: the observed step's, in float32; unset: unknown.
Diagnosis dead_gradient(const std::vector<std::string>& names, double scale, const std::optional<double>& loss) {
  Diagnosis d{.cause = "dead_gradient", .where = names[0]};
  d.sentence = names.size() == 1 ? joined("the gradient of ", names[0], " is zero")
                                 : joined("the gradients of ", listed(names), " are zero");
  d.evidence = "exactly 0 in float32 too, in this observed step and in the one before it";
  if (loss) d.evidence += joined("; the loss is ", *loss);
  if (scale >= kLargestUsefulScale) d.evidence += joined("; the loss scale grew to ", scale, ", as nothing overflows");
  if (loss == 0.0)
    d.remedies = {
        {"no matter of precision: the loss is 0, so that nothing is left to learn; look at the targets, which may be all the "
         "same"}};
  else
    d.remedies = {
        {"no matter of precision: look for units that are always off (a ReLU behind a large negative bias), and for parts "
         "of the model that the loss does not depend on"}};
  return d;
}

Diagnosis lost_updates(const std::vector<std::string>& names, const TensorObservation& worst) {
  Diagnosis d{.cause = "lost_updates", .where = worst.name};
  d.sentence = joined("most updates change no bit of ", listed(names));
  d.evidence = joined(percent(*worst.lost), " of ", worst.with_gradient, " elements of ", worst.name,
                      " with a gradient kept their value: they are stored in ", worst.stored,
                      ", and the update was smaller than half a last bit");
  if (worst.update && *worst.update > 0) d.evidence += joined("; |change| / |weights| ", *worst.update);
  d.remedies = {{joined("keep parameters in float32, and compute in ", worst.stored, " by amp")}};
  return d;
}

}  // namespace

SilentCauses::TensorNames SilentCauses::new_names(const std::string& cause, const TensorNames& names) {
  TensorNames out;
  for (const std::string& name : names)
    if (reported_.insert({cause, name}).second) out.push_back(name);
  return out;
}

// Returns whether to compare gradients now. More than half of a gradient must be zero for more than half to be flushed. After
// comparisons that found nothing new, counts down the wait instead.
bool SilentCauses::should_compare(const Observation& seen) {
  const bool mostly_zero =
      std::any_of(seen.tensors.begin(), seen.tensors.end(), [](const auto& t) { return t.zero > kFaultShare; });
  if (!mostly_zero) return false;
  if (wait_ == 0) return true;
  --wait_;
  return false;
}

std::vector<Diagnosis> SilentCauses::look(Observation& seen, const StepUnderTest& step) {
  const auto observation_of = [&](const std::string& name) {
    return std::find_if(seen.tensors.begin(), seen.tensors.end(), [&](const TensorObservation& t) { return t.name == name; });
  };
  std::set<std::string> zero;
  TensorNames small;
  std::vector<GradientError> errors;
  std::optional<double> loss;
  if (!step.low) {
    for (const TensorObservation& t : seen.tensors)
      if (t.zero == 1) zero.insert(t.name);
  } else if (!step.batches.empty() && should_compare(seen)) {
    const StepReplayResult float32 = in_float32(step);
    loss = float32.loss;
    errors = compare(step, in_16_bits(step, *step.low, step.scale), step.scale, float32);
    for (const GradientError& e : errors) {
      if (const auto t = observation_of(e.name); t != seen.tensors.end() && !e.zero) t->flushed = e.flushed;
      if (e.zero) zero.insert(e.name);
      if (underflows(e)) small.push_back(e.name);
    }
    const auto is_reported = [&](const char* cause) {
      return [&, cause](const auto& name) { return reported_.contains({cause, name}); };
    };
    const bool nothing_new = std::all_of(zero.begin(), zero.end(), is_reported("dead_gradient")) &&
                             std::all_of(small.begin(), small.end(), is_reported("underflow"));
    wait_ = nothing_new ? next_wait_ : 0;
    next_wait_ = nothing_new ? 2 * next_wait_ : 1;
  }
  TensorNames dead, lost;
  std::copy_if(zero.begin(), zero.end(), std::back_inserter(dead), [&](const auto& name) { return zero_before_.contains(name); });
  zero_before_ = std::move(zero);
  for (const TensorObservation& t : seen.tensors)
    if (is_half(t.stored) && t.lost && *t.lost > kFaultShare && t.with_gradient >= kFewestGradients) lost.push_back(t.name);

  std::vector<Diagnosis> out;
  if (const TensorNames names = new_names("dead_gradient", dead); !names.empty()) {
    if (!loss && !step.batches.empty()) loss = in_float32(step).loss;
    out.push_back(dead_gradient(names, seen.scale, loss));
  }
  if (const TensorNames names = new_names("underflow", small); !names.empty()) {
    std::erase_if(errors, [&](const auto& e) { return std::find(names.begin(), names.end(), e.name) == names.end(); });
    const auto less = [](const auto& a, const auto& b) { return a.flushed < b.flushed; };
    out.push_back(underflow(step, names, *std::max_element(errors.begin(), errors.end(), less)));
  }
  if (const TensorNames names = new_names("lost_updates", lost); !names.empty()) {
    const auto less = [&](const auto& a, const auto& b) { return *observation_of(a)->lost < *observation_of(b)->lost; };
    out.push_back(lost_updates(names, *observation_of(*std::max_element(names.begin(), names.end(), less))));
  }
  return out;
}

}  // namespace halfstep
