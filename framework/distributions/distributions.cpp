// SPDX-License-Identifier: Apache-2.0
#include "framework/distributions/distributions.h"

#include <limits>
#include <tuple>
#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/base/check.h"
#include "framework/ops/ops.h"

namespace halfstep::distributions {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHalfLogTwoPi = 0.91893853320467274;

// Throws ValueError with the rule unless `holds` is true everywhere. Does not read values on a GPU or on the device meta.
void check_values(std::string_view name, const Tensor& holds, std::string_view rule) {
  if (!holds.device().is_cpu()) return;
  const NoGrad off;
  check<ValueError>(all(holds).item<bool>(), name, rule);
}

void check_parameter(std::string_view name, const Tensor& x) {
  check<ValueError>(x.defined(), name, "a parameter is undefined");
  check<DTypeError>(x.is_floating_point(), name, "parameters must be floating, got ", x.dtype());
}

// Returns two parameters in one shape and dtype.
std::pair<Tensor, Tensor> broadcast_parameters(std::string_view name, const Value& first, const Value& second) {
  Tensor a = first.tensor(), b = second.tensor();
  check_parameter(name, a);
  check_parameter(name, b);
  const auto like_other = [](const Value& x, const Value& other) {
    if (!x.is_number()) return x.tensor();
    return other.is_number() ? x.tensor().to(DType::f32) : x.tensor().to(other.tensor().dtype()).to(other.tensor().device());
  };
  a = like_other(first, second), b = like_other(second, first);
  check<DTypeError>(a.dtype() == b.dtype(), name, "parameters must have one dtype, got ", a.dtype(), " and ", b.dtype());
  const Shape shape = broadcast(a.shape(), b.shape(), name);
  return {a.expand(shape), b.expand(shape)};
}

TensorOptions like(const Tensor& x) { return {.dtype = x.dtype(), .device = x.device()}; }
Tensor softplus_of(const Tensor& x) { return -logsigmoid(-x); }
Tensor log_beta(const Tensor& a, const Tensor& b) { return lgamma(a) + lgamma(b) - lgamma(a + b); }

// Moves probabilities of 0 and 1 inside by one rounding, as PyTorch does, so that logits are finite.
Tensor clamped(const Tensor& probs) {
  const double eps = epsilon(probs.dtype());
  return clamp(probs, eps, 1 - eps);
}

// Samples the density x^(concentration - 1) e^-x / Gamma(concentration) by rejection: G. Marsaglia and W. W. Tsang, "A Simple
// Method for Generating Gamma Variables", 2000, whose letters d, c and v are used here. Concentrations below 1 are drawn for
// concentration + 1 and multiplied by U^(1 / concentration).
Tensor standard_gamma(const Tensor& concentration, Generator* generator) {
  const DType dtype = concentration.dtype();
  const Tensor alpha = is_half(dtype) ? concentration.to(DType::f32) : concentration;
  const Tensor below_one = lt(alpha, 1.0), d = where(below_one, alpha + 1, alpha) - 1.0 / 3, c = 1 / sqrt(d * 9);
  Tensor result = full_like(d, std::numeric_limits<double>::quiet_NaN()), is_open = ones_like(d).to(DType::boolean);
  // Each round accepts more than 95 % of the proposals, for every concentration.
  do {
    const Tensor z = randn(d.shape(), like(d), generator), u = rand(d.shape(), like(d), generator);
    const Tensor v = pow(c * z + 1, 3);
    const Tensor bound = z * z * 0.5 + d - d * v + d * log(clamp_min(v, std::numeric_limits<float>::min()));
    const Tensor accepted = logical_and(is_open, logical_and(gt(v, 0.0), lt(log(u), bound)));
    result = where(accepted, d * v, result);
    is_open = logical_and(is_open, logical_not(logical_or(accepted, isnan(bound))));
  } while (!d.device().is_meta() && any(is_open).item<bool>());
  const Tensor u = rand(d.shape(), like(d), generator);
  // rand may return 0, but a sample must be positive: below the smallest number its log_prob would be that of 0.
  result = clamp_min(where(below_one, result * pow(1 - u, 1 / alpha), result), std::numeric_limits<float>::min());
  return result.to(dtype);
}

template <class D>
const D& same_class(const D& p, const Distribution& q) {
  const D* other = dynamic_cast<const D*>(&q);
  check<ValueError>(other != nullptr, "kl_divergence", "has no formula for ", p.name(), " and ", q.name());
  return *other;
}

}  // namespace

