// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/parity.h"

#include <algorithm>
#include <cmath>

#include "amp/autocast/autocast.h"
#include "amp/diagnosis/precisions.h"
#include "amp/diagnosis/state_guard.h"
#include "amp/diagnosis/trial_updates.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/leaf_listener.h"
#include "framework/ops/ops.h"
#include "layers/module/functional_call.h"

namespace halfstep {
namespace {

// Returns the largest relative error of a rounding to nearest.
double unit_of(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24; }

struct Computed {
  double loss = 0;
  Tensors gradients;  // unscaled, in float64; undefined for parameters without one
  bool finite = true;
};

double product_of(const Tensor& a, const Tensor& b) { return sum(a * b).item<double>(); }

// Sums over n batches k, with the float32 gradients g_k and the differences d_k of the 16-bit ones from them.
//
//   error^2 = sum |d_k|^2 / n,   noise^2 = sum |g_k - mean g|^2 / (n - 1)
//   bias^2  = (|mean d|^2 - sum |d_k - mean d|^2 / (n (n - 1))) / |mean g|^2: a mean is as large as the subtrahend by chance
class Sums {
 public:
  void add(const Computed& low, const Computed& float32, double denominator) {
    const NoGrad off;
    ++count_;
    denominators_ += denominator;
    loss_ += low.loss * denominator, loss_f32_ += float32.loss * denominator;
    const size_t n = float32.gradients.size();
    mean_gradient_.resize(n), mean_error_.resize(n), squared_errors_.resize(n), squared_gradients_.resize(n);
    double lg = 0, ll = 0, gg = 0;  // products of the whole gradients
    for (size_t i = 0; i < n; ++i) {
      const Tensor &g = float32.gradients[i], &l = low.gradients[i];
      if (!g.defined() || !l.defined()) continue;
      const Tensor d = l - g;
      const double d2 = product_of(d, d), g2 = product_of(g, g);
      squared_errors_[i] += d2, squared_gradients_[i] += g2;
      lg += product_of(l, g), ll += product_of(l, l), gg += g2;
      nonzero_ += sum(g != 0).item<double>();
      flushed_ += sum(logical_and(g != 0, l == 0)).item<double>();
      // Welford's algorithm avoids the difference of two large sums.
      const Tensor from_mean = mean_gradient_[i].defined() ? g - mean_gradient_[i] : g;
      mean_gradient_[i] = mean_gradient_[i].defined() ? mean_gradient_[i] + from_mean / double(count_) : g / double(count_);
      noise_ += product_of(from_mean, g - mean_gradient_[i]);
      mean_error_[i] = mean_error_[i].defined() ? mean_error_[i] + (d - mean_error_[i]) / double(count_) : d / double(count_);
    }
    cosines_ += ll > 0 && gg > 0 ? lg / std::sqrt(ll * gg) : ll == gg ? 1 : 0;
  }

  double rms_error() const { return std::sqrt(total(squared_errors_) / double(count_)); }
  double rms_gradient() const { return std::sqrt(total(squared_gradients_) / double(count_)); }
  double noise() const { return count_ > 1 ? std::sqrt(noise_ / double(count_ - 1)) : 0; }

  void write(Parity& out, const std::vector<NamedTensor>& parameters) const {
    const double g = rms_gradient(), n = double(count_);
    out.batches = count_;
    out.loss = loss_ / denominators_, out.loss_f32 = loss_f32_ / denominators_;
    out.error = g > 0 ? rms_error() / g : rms_error() > 0 ? INFINITY : 0;
    out.noise = g > 0 ? noise() / g : 0;
    // Ignore noise as small as float32's own rounding, as when each batch is the whole data. That rounding is smaller than that of
    // 16 bits by the ratio of their units; accumulated, it may be larger by some binades: by a factor of 16.
    out.by_noise = noise() > 16 * rms_error() * unit_of(DType::f32) / unit_of(out.low);
    out.cosine = cosines_ / n;
    out.flushed = nonzero_ > 0 ? flushed_ / nonzero_ : 0;
    const double mean_d2 = square_of(mean_error_), mean_g2 = square_of(mean_gradient_);
    const double by_chance = count_ > 1 ? std::max(0.0, total(squared_errors_) / n - mean_d2) / (n - 1) : 0;
    out.bias = mean_g2 > 0 ? std::sqrt(std::max(0.0, mean_d2 - by_chance) / mean_g2) : 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (squared_gradients_[i] <= 0 || squared_errors_[i] / squared_gradients_[i] <= out.worst_error * out.worst_error) continue;
      out.worst = parameters[i].name;
      out.worst_error = std::sqrt(squared_errors_[i] / squared_gradients_[i]);
    }
  }

