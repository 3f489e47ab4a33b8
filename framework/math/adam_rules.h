// SPDX-License-Identifier: Apache-2.0
// Update rules with Adam's moments.
// Sources: PyTorch's Adam, AdamW, NAdam, RAdam and Adamax; Kingma & Ba 2015; Loshchilov & Hutter 2019; Dozat 2016; Liu et al. 2020
// (RAdam); Pagliardini, Ablin & Grangier 2024 (AdEMAMix).
#pragma once

#include "framework/math/rule_parts.h"

namespace halfstep::math {

struct AdamRule {
  static constexpr const char* kName = "adam";
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;  // true: AdamW
  bool amsgrad = false, maximize = false;

  static constexpr int kStates = 3;  // first and second moment; amsgrad: the largest second moment so far
  static constexpr bool kCostly = true, kCounts = true;
  struct Step {
    double step_size;   // lr / (1 - beta1^t)
    double bias2_sqrt;  // sqrt(1 - beta2^t)
    double kept;        // share of the old largest second moment: 1, or 0 without amsgrad
  };
  HS_HD int states() const { return amsgrad ? 3 : 2; }
  HS_HD Step begin(double count, double) const {
    return {lr / bias_correction(beta1, count), ::sqrt(bias_correction(beta2, count)), amsgrad ? 1.0 : 0.0};
  }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& step) const {
    g = descent(g, p, weight_decay, maximize, decoupled, lr);
    T &m = state[0], &v = state[1], &top = state[2];
    m = T(beta1) * m + T(1 - beta1) * g;
    v = T(beta2) * v + T(1 - beta2) * g * g;
    const T before = T(step.kept) * top;
    top = before > v ? before : v;
    return p - T(step.step_size) * m / (root(top) / T(step.bias2_sqrt) + T(eps));
  }
};

// Adam with Nesterov momentum, whose coefficient mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2) grows.
struct NadamRule {
  static constexpr const char* kName = "nadam";
  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
  bool decoupled = false, maximize = false;

  static constexpr int kStates = 2;
  static constexpr bool kCostly = true, kCounts = true;
  struct Step {
    double gradient_step, moment_step;  // step sizes of the gradient and of the first moment
    double bias2_sqrt;
    float number;  // mu_1 ... mu_t
  };
  HS_HD int states() const { return kStates; }
  HS_HD double mu(double t) const { return beta1 * (1 - 0.5 * ::pow(0.96, t * momentum_decay)); }
  HS_HD Step begin(double count, double number) const {
    const double now = mu(count + 1), next = mu(count + 2), product = (count == 0 ? 1 : number) * now;
    return {lr * (1 - now) / (1 - product), lr * next / (1 - product * next), ::sqrt(bias_correction(beta2, count)),
            float(product)};
  }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& step) const {
    g = descent(g, p, weight_decay, maximize, decoupled, lr);
    T &m = state[0], &v = state[1];
    m = T(beta1) * m + T(1 - beta1) * g;
    v = T(beta2) * v + T(1 - beta2) * g * g;
    return p - (T(step.gradient_step) * g + T(step.moment_step) * m) / (root(v) / T(step.bias2_sqrt) + T(eps));
  }
};

// Adam that omits the second moment until it is an average of enough gradients.
struct RadamRule {
  static constexpr const char* kName = "radam";
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false, maximize = false;

  static constexpr int kStates = 2;
  static constexpr bool kCostly = true, kCounts = true;
  struct Step {
    double step_size;  // lr / (1 - beta1^t), times the rectification and the second moment's correction if rectified
    bool rectified;
  };
  HS_HD int states() const { return kStates; }
  HS_HD Step begin(double count, double) const {
    const double t = count + 1, bias2 = bias_correction(beta2, count), plain = lr / bias_correction(beta1, count);
    // Lengths of the second moment's average, in steps: the limit, and at step t. The paper rectifies lengths above 5.
    const double rho_limit = 2 / (1 - beta2) - 1, rho = rho_limit - 2 * t * (1 - bias2) / bias2;
    if (!(rho > 5)) return {plain, false};
    return {plain * ::sqrt(bias2 * (rho - 4) * (rho - 2) * rho_limit / ((rho_limit - 4) * (rho_limit - 2) * rho)), true};
  }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& step) const {
    g = descent(g, p, weight_decay, maximize, decoupled, lr);
    T &m = state[0], &v = state[1];
    m = T(beta1) * m + T(1 - beta1) * g;
    v = T(beta2) * v + T(1 - beta2) * g * g;
    const T divisor = step.rectified ? root(v) + T(eps) : T(1);
    return p - T(step.step_size) * m / divisor;
  }
};

// Adam with the decaying maximum of the gradient's magnitude instead of the second moment.
struct AdamaxRule {
  static constexpr const char* kName = "adamax";
  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool maximize = false;

  static constexpr int kStates = 2;
  static constexpr bool kCostly = true, kCounts = true;
  using Step = double;  // lr / (1 - beta1^t)
  HS_HD int states() const { return kStates; }
  HS_HD Step begin(double count, double) const { return lr / bias_correction(beta1, count); }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& step_size) const {
    g = descent(g, p, weight_decay, maximize);
    T &m = state[0], &largest = state[1];
    m = T(beta1) * m + T(1 - beta1) * g;
    const T faded = T(beta2) * largest, now = magnitude(g) + T(eps);
    largest = faded > now ? faded : now;
    return p - T(step_size) * m / largest;
  }
};

// AdamW with a second, slower first moment: p -= lr ((m1 / (1 - beta1^t) + alpha m2) / (sqrt(v / (1 - beta2^t)) + eps) +
// weight_decay p). During warm-ups alpha grows linearly from 0, and the half-life of beta3 grows linearly from that of beta1.
struct AdemamixRule {
  static constexpr const char* kName = "ademamix";
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, beta3 = 0.9999, alpha = 2, eps = 1e-8, weight_decay = 0;
  double alpha_warmup = 0, beta3_warmup = 0;  // steps; 0: none
  bool maximize = false;

  static constexpr int kStates = 3;  // fast and slow first moment, second moment
  static constexpr bool kCostly = true, kCounts = true;
  struct Step {
    double bias1, bias2_sqrt, alpha, beta3;
  };
  HS_HD int states() const { return kStates; }
  // Returns after how many steps an average with `beta` has forgotten half. 1e-8 is that of the authors' code.
  HS_HD static double half_life(double beta) { return ::log(0.5) / ::log(beta + 1e-8) - 1; }
  HS_HD Step begin(double count, double) const {
    const double t = count + 1;
    Step out{bias_correction(beta1, count), ::sqrt(bias_correction(beta2, count)), alpha, beta3};
    if (t < alpha_warmup) out.alpha = alpha * t / alpha_warmup;
    if (t < beta3_warmup) {
      const double share = t / beta3_warmup, life = (1 - share) * half_life(beta1) + share * half_life(beta3);
      out.beta3 = ::pow(0.5, 1 / (life + 1));
    }
    return out;
  }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& step) const {
    if (maximize) g = -g;
    T &fast = state[0], &slow = state[1], &v = state[2];
    fast = T(beta1) * fast + T(1 - beta1) * g;
    slow = T(step.beta3) * slow + T(1 - step.beta3) * g;
    v = T(beta2) * v + T(1 - beta2) * g * g;
    const T direction = (fast / T(step.bias1) + T(step.alpha) * slow) / (root(v) / T(step.bias2_sqrt) + T(eps));
    return p - T(lr) * (direction + T(weight_decay) * p);
  }
};

}  // namespace halfstep::math