Value::Value(double number) : tensor_(scalar(number, {.dtype = DType::f64})), is_number_(true) {}

// ---- Distribution

Shape Distribution::extended(const Shape& shape) const {
  Shape out = shape;
  for (const int64_t n : batch_shape_) out.push_back(n);
  for (const int64_t n : event_shape_) out.push_back(n);
  return out;
}

Tensor Distribution::sample(const Shape& shape, Generator* generator) const {
  const NoGrad off;
  return draw(shape, generator);
}

Tensor Distribution::rsample(const Shape& shape, Generator* generator) const {
  check<ValueError>(has_rsample(), name(), "has no rsample()",
                    Help{"sample() has no gradient; log_prob(sample) times a reward does"});
  return draw(shape, generator);
}

Tensor kl_divergence(const Distribution& p, const Distribution& q) { return p.divergence(q); }

// ---- Normal

Normal::Normal(const Value& loc, const Value& scale) {
  std::tie(loc_, scale_) = broadcast_parameters("Normal", loc, scale);
  check_values("Normal", gt(scale_, 0.0), "scale must be positive");
  batch_shape_ = loc_.shape();
}
Tensor Normal::draw(const Shape& shape, Generator* generator) const {
  return loc_ + scale_ * randn(extended(shape), like(loc_), generator);
}
Tensor Normal::log_prob(const Tensor& value) const { return square((value - loc_) / scale_) * -0.5 - log(scale_) - kHalfLogTwoPi; }
Tensor Normal::entropy() const { return log(scale_) + (0.5 + kHalfLogTwoPi); }
Tensor Normal::variance() const { return square(scale_); }
Tensor Normal::divergence(const Distribution& other) const {
  const Normal& q = same_class(*this, other);
  const Tensor ratio = square(scale_ / q.scale_), distance = square((loc_ - q.loc_) / q.scale_);
  return (ratio + distance - 1 - log(ratio)) * 0.5;
}

// ---- Uniform

Uniform::Uniform(const Value& low, const Value& high) {
  std::tie(low_, high_) = broadcast_parameters("Uniform", low, high);
  check_values("Uniform", lt(low_, high_), "low must be below high");
  batch_shape_ = low_.shape();
}
Tensor Uniform::draw(const Shape& shape, Generator* generator) const {
  return low_ + (high_ - low_) * rand(extended(shape), like(low_), generator);
}
Tensor Uniform::log_prob(const Tensor& value) const {
  return where(logical_and(ge(value, low_), lt(value, high_)), -log(high_ - low_), -kInfinity);
}
Tensor Uniform::entropy() const { return log(high_ - low_); }
Tensor Uniform::mean() const { return (low_ + high_) * 0.5; }
Tensor Uniform::variance() const { return square(high_ - low_) * (1.0 / 12); }
Tensor Uniform::divergence(const Distribution& other) const {
  const Uniform& q = same_class(*this, other);
  const Tensor covered = logical_and(ge(low_, q.low_), le(high_, q.high_));
  return where(covered, log((q.high_ - q.low_) / (high_ - low_)), kInfinity);
}

// ---- Bernoulli

Bernoulli::Bernoulli(const Value& probs)
    : Bernoulli(ChoiceOptions{.probs = probs.is_number() ? probs.tensor().to(DType::f32) : probs.tensor()}) {}