 private:
  static double total(const std::vector<double>& squares) {
    double out = 0;
    for (const double x : squares) out += x;
    return out;
  }
  static double square_of(const Tensors& parts) {
    const NoGrad off;
    double out = 0;
    for (const Tensor& t : parts)
      if (t.defined()) out += product_of(t, t);
    return out;
  }

  int64_t count_ = 0;
  double denominators_ = 0, loss_ = 0, loss_f32_ = 0, noise_ = 0, cosines_ = 0, nonzero_ = 0, flushed_ = 0;
  Tensors mean_gradient_, mean_error_;                      // by parameter
  std::vector<double> squared_errors_, squared_gradients_;  // sums of squares
};

// Returns |low - float32|^2 of the gradients.
double squared_difference(const Computed& low, const Computed& float32) {
  if (!low.finite) return INFINITY;
  const NoGrad off;
  double out = 0;
  for (size_t i = 0; i < float32.gradients.size(); ++i) {
    if (!float32.gradients[i].defined() || !low.gradients[i].defined()) continue;
    const Tensor d = low.gradients[i] - float32.gradients[i];
    out += product_of(d, d);
  }
  return out;
}

class ParityMeasurement {
 public:
  ParityMeasurement(const StepUnderTest& step, const std::vector<ParityVariant>& variants, Optimizer* optimizer)
      : step_(step), variants_(variants), optimizer_(optimizer && !optimizer->needs_closure() ? optimizer : nullptr) {
    out_.low = *step.low;
    out_.scale = step.scale;
  }

  Parity run() {
    while (!compare_batches()) {}
    if (out_.fault) return std::move(out_);
    sums_.write(out_, step_.module.named_parameters());
    if (updates_) out_.update_error = updates_->error();
    const double unit = out_.by_noise ? sums_.noise() : sums_.rms_gradient();
    for (const double d2 : variant_errors_) out_.variants.push_back(d2 > 0 ? std::sqrt(d2 / double(out_.batches)) / unit : 0);
    out_.modules = compare_modules(step_);
    return std::move(out_);
  }

 private:
  // Computes all batches in both dtypes. Returns false if a gradient overflowed and the scale was lowered: call it again.
  bool compare_batches() {
    sums_ = {};
    if (optimizer_) updates_.emplace(step_.module, *optimizer_);
    variant_errors_.assign(variants_.size(), 0);
    const StateGuard untouched(step_.module, {}, step_.random);
    for (const TestedBatch& b : step_.batches) {
      const StepStates before(step_.module);
      before.put_back_for({});
      const Computed float32 = in_float32(b);
      const StepStates after(step_.module);
      before.put_back_for(step_.low);
      const Computed low = in_low(b, {});
      if (!float32.finite || !low.finite) {
        before.put_back();
        return lower_scale_or_fail(b, float32.finite);
      }
      sums_.add(low, float32, b.denominator);
      if (updates_) updates_->add(low.gradients, float32.gradients);
      for (size_t i = 0; i < variants_.size(); ++i) variant_errors_[i] += variant_error(b, variants_[i], before, float32);
      after.put_back_for({});
    }
    return true;
  }

  // Returns a step with this batch alone.
  StepUnderTest step_of(const TestedBatch& b) const {
    StepUnderTest step = step_;
    step.batches = {b};
    step.scale = out_.scale;
    step.random = default_generator().state();
    return step;
  }

  // Handles a batch whose gradients are not finite: lowers the scale, or records a fault if none is low enough. Returns whether
  // there is a fault.
  bool lower_scale_or_fail(const TestedBatch& b, bool good_in_float32) {
    const StepUnderTest step = step_of(b);
    if (good_in_float32 && out_.scale > 1) {
      const double fits = largest_scale(step);
      out_.scale = std::max(1.0, std::min(out_.scale / 2, fits > 0 ? fits : out_.scale));
      return false;
    }
    out_.fault = diagnose(step);
    return true;
  }

