// SPDX-License-Identifier: Apache-2.0
// More update rules, as described in update_rules.h: those without Adam's moments, the passes of optimizers that need
// two passes, and averages of weights. The list of all rules is at the end.
//
// Sources: PyTorch's RMSprop, Adagrad, Adadelta, ASGD, Rprop, Muon and AveragedModel; Tieleman & Hinton 2012; Duchi et al. 2011;
// Zeiler 2012; Polyak & Juditsky 1992; Riedmiller & Braun 1993; You et al. 2020 (LAMB); Jordan et al. 2024 (Muon); Izmailov et al.
// 2018 (SWA); Zhang et al. 2019 (Lookahead).
#pragma once

#include <variant>

#include "framework/math/update_rules.h"

namespace halfstep {
namespace math {

struct RmspropRule {
  static constexpr const char* kName = "rmsprop";
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false, with_momentum = false, maximize = false;  // with_momentum: is there a buffer?

  static constexpr int kStates = 3;  // mean square; then, where there are any, the momentum buffer and the mean
  static constexpr bool kCostly = false, kCounts = true;
  struct Step {};
  HS_HD int states() const { return 1 + (with_momentum ? 1 : 0) + (centered ? 1 : 0); }
  HS_HD Step begin(double, double) const { return {}; }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step&) const {
    g = descent(g, p, weight_decay, maximize);
    T& square = state[0];
    square = T(alpha) * square + T(1 - alpha) * g * g;
    T mean = with_momentum ? state[2] : state[1], spread = square;
    if (centered) {
      mean = T(alpha) * mean + T(1 - alpha) * g;
      spread = square - mean * mean;
    }
    const T step = g / (root(spread) + T(eps));
    const T buffer = T(momentum) * state[1] + step;
    if (with_momentum) {
      state[1] = buffer;
      state[2] = mean;
      return p - T(lr) * buffer;
    }
    state[1] = mean;
    return p - T(lr) * step;
  }
};

struct AdagradRule {
  static constexpr const char* kName = "adagrad";
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;

  static constexpr int kStates = 1;  // the sum of squares
  static constexpr bool kCostly = false, kCounts = true;
  struct Step {
    double step_size;
    double start;  // initial value of the sum, at the first step
  };
  HS_HD int states() const { return kStates; }
  HS_HD Step begin(double count, double) const { return {lr / (1 + count * lr_decay), count == 0 ? initial_accumulator_value : 0}; }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& step) const {
    g = descent(g, p, weight_decay, maximize);
    T& sum = state[0];
    sum += T(step.start) + g * g;
    return p - T(step.step_size) * g / (root(sum) + T(eps));
  }
};

struct AdadeltaRule {
  static constexpr const char* kName = "adadelta";
  double lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;

  static constexpr int kStates = 2;  // mean squares of the gradients and of the updates
  static constexpr bool kCostly = false, kCounts = true;
  struct Step {};
  HS_HD int states() const { return kStates; }
  HS_HD Step begin(double, double) const { return {}; }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step&) const {
    g = descent(g, p, weight_decay, maximize);
    T &square = state[0], &moved = state[1];
    square = T(rho) * square + T(1 - rho) * g * g;
    const T step = root(moved + T(eps)) / root(square + T(eps)) * g;
    moved = T(rho) * moved + T(1 - rho) * step * step;
    return p - T(lr) * step;
  }
};

// SGD with a step size that falls, and the average of the parameters since step t0.
struct AsgdRule {
  static constexpr const char* kName = "asgd";
  double lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0;
  bool maximize = false;

  static constexpr int kStates = 1;  // the average
  static constexpr bool kCostly = true, kCounts = true;
  struct Step {
    double eta, mu;
  };
  HS_HD int states() const { return kStates; }
  HS_HD Step begin(double count, double) const {
    return {lr / ::pow(1 + lambd * lr * count, alpha), 1 / (count - t0 > 1 ? count - t0 : 1)};
  }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& step) const {
    g = descent(g, p, weight_decay, maximize);
    p = p * T(1 - lambd * step.eta) - T(step.eta) * g;
    T& average = state[0];
    average = step.mu == 1 ? p : average + (p - average) * T(step.mu);
    return p;
  }
};

// Steps of a size of their own for each element, which grows while the gradient keeps its sign.
struct RpropRule {
  static constexpr const char* kName = "rprop";
  double lr = 1e-2, eta_minus = 0.5, eta_plus = 1.2, step_min = 1e-6, step_max = 50;
  bool maximize = false;

  static constexpr int kStates = 2;  // the last gradient, and the size
  static constexpr bool kCostly = false, kCounts = true;
  using Step = bool;  // the parameter's first
  HS_HD int states() const { return kStates; }
  HS_HD Step begin(double count, double) const { return count == 0; }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& first) const {
    if (maximize) g = -g;
    T &last = state[0], &size = state[1];
    const T turn = g * last, before = first ? T(lr) : size;
    const T faster = turn > T(0) ? T(eta_plus) : T(1);
    const T grown = before * (turn < T(0) ? T(eta_minus) : faster);
    const T least = grown < T(step_min) ? T(step_min) : grown;
    size = least > T(step_max) ? T(step_max) : least;
    last = turn < T(0) ? T(0) : g;  // where the sign has changed, this step is left out
    return p - sign(last) * size;
  }
};

// The first pass of LAMB: the moments, and the direction m^ / (sqrt(v^) + eps) + weight_decay p, whose length then scales the step.
struct LambRule {
  static constexpr const char* kName = "lamb";
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0;
  bool maximize = false;