Bernoulli::Bernoulli(const ChoiceOptions& options) : probs_(options.probs), logits_(options.logits) {
  check<ValueError>(probs_.defined() != logits_.defined(), "Bernoulli", "needs either probs or logits");
  check_parameter("Bernoulli", probs_.defined() ? probs_ : logits_);
  if (probs_.defined()) {
    check_values("Bernoulli", logical_and(ge(probs_, 0.0), le(probs_, 1.0)), "probs must lie in [0, 1]");
    const Tensor p = clamped(probs_);
    logits_ = log(p) - log1p(-p);
  } else {
    probs_ = sigmoid(logits_);
  }
  batch_shape_ = probs_.shape();
}
Tensor Bernoulli::draw(const Shape& shape, Generator* generator) const {
  return halfstep::bernoulli(probs_.expand(extended(shape)), generator);
}
Tensor Bernoulli::log_prob(const Tensor& value) const { return value * logits_ - softplus_of(logits_); }
Tensor Bernoulli::entropy() const { return softplus_of(logits_) - probs_ * logits_; }
Tensor Bernoulli::variance() const { return probs_ * (1 - probs_); }
Tensor Bernoulli::divergence(const Distribution& other) const {
  const Bernoulli& q = same_class(*this, other);
  return probs_ * (softplus_of(-q.logits_) - softplus_of(-logits_)) +
         (1 - probs_) * (softplus_of(q.logits_) - softplus_of(logits_));
}

// ---- Categorical

Categorical::Categorical(const Tensor& probs) : Categorical(ChoiceOptions{.probs = probs}) {}
Categorical::Categorical(const ChoiceOptions& options) : probs_(options.probs), logits_(options.logits) {
  check<ValueError>(probs_.defined() != logits_.defined(), "Categorical", "needs either probs or logits");
  const Tensor& given = probs_.defined() ? probs_ : logits_;
  check_parameter("Categorical", given);
  check<ShapeError>(given.dim() >= 1 && given.size(-1) > 0, "Categorical", "needs a dimension of classes, got ", given.shape());
  if (probs_.defined()) {
    check_values("Categorical", ge(probs_, 0.0), "probs must not be negative");
    check_values("Categorical", gt(sum(probs_, {-1}), 0.0), "the probs of all classes must not be 0");
    probs_ = probs_ / sum(probs_, {-1}, true);
    logits_ = log(clamped(probs_));
  } else {
    logits_ = log_softmax(logits_, -1);
    probs_ = exp(logits_);
  }
  batch_shape_ = probs_.shape();
  batch_shape_.erase(probs_.dim() - 1);
}
Tensor Categorical::draw(const Shape& shape, Generator* generator) const {
  const int64_t classes = probs_.size(-1), draws = numel(shape);
  if (numel(extended(shape)) == 0) return zeros(extended(shape), {.dtype = DType::i64, .device = probs_.device()});
  const Tensor each = multinomial(probs_.detach().reshape({-1, classes}), draws, true, generator);  // [batch, draws]
  return each.t().reshape(extended(shape));
}
Tensor Categorical::log_prob(const Tensor& value) const {
  const Shape shape = broadcast(value.shape(), batch_shape_, "Categorical::log_prob");
  Shape wide = shape;
  wide.push_back(probs_.size(-1));
  const Tensor index = value.to(DType::i64).expand(shape).unsqueeze(-1);
  return gather(logits_.expand(wide), -1, index).squeeze(-1);
}
Tensor Categorical::entropy() const { return -sum(probs_ * clamp_min(logits_, std::numeric_limits<float>::lowest()), {-1}); }
Tensor Categorical::mean() const { fail<ValueError>("Categorical", "classes have no mean"); }
Tensor Categorical::variance() const { fail<ValueError>("Categorical", "classes have no variance"); }
Tensor Categorical::divergence(const Distribution& other) const {
  const Categorical& q = same_class(*this, other);
  Tensor each = probs_ * (logits_ - q.logits_);
  each = where(eq(q.probs_, 0.0), kInfinity, each);
  return sum(where(eq(probs_, 0.0), 0.0, each), {-1});
}

// ---- Gamma

