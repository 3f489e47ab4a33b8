// SPDX-License-Identifier: Apache-2.0
// Densities, entropies and divergences against numerical integrals of their definitions; samples against their moments.
#include "framework/distributions/distributions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "framework/autograd/autograd.h"
#include "framework/autograd/gradcheck.h"
#include "framework/ops/ops.h"
#include "tests/support/errors.h"

using namespace halfstep;
using namespace halfstep::testing;
namespace D = halfstep::distributions;

namespace {

Tensor f64(const std::vector<double>& values) { return tensor(values, {int64_t(values.size())}, {.dtype = DType::f64}); }

// The places of a midpoint rule on [lo, hi], as [n, 1]; the batch of a distribution is [b].
struct Grid {
  Tensor x;
  double step;
};
Grid grid(double lo, double hi, int64_t n = 100000) {
  const double step = (hi - lo) / double(n);
  return {(arange(n, {.dtype = DType::f64}) + 0.5).unsqueeze(1) * step + lo, step};
}

void check_close(const Tensor& got, const Tensor& want, double tolerance) {
  const Tensor g = got.expand(broadcast(got.shape(), want.shape(), "check_close")), w = want.expand(g.shape());
  const std::vector<double> a = g.to(DType::f64).to_vector<double>(), b = w.to(DType::f64).to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(a[i] - b[i]) <= tolerance * std::max(1.0, std::abs(b[i])));
  }
}

// All that follows from the density p, on a grid that its support lies in.
void check_density(const D::Distribution& p, const D::Distribution& q, const Grid& on, double tolerance) {
  CAPTURE(p.name());
  const Tensor log_p = p.log_prob(on.x), density = exp(log_p) * on.step, log_q = q.log_prob(on.x);
  const auto expected = [&](const Tensor& f) { return sum(where(gt(density, 0.0), density * f, 0.0), {0}); };
  check_close(sum(density, {0}), ones(p.batch_shape(), {.dtype = DType::f64}), tolerance);
  const Tensor mean = expected(on.x);
  check_close(p.mean(), mean, tolerance);
  check_close(p.variance(), expected(square(on.x - mean)), tolerance);
  check_close(p.stddev(), sqrt(expected(square(on.x - mean))), tolerance);
  check_close(p.entropy(), -expected(log_p), tolerance);
  check_close(D::kl_divergence(p, q), expected(log_p - log_q), tolerance);
  check_close(D::kl_divergence(p, p), zeros(p.batch_shape(), {.dtype = DType::f64}), 1e-12);
}

// The moments of 40,000 samples lie within six of their standard errors.
void check_samples(const D::Distribution& p) {
  CAPTURE(p.name());
  Generator generator(7);
  constexpr int64_t n = 40000;
  const Tensor x = p.sample({n}, &generator).to(DType::f64), mean = x.mean({0}), variance = x.var({0});
  CHECK_FALSE(x.requires_grad());
  const Tensor stddev = p.stddev().to(DType::f64);
  const Tensor fourth = square(square((x - mean) / stddev)).mean({0});
  CHECK(all(abs(mean - p.mean()) < stddev * (6 / std::sqrt(double(n)))).item<bool>());
  CHECK(all(abs(variance / square(stddev) - 1) < sqrt((fourth - 1) / double(n)) * 6 + 1e-6).item<bool>());
}

}  // namespace

TEST_CASE("densities integrate to 1, and give mean, variance, entropy and divergence") {
  const Tensor three = f64({0.6, 1.5, 4}), other = f64({1.2, 2, 3});
  check_density(D::Normal(f64({0, -1, 2}), three), D::Normal(f64({1, 0, 2}), other), grid(-60, 60), 1e-8);
  check_density(D::Uniform(f64({-1, 0}), f64({1, 3})), D::Uniform(f64({-2, 0}), f64({1, 4})), grid(-4, 4, 80000), 1e-4);
  check_density(D::Gamma(three + 1, f64({1, 0.5, 2})), D::Gamma(other, f64({2, 1, 1})), grid(0, 100), 1e-5);
  check_density(D::Beta(three + 1, other), D::Beta(other, three + 1), grid(0, 1), 1e-5);
}

