// SPDX-License-Identifier: Apache-2.0
// Probability distributions, with the names of torch.distributions, in a namespace that names them all (their own names are also
// in halfstep):
//
//   namespace D = halfstep::distributions;
//   D::Normal policy(mean, stddev);
//   Tensor action = policy.sample();
//   Tensor loss = -(policy.log_prob(action) * advantage).mean();
//
// Parameters are floating tensors or numbers. They broadcast, and their shape is batch_shape(); a sample of shape S has the shape
// [S..., batch_shape()..., event_shape()...]. log_prob and entropy return one number per event, in nats, differentiable with
// respect to the parameters and the value. log_prob does not check that values lie in the support: only Uniform returns -inf for
// all others. Constructors throw ValueError for parameters out of range on the host; they do not read parameters on a GPU.
// Source: the definitions of torch.distributions of PyTorch 2.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>

#include "framework/base/generator.h"
#include "framework/tensor/tensor.h"

namespace halfstep::distributions {

// A parameter: a tensor or a number. With a tensor, a number takes its dtype and device; two numbers are float32.
class Value {
 public:
  Value(double number);
  Value(Tensor tensor) : tensor_(std::move(tensor)) {}
  const Tensor& tensor() const { return tensor_; }
  bool is_number() const { return is_number_; }

 private:
  Tensor tensor_;
  bool is_number_ = false;
};

class Distribution {
 public:
  virtual ~Distribution() = default;

  const Shape& batch_shape() const { return batch_shape_; }
  const Shape& event_shape() const { return event_shape_; }

  // Draws a sample without a gradient.
  Tensor sample(const Shape& shape = {}, Generator* generator = nullptr) const;
  // Draws a sample that is differentiable with respect to the parameters. Throws ValueError if the distribution has no such
  // sample.
  Tensor rsample(const Shape& shape = {}, Generator* generator = nullptr) const;
  virtual bool has_rsample() const { return false; }

  virtual Tensor log_prob(const Tensor& value) const = 0;
  virtual Tensor entropy() const = 0;
  virtual Tensor mean() const = 0;
  virtual Tensor variance() const = 0;
  Tensor stddev() const { return variance().sqrt(); }

  // Returns the name for messages: "Normal".
  virtual std::string name() const = 0;

 protected:
  Distribution() = default;
  Distribution(const Distribution&) = default;
  Distribution& operator=(const Distribution&) = default;

  // Returns [shape..., batch_shape()..., event_shape()...].
  Shape extended(const Shape& shape) const;
  virtual Tensor draw(const Shape& shape, Generator* generator) const = 0;
  // Returns KL(this || q) for a q of the same class.
  virtual Tensor divergence(const Distribution& q) const = 0;

  Shape batch_shape_, event_shape_;