  Computed in_float32(const TestedBatch& b) const { return compute(b, step_.module.parameters(), {.enabled = false}, 1, false); }
  Computed in_low(const TestedBatch& b, const ParityVariant& v) const {
    Precisions precisions(step_.module);
    for (const std::string& path : v.modules) precisions.widen(path);
    const AutocastOptions region{.dtype = step_.low, .cache_enabled = false, .policies = v.policies.value_or(step_.policies)};
    return compute(b, step_.module.parameters(), region, out_.scale, step_.low_gradients && v.low_gradients);
  }

  // Returns |d|^2 of the batch for a variant.
  double variant_error(const TestedBatch& b, const ParityVariant& v, const StepStates& before, const Computed& float32) const {
    before.put_back_for(step_.low);
    const Computed low = in_low(b, v);
    if (!v.rounded_weights) return squared_difference(low, float32);
    const NamedTensors rounded(rounded_weights(b, before));
    Tensors leaves;
    for (const NamedTensor& p : step_.module.named_parameters()) {
      const auto is_it = [&](const NamedTensor& r) { return r.name == p.name; };
      const auto at = std::find_if(rounded.begin(), rounded.end(), is_it);
      leaves.push_back(at == rounded.end() ? p.tensor : at->tensor);
    }
    before.put_back_for({});
    const Substitution given(step_.module, rounded);
    return squared_difference(low, compute(b, leaves, {.enabled = false}, 1, false));
  }

  // Returns rounded copies of those weights of which autocast keeps a 16-bit copy.
  StateDict rounded_weights(const TestedBatch& b, const StepStates& before) const {
    const NoGrad off;
    const std::vector<NamedTensor> parameters = step_.module.named_parameters();
    const auto has_copy = [](const NamedTensor& p) { return autocast::shadow_of(p.tensor).defined(); };
    const bool any_copy = std::any_of(parameters.begin(), parameters.end(), has_copy);
    if (!any_copy) {
      before.put_back_for(step_.low);
      const EnableGrad on;
      const Autocast region(step_.device, {.dtype = step_.low, .cache_enabled = true, .policies = step_.policies});
      b.loss();
    }
    StateDict out;
    for (const NamedTensor& p : parameters) {
      if (!has_copy(p)) continue;
      Tensor leaf = p.tensor.detach().to(*step_.low).to(p.tensor.dtype());
      leaf.requires_grad_(true);
      out.push_back({p.name, leaf});
      if (!any_copy) autocast::drop_shadow(p.tensor);
    }
    return out;
  }

  // Computes the gradients of `leaves`.
  Computed compute(const TestedBatch& b, const std::vector<Tensor>& leaves, AutocastOptions region, double scale,
                   bool low_gradients) const {
    const EnableGrad on;
    Computed out;
    Tensor loss;
    {
      const Autocast in(step_.device, region);
      loss = b.loss();
    }
    out.loss = loss.item<double>();
    const LowGradients low(low_gradients);
    backward_unheard({loss}, {no_grad([&] { return full(loss.shape(), scale, {.device = step_.device}); })});
    out.finite = std::isfinite(out.loss);
    const NoGrad off;
    for (const Tensor& p : leaves) {
      const Tensor g = p.raw_grad();
      out.gradients.push_back(g.defined() ? g.to(DType::f64) / scale : Tensor());
      out.finite = out.finite && (!g.defined() || !count_values(g).any_not_finite());
      p.zero_grad();
    }
    return out;
  }

  const StepUnderTest& step_;
  const std::vector<ParityVariant>& variants_;
  Optimizer* const optimizer_;
  Parity out_;
  Sums sums_;
  std::optional<TrialUpdates> updates_;
  std::vector<double> variant_errors_;  // sums of |d|^2
};

}  // namespace

Parity::Verdict Parity::verdict() const {
  if (fault || !(measure() < 1)) return Verdict::harmful;
  return measure() < harmless_below() ? Verdict::harmless : Verdict::visible;
}

std::string_view name(Parity::Verdict verdict) {
  return verdict == Parity::Verdict::harmless ? "harmless" : verdict == Parity::Verdict::visible ? "visible" : "harmful";
}

Parity compare_with_float32(const StepUnderTest& step, const std::vector<ParityVariant>& variants, Optimizer* optimizer) {
  check<ValueError>(step.low && is_half(*step.low), "compare_with_float32", "step.low must be float16 or bfloat16");
  check<ValueError>(!step.batches.empty(), "compare_with_float32", "a comparison needs a batch");
  return ParityMeasurement(step, variants, optimizer).run();
}

}  // namespace halfstep