Gamma::Gamma(const Value& concentration, const Value& rate) {
  std::tie(concentration_, rate_) = broadcast_parameters("Gamma", concentration, rate);
  check_values("Gamma", logical_and(gt(concentration_, 0.0), gt(rate_, 0.0)), "concentration and rate must be positive");
  batch_shape_ = rate_.shape();
}
Tensor Gamma::draw(const Shape& shape, Generator* generator) const {
  return standard_gamma(concentration_.expand(extended(shape)), generator) / rate_;
}
Tensor Gamma::log_prob(const Tensor& value) const {
  return concentration_ * log(rate_) + xlogy(concentration_ - 1, value) - rate_ * value - lgamma(concentration_);
}
Tensor Gamma::entropy() const {
  return concentration_ - log(rate_) + lgamma(concentration_) + (1 - concentration_) * digamma(concentration_);
}
Tensor Gamma::mean() const { return concentration_ / rate_; }
Tensor Gamma::variance() const { return concentration_ / square(rate_); }
Tensor Gamma::divergence(const Distribution& other) const {
  const Gamma& q = same_class(*this, other);
  return (concentration_ - q.concentration_) * digamma(concentration_) - lgamma(concentration_) + lgamma(q.concentration_) +
         q.concentration_ * (log(rate_) - log(q.rate_)) + concentration_ * (q.rate_ / rate_ - 1);
}

// ---- Beta

Beta::Beta(const Value& concentration1, const Value& concentration0) {
  std::tie(a_, b_) = broadcast_parameters("Beta", concentration1, concentration0);
  check_values("Beta", logical_and(gt(a_, 0.0), gt(b_, 0.0)), "both concentrations must be positive");
  batch_shape_ = a_.shape();
}
Tensor Beta::draw(const Shape& shape, Generator* generator) const {
  const Tensor x = standard_gamma(a_.expand(extended(shape)), generator), y = standard_gamma(b_.expand(extended(shape)), generator);
  return x / (x + y);
}
Tensor Beta::log_prob(const Tensor& value) const { return xlogy(a_ - 1, value) + xlogy(b_ - 1, 1 - value) - log_beta(a_, b_); }
Tensor Beta::entropy() const {
  const Tensor total = a_ + b_;
  return log_beta(a_, b_) - (a_ - 1) * digamma(a_) - (b_ - 1) * digamma(b_) + (total - 2) * digamma(total);
}
Tensor Beta::mean() const { return a_ / (a_ + b_); }
Tensor Beta::variance() const {
  const Tensor total = a_ + b_;
  return a_ * b_ / (square(total) * (total + 1));
}
Tensor Beta::divergence(const Distribution& other) const {
  const Beta& q = same_class(*this, other);
  return log_beta(q.a_, q.b_) - log_beta(a_, b_) + (a_ - q.a_) * digamma(a_) + (b_ - q.b_) * digamma(b_) +
         (q.a_ - a_ + q.b_ - b_) * digamma(a_ + b_);
}

// ---- Independent

Independent::Independent(std::shared_ptr<const Distribution> base, int64_t dims) : base_(std::move(base)), dims_(dims) {
  const Shape& batch = base_->batch_shape();
  check<ValueError>(dims >= 0 && dims <= batch.size(), "Independent", "dims must lie in [0, ", batch.size(),
                    "], the dimensions of the batch, got ", dims);
  for (int d = 0; d < batch.size(); ++d) (d < batch.size() - dims ? batch_shape_ : event_shape_).push_back(batch[d]);
  for (const int64_t n : base_->event_shape()) event_shape_.push_back(n);
}
Tensor Independent::summed(const Tensor& x) const {
  if (dims_ == 0) return x;
  Dims last;
  for (int64_t d = -dims_; d < 0; ++d) last.push_back(d);
  return sum(x, last);
}
Tensor Independent::log_prob(const Tensor& value) const { return summed(base_->log_prob(value)); }
Tensor Independent::entropy() const { return summed(base_->entropy()); }
Tensor Independent::divergence(const Distribution& other) const {
  const Independent& q = same_class(*this, other);
  check<ValueError>(dims_ == q.dims_, "kl_divergence", "needs events of as many dimensions, got ", dims_, " and ", q.dims_);
  return summed(kl_divergence(*base_, *q.base_));
}

}  // namespace halfstep::distributions