  friend class Independent;
  friend Tensor kl_divergence(const Distribution& p, const Distribution& q);
};

// Returns KL(p || q) = E_p[log p - log q], in nats, for two distributions of one class. Throws ValueError for others.
Tensor kl_divergence(const Distribution& p, const Distribution& q);

// The density exp(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi)), scale > 0.
class Normal : public Distribution {
 public:
  Normal(const Value& loc, const Value& scale);
  const Tensor& loc() const { return loc_; }
  const Tensor& scale() const { return scale_; }
  bool has_rsample() const override { return true; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override { return loc_; }
  Tensor variance() const override;
  std::string name() const override { return "Normal"; }

 protected:
  Tensor draw(const Shape& shape, Generator* generator) const override;
  Tensor divergence(const Distribution& q) const override;

 private:
  Tensor loc_, scale_;
};

// The density 1 / (high - low) for low <= x < high, else 0.
class Uniform : public Distribution {
 public:
  Uniform(const Value& low, const Value& high);
  const Tensor& low() const { return low_; }
  const Tensor& high() const { return high_; }
  bool has_rsample() const override { return true; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  std::string name() const override { return "Uniform"; }

 protected:
  Tensor draw(const Shape& shape, Generator* generator) const override;
  Tensor divergence(const Distribution& q) const override;

 private:
  Tensor low_, high_;
};

// Parameters of Bernoulli and Categorical: one of the two.
//   Categorical({.logits = net(x)})
struct ChoiceOptions {
  Tensor probs = {};
  Tensor logits = {};
};

// 1 with probability `probs`, else 0; probs = sigmoid(logits). Samples have the parameters' dtype.
class Bernoulli : public Distribution {
 public:
  explicit Bernoulli(const Value& probs);
  explicit Bernoulli(const ChoiceOptions& options);
  const Tensor& probs() const { return probs_; }
  const Tensor& logits() const { return logits_; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override { return probs_; }
  Tensor variance() const override;
  std::string name() const override { return "Bernoulli"; }

 protected:
  Tensor draw(const Shape& shape, Generator* generator) const override;
  Tensor divergence(const Distribution& q) const override;

 private:
  Tensor probs_, logits_;
};

// One of K classes, as int64 from 0: with probs [..., K], which are divided by their sum, or logits [..., K], to which softmax is
// applied. mean() and variance() throw ValueError, because classes have none.
class Categorical : public Distribution {
 public:
  explicit Categorical(const Tensor& probs);
  explicit Categorical(const ChoiceOptions& options);
  const Tensor& probs() const { return probs_; }
  const Tensor& logits() const { return logits_; }  // log probs
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  std::string name() const override { return "Categorical"; }

 protected:
  Tensor draw(const Shape& shape, Generator* generator) const override;
  Tensor divergence(const Distribution& q) const override;

 private:
  Tensor probs_, logits_;
};

// The density rate^concentration x^(concentration - 1) e^(-rate x) / Gamma(concentration), both > 0. No rsample().
class Gamma : public Distribution {
 public:
  Gamma(const Value& concentration, const Value& rate);
  const Tensor& concentration() const { return concentration_; }
  const Tensor& rate() const { return rate_; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  std::string name() const override { return "Gamma"; }

 protected:
  Tensor draw(const Shape& shape, Generator* generator) const override;
  Tensor divergence(const Distribution& q) const override;

 private:
  Tensor concentration_, rate_;
};

// The density x^(a - 1) (1 - x)^(b - 1) / B(a, b) on (0, 1), where a is concentration1 and b concentration0, both > 0. No
// rsample().
class Beta : public Distribution {
 public:
  Beta(const Value& concentration1, const Value& concentration0);
  const Tensor& concentration1() const { return a_; }
  const Tensor& concentration0() const { return b_; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  std::string name() const override { return "Beta"; }

 protected:
  Tensor draw(const Shape& shape, Generator* generator) const override;
  Tensor divergence(const Distribution& q) const override;

 private:
  Tensor a_, b_;
};

// Treats the last `dims` dimensions of a distribution's batch as one event: log_prob, entropy and KL are sums over them.
// Independent(Normal(loc, scale), 1) is a multivariate normal distribution with a diagonal covariance.
class Independent : public Distribution {
 public:
  template <std::derived_from<Distribution> D>
  Independent(D base, int64_t dims) : Independent(std::make_shared<const D>(std::move(base)), dims) {}
  bool has_rsample() const override { return base_->has_rsample(); }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override { return base_->mean(); }
  Tensor variance() const override { return base_->variance(); }
  std::string name() const override { return "Independent(" + base_->name() + ")"; }

 protected:
  Tensor draw(const Shape& shape, Generator* generator) const override { return base_->draw(shape, generator); }
  Tensor divergence(const Distribution& q) const override;

 private:
  Independent(std::shared_ptr<const Distribution> base, int64_t dims);
  Tensor summed(const Tensor& x) const;

  std::shared_ptr<const Distribution> base_;
  int64_t dims_;
};

}  // namespace halfstep::distributions

namespace halfstep {

using distributions::Bernoulli, distributions::Beta, distributions::Categorical, distributions::Gamma, distributions::Independent,
    distributions::Normal, distributions::Uniform, distributions::kl_divergence;

}  // namespace halfstep
