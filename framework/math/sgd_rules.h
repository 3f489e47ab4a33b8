// SPDX-License-Identifier: Apache-2.0
// Update rules with one step size for all elements: SGD, ASGD and Lion.
// Sources: PyTorch's SGD and ASGD; Polyak & Juditsky 1992; Chen et al. 2023 (Lion).
#pragma once

#include "framework/math/rule_parts.h"

namespace halfstep::math {

struct SgdRule {
  static constexpr const char* kName = "sgd";
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;

  static constexpr int kStates = 1;  // the momentum buffer
  static constexpr bool kCostly = false, kCounts = true;
  struct Step {
    double kept, added;  // shares of the old buffer and of the gradient in the new buffer; at a parameter's first step 0 and 1
  };
  HS_HD int states() const { return momentum != 0 ? 1 : 0; }
  HS_HD Step begin(double count, double) const { return count == 0 ? Step{0, 1} : Step{momentum, 1 - dampening}; }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& step) const {
    g = descent(g, p, weight_decay, maximize);
    if (momentum != 0) {
      T& buffer = state[0];
      buffer = T(step.kept) * buffer + T(step.added) * g;
      const T ahead = g + T(momentum) * buffer;
      g = nesterov ? ahead : buffer;
    }
    return p - T(lr) * g;
  }
};

// SGD with a falling step size, and the average of the parameters since step t0. As in PyTorch, each step computes the next step
// size eta and stores it as its number, so a change of lr takes effect one step later. If lr has not changed, eta is recomputed
// without the rounding of the stored number. A number that is NaN: a loaded state had none.
struct AsgdRule {
  static constexpr const char* kName = "asgd";
  double lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0;
  bool maximize = false;

  static constexpr int kStates = 1;  // the average
  static constexpr bool kCostly = true, kCounts = true;
  struct Step {
    double eta, mu;
    float number;  // eta of the next step
  };
  HS_HD int states() const { return kStates; }
  HS_HD double size(double count) const { return lr / ::pow(1 + lambd * lr * count, alpha); }
  HS_HD Step begin(double count, double number) const {
    const double own = size(count), eta = count == 0 || number != number || float(own) == float(number) ? own : number;
    return {eta, 1 / (count - t0 > 1 ? count - t0 : 1), float(size(count + 1))};
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

// Applies the sign of a moment mixed with the gradient: p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g).
struct LionRule {
  static constexpr const char* kName = "lion";
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  bool maximize = false;

  static constexpr int kStates = 1;
  static constexpr bool kCostly = false, kCounts = true;
  struct Step {};
  HS_HD int states() const { return kStates; }
  HS_HD Step begin(double, double) const { return {}; }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step&) const {
    g = descent(g, p, weight_decay, maximize, /*decoupled=*/true, lr);
    T& m = state[0];
    const T mixed = T(beta1) * m + T(1 - beta1) * g;
    m = T(beta2) * m + T(1 - beta2) * g;
    return p - T(lr) * sign(mixed);
  }
};

}  // namespace halfstep::math