  static constexpr int kStates = 3;  // the moments; the direction, which is only written
  static constexpr bool kCostly = true, kCounts = true;
  struct Step {
    double bias1, bias2_sqrt;
  };
  HS_HD int states() const { return kStates; }
  HS_HD Step begin(double count, double) const { return {bias_correction(beta1, count), ::sqrt(bias_correction(beta2, count))}; }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& step) const {
    if (maximize) g = -g;
    T &m = state[0], &v = state[1], &direction = state[2];
    m = T(beta1) * m + T(1 - beta1) * g;
    v = T(beta2) * v + T(1 - beta2) * g * g;
    direction = m / T(step.bias1) / (root(v) / T(step.bias2_sqrt) + T(eps)) + T(weight_decay) * p;
    return p;
  }
};

// The first pass of Muon: the momentum buffer, and the matrix that is then made orthogonal.
struct MuonRule {
  static constexpr const char* kName = "muon";
  double lr = 1e-3, momentum = 0.95;
  bool nesterov = true, maximize = false;

  static constexpr int kStates = 2;  // the buffer; the matrix, which is only written
  static constexpr bool kCostly = false, kCounts = true;
  struct Step {};
  HS_HD int states() const { return kStates; }
  HS_HD Step begin(double, double) const { return {}; }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step&) const {
    if (maximize) g = -g;
    T &buffer = state[0], &matrix = state[1];
    buffer += T(1 - momentum) * (g - buffer);
    matrix = nesterov ? g + T(momentum) * (buffer - g) : buffer;
    return p;
  }
};

// The second pass of optimizers that take two, and the only one of those that compute their direction from whole tensors:
// p (1 - lr weight_decay) - rate g, where g is the direction. The rate is lr, or ParamUpdate::number: in place of lr, or times it.
struct ApplyRule {
  static constexpr const char* kName = "apply";
  enum class Rate { lr, number, lr_times_number };
  double lr = 1e-3, weight_decay = 0;
  Rate rate = Rate::lr;

  static constexpr int kStates = 1;  // none
  static constexpr bool kCostly = false, kCounts = false;
  using Step = double;  // the rate
  HS_HD int states() const { return 0; }
  HS_HD Step begin(double, double number) const { return rate == Rate::lr ? lr : rate == Rate::number ? number : lr * number; }

  template <class T>
  HS_HD T update(T p, T direction, T (&)[kStates], const Step& step) const {
    if (weight_decay != 0) p -= T(lr * weight_decay) * p;
    return p - T(step) * direction;
  }
};

// The average of a parameter over steps; `g` is the parameter, `p` the average.
struct AverageRule {
  static constexpr const char* kName = "average";
  double lr = 0;         // not used
  double decay = 0.999;  // of an exponential average
  bool equal = false;    // an equal one (SWA) in its place
  bool warm_up = false;  // the decay of step t is at most (1 + t) / (10 + t)
  double start = 0;      // steps that are left out
  double every = 1;      // updates once in this number of steps

  static constexpr int kStates = 1;  // none
  static constexpr bool kCostly = true, kCounts = true;
  struct Step {
    double weight;  // of the parameter; negative: not this step
    float number;   // of parameters in the average
  };
  HS_HD int states() const { return 0; }
  HS_HD bool idle(const Step& step) const { return step.weight < 0; }
  HS_HD Step begin(double count, double n) const {
    const double place = (count - start) / every;
    if (place < 0 || place != ::floor(place)) return {-1, float(n)};
    const double slower = (1 + n) / (10 + n);
    const double fading = 1 - (warm_up && slower < decay ? slower : decay);
    return {n == 0 ? 1 : equal ? 1 / (n + 1) : fading, float(n + 1)};
  }

  template <class T>
  HS_HD T update(T average, T p, T (&)[kStates], const Step& step) const {
    return step.weight == 1 ? p : average + T(step.weight) * (p - average);
  }
};

// Every k steps the slow weights move a fraction of the way to the fast weights, which then continue from the slow ones.
struct LookaheadRule {
  static constexpr const char* kName = "lookahead";
  double lr = 0;  // not used
  double k = 5, alpha = 0.5;

  static constexpr int kStates = 1;  // the slow weights, which are there from the start
  static constexpr bool kCostly = false, kCounts = true;
  using Step = bool;  // is it the k-th?
  HS_HD int states() const { return kStates; }
  HS_HD bool idle(const Step& due) const { return !due; }
  HS_HD Step begin(double count, double) const { return ::fmod(count + 1, k) == 0; }

  template <class T>
  HS_HD T update(T p, T, T (&state)[kStates], const Step&) const {
    state[0] += T(alpha) * (p - state[0]);
    return state[0];
  }
};

}  // namespace math

// One of the rules. A type of its own, so that code that passes it on need not know them.
struct UpdateRule
    : std::variant<math::SgdRule, math::AdamRule, math::NadamRule, math::RadamRule, math::AdamaxRule, math::LionRule,
                   math::AdemamixRule, math::RmspropRule, math::AdagradRule, math::AdadeltaRule, math::AsgdRule, math::RpropRule,
                   math::LambRule, math::MuonRule, math::ApplyRule, math::AverageRule, math::LookaheadRule> {
  using variant::variant;
  template <class F>
  auto visit(const F& f) const {
    return std::visit(f, static_cast<const variant&>(*this));
  }
};

}  // namespace halfstep
