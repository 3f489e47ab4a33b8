// SPDX-License-Identifier: Apache-2.0
// The passes of optimizers that need two, and the averages that follow an optimizer.
// Sources: PyTorch's Muon and AveragedModel; You et al. 2020 (LAMB); Jordan et al. 2024 (Muon); Izmailov et al. 2018 (SWA); Zhang
// et al. 2019 (Lookahead).
#pragma once

#include "framework/math/rule_parts.h"

namespace halfstep::math {

// Computes the first pass of LAMB: the moments and the direction m^ / (sqrt(v^) + eps) + weight_decay p, whose norm scales the
// step.
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

// Computes the first pass of Muon: the momentum buffer, and the matrix that is orthogonalised afterwards.
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

// Applies a direction g: p (1 - lr weight_decay) - rate g. It is the second pass of optimizers with two, and the only one of those
// that compute g from whole tensors. The rate is lr, ParamUpdate::number instead of lr, or their product.
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

// Averages a parameter over steps; `g` is the parameter, `p` the average.
struct AverageRule {
  static constexpr const char* kName = "average";
  double lr = 0;         // not used
  double decay = 0.999;  // of an exponential average
  bool equal = false;    // whether to average equally (SWA) instead
  bool warm_up = false;  // the decay of step t is at most (1 + t) / (10 + t)
  double start = 0;      // steps that are skipped first
  double every = 1;      // the parameter enters the average in every `every`-th step

  static constexpr int kStates = 1;  // none
  static constexpr bool kCostly = true, kCounts = true;
  struct Step {
    double weight;  // of the parameter; negative: skips this step
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

// Every k steps, moves the slow weights a fraction of the way to the fast weights, which then restart from the slow ones.
struct LookaheadRule {
  static constexpr const char* kName = "lookahead";
  double lr = 0;  // not used
  double k = 5, alpha = 0.5;

  static constexpr int kStates = 1;  // the slow weights, present from the start
  static constexpr bool kCostly = false, kCounts = true;
  using Step = bool;  // whether it is the k-th
  HS_HD int states() const { return kStates; }
  HS_HD bool idle(const Step& due) const { return !due; }
  HS_HD Step begin(double count, double) const { return ::fmod(count + 1, k) == 0; }

  template <class T>
  HS_HD T update(T p, T, T (&state)[kStates], const Step&) const {
    state[0] += T(alpha) * (p - state[0]);
    return state[0];
  }
};

}  // namespace halfstep::math