TEST_CASE("probabilities of choices sum to 1, and give entropy and divergence") {
  const D::Bernoulli p(f64({0.2, 0.7})), q(D::ChoiceOptions{.logits = f64({0.3, -1})});
  const Tensor both = f64({0, 1}).unsqueeze(1), log_p = p.log_prob(both), log_q = q.log_prob(both);
  check_close(exp(log_p).sum({0}), ones({2}), 1e-12);
  check_close(exp(p.log_prob(ones({}, {.dtype = DType::f64}))), f64({0.2, 0.7}), 1e-12);
  check_close(p.entropy(), -(exp(log_p) * log_p).sum({0}), 1e-12);
  check_close(D::kl_divergence(p, q), (exp(log_p) * (log_p - log_q)).sum({0}), 1e-12);
  check_close(p.variance(), f64({0.16, 0.21}), 1e-12);

  const Tensor weights = f64({1, 2, 5, 3, 3, 2}).reshape({2, 3});
  const D::Categorical c(weights), d(D::ChoiceOptions{.logits = weights});
  CHECK(c.batch_shape() == Shape{2});
  const Tensor classes = arange(3).unsqueeze(1), log_c = c.log_prob(classes), log_d = d.log_prob(classes);
  CHECK(log_c.shape() == Shape{3, 2});
  check_close(exp(log_c), (weights / 8).t(), 1e-12);
  check_close(exp(log_d), softmax(weights, -1).t(), 1e-12);
  check_close(c.entropy(), -(exp(log_c) * log_c).sum({0}), 1e-12);
  check_close(D::kl_divergence(c, d), (exp(log_c) * (log_c - log_d)).sum({0}), 1e-12);
  // An impossible class adds nothing, and is infinitely surprising.
  const D::Categorical sure(f64({0, 1}));
  CHECK(D::kl_divergence(sure, D::Categorical(f64({1, 1}))).item<double>() == doctest::Approx(std::log(2)));
  CHECK(std::isinf(D::kl_divergence(D::Categorical(f64({1, 1})), sure).item<double>()));
  CHECK(std::isfinite(sure.entropy().item<double>()));
}

TEST_CASE("samples have the moments of their distribution") {
  const Tensor three = f64({0.3, 1.5, 40}), other = f64({1.2, 2, 3});
  check_samples(D::Normal(other, three));
  check_samples(D::Uniform(-other, three));
  check_samples(D::Bernoulli(f64({0.1, 0.5, 0.8})));
  check_samples(D::Gamma(three, other));
  check_samples(D::Beta(other, three));
  check_samples(D::Normal(2, 0.5));
  Generator generator(3);
  const D::Categorical c(f64({1, 2, 5, 0, 3, 1}).reshape({2, 3}));
  const Tensor drawn = c.sample({20000}, &generator);
  CHECK(drawn.dtype() == DType::i64);
  for (int64_t k = 0; k < 3; ++k) check_close(eq(drawn, double(k)).to(DType::f64).mean({0}), c.probs().select(-1, k), 0.02);
}

TEST_CASE("shapes, dtypes and seeds of samples") {
  const D::Normal p(zeros({3, 1}), ones({2}));
  CHECK(p.batch_shape() == Shape{3, 2});
  CHECK(p.sample().shape() == Shape{3, 2});
  CHECK(p.sample({5, 4}).shape() == Shape{5, 4, 3, 2});
  CHECK(p.log_prob(p.sample({5})).shape() == Shape{5, 3, 2});
  const D::Independent joint(p, 1);
  CHECK(joint.batch_shape() == Shape{3});
  CHECK(joint.event_shape() == Shape{2});
  CHECK(joint.sample({5}).shape() == Shape{5, 3, 2});
  CHECK(joint.log_prob(p.sample({5})).shape() == Shape{5, 3});
  CHECK(D::Categorical(ones({4, 3})).sample({2, 2}).shape() == Shape{2, 2, 4});
  CHECK(D::Categorical(ones({4, 3})).sample({0}).shape() == Shape{0, 4});
  for (const DType t : {DType::f16, DType::bf16, DType::f64}) {
    const Tensor one = ones({2}, {.dtype = t});
    CHECK(D::Normal(one, one).sample().dtype() == t);
    CHECK(D::Gamma(one, one).sample({3}).dtype() == t);
    CHECK(D::Normal(0, one).rsample().dtype() == t);
    CHECK(D::Normal(one[0], 0.5).log_prob(one).dtype() == t);
    CHECK(all(isfinite(D::Gamma(one, one).log_prob(D::Gamma(one, one).sample({100})))).item<bool>());
  }
  Generator a(5), b(5);
  CHECK(equal(D::Gamma(one_hot(arange(2)).to(DType::f32) + 0.5, 1).sample({3}, &a),
              D::Gamma(one_hot(arange(2)).to(DType::f32) + 0.5, 1).sample({3}, &b)));
}

TEST_CASE("an independent joint of normals is a multivariate normal distribution") {
  const Tensor loc = f64({1, -1, 0.5}), scale = f64({0.5, 1, 2}), x = f64({0.2, 0.3, -1});
  const D::Independent p(D::Normal(loc, scale), 1), q(D::Normal(zeros({3}, {.dtype = DType::f64}), 1.0), 1);
  const Tensor covariance = diag(square(scale)), away = (x - loc).unsqueeze(1);
  const double quadratic = away.t().matmul(inverse(covariance)).matmul(away).item<double>();
  CHECK(p.log_prob(x).item<double>() ==
        doctest::Approx(-0.5 * (quadratic + std::log(det(covariance).item<double>()) + 3 * std::log(2 * M_PI))));
  CHECK(p.entropy().item<double>() ==
        doctest::Approx(0.5 * (std::log(det(covariance).item<double>()) + 3 * (1 + std::log(2 * M_PI)))));
  CHECK(D::kl_divergence(p, q).item<double>() ==
        doctest::Approx(0.5 * (trace(covariance).item<double>() + sum(square(loc)).item<double>() - 3 -
                               std::log(det(covariance).item<double>()))));
  CHECK(p.has_rsample());
}

TEST_CASE("log_prob, entropy and rsample are differentiable") {
  const Tensor a = f64({0.7, 2}).requires_grad_(true), b = f64({1.5, 0.8}).requires_grad_(true), x = f64({0.3, 0.6});
  gradcheck([&](const Tensors& t) { return Tensors{D::Normal(t[0], t[1]).log_prob(x)}; }, {a, b});
  gradcheck([&](const Tensors& t) { return Tensors{D::Normal(t[0], t[1]).entropy()}; }, {a, b});
  gradcheck([&](const Tensors& t) { return Tensors{D::Gamma(t[0], t[1]).log_prob(x)}; }, {a, b});
  gradcheck([&](const Tensors& t) { return Tensors{D::Beta(t[0], t[1]).log_prob(x) + D::Beta(t[0], t[1]).entropy()}; }, {a, b});
  gradcheck([&](const Tensors& t) { return Tensors{D::Bernoulli({.logits = t[0]}).log_prob(f64({1, 0}))}; }, {a});
  gradcheck([&](const Tensors& t) { return Tensors{D::Categorical({.logits = t[0]}).log_prob(tensor(std::vector<int64_t>{1}))}; },
            {a});
  gradcheck(
      [&](const Tensors& t) {
        Generator generator(1);
        return Tensors{D::Normal(t[0], t[1]).rsample({3}, &generator) + D::Uniform(t[0] - 3, t[1] + 3).rsample({3}, &generator)};
      },
      {a, b});
  CHECK_FALSE(D::Normal(a, b).sample().requires_grad());
}

TEST_CASE("a concentration that is not finite ends in NaN, not in a loop without end") {
  const Tensor concentration = from_vector(std::vector<float>{2, std::numeric_limits<float>::infinity(), 0.5f}, {3});
  const Tensor x = D::Gamma(concentration, ones({3})).sample();
  CHECK(isnan(x).to_vector<bool>() == std::vector<bool>{false, true, false});
  CHECK(isnan(D::Beta(concentration, ones({3})).sample()).to_vector<bool>()[1]);
}

TEST_CASE("errors of distributions") {
  const auto is = [](const char* want, auto make) { CHECK(error_of(make) == want); };
  is("[Normal] scale must be positive", [] { D::Normal(0, 0); });
  is("[Normal] parameters must be floating, got int64", [] { D::Normal(arange(3), 1); });
  is("[Uniform] low must be below high", [] { D::Uniform(ones({2}), 1); });
  is("[Bernoulli] probs must lie in [0, 1]", [] { D::Bernoulli(1.5); });
  is("[Bernoulli] needs either probs or logits", [] { D::Bernoulli(D::ChoiceOptions{}); });
  is("[Categorical] the probs of all classes must not be 0", [] { D::Categorical(zeros({3})); });
  is("[Categorical] needs a dimension of classes, got []", [] { D::Categorical(scalar(1)); });
  is("[Categorical] classes have no mean", [] { (void)D::Categorical(ones({3})).mean(); });
  is("[Gamma] concentration and rate must be positive", [] { D::Gamma(1, -1); });
  is("[Independent] dims must lie in [0, 1], the dimensions of the batch, got 2",
     [] { D::Independent(D::Normal(zeros({2}), 1), 2); });
  is("[kl_divergence] has no formula for Normal and Beta", [] { (void)D::kl_divergence(D::Normal(0, 1), D::Beta(1, 1)); });
  is("[Gamma] has no rsample()\nhelp: sample() has no gradient; log_prob(sample) times a reward does",
     [] { (void)D::Gamma(1, 1).rsample(); });
  is("[Normal] shapes must broadcast, got [2] and [3]: dimension -1 is 2 against 3", [] { D::Normal(zeros({2}), ones({3})); });
}
