// SPDX-License-Identifier: Apache-2.0
// Update rules with a step size for each element, from the squares or the signs of its gradients.
// Sources: PyTorch's RMSprop, Adagrad, Adadelta and Rprop; Tieleman & Hinton 2012; Duchi et al. 2011; Zeiler 2012; Riedmiller &
// Braun 1993.
#pragma once

#include "framework/math/rule_parts.h"

namespace halfstep::math {

struct RmspropRule {
  static constexpr const char* kName = "rmsprop";
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false, with_momentum = false, maximize = false;  // with_momentum: whether there is a buffer

  static constexpr int kStates = 3;  // mean square; then, if used, the momentum buffer and the mean
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

// Gives each element its own step size, which grows while the gradient keeps its sign.
struct RpropRule {
  static constexpr const char* kName = "rprop";
  double lr = 1e-2, eta_minus = 0.5, eta_plus = 1.2, step_min = 1e-6, step_max = 50;
  bool maximize = false;

  static constexpr int kStates = 2;  // the last gradient, and the step size
  static constexpr bool kCostly = false, kCounts = true;
  using Step = bool;  // whether it is the parameter's first
  HS_HD int states() const { return kStates; }
  HS_HD Step begin(double count, double) const { return count == 0; }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& first) const {
    if (maximize) g = -g;
    T &last = state[0], &size = state[1];
    const T agreement = g * last, old_size = first ? T(lr) : size;  // agreement: negative after a change of sign
    const T growth = agreement > T(0) ? T(eta_plus) : T(1);
    const T new_size = old_size * (agreement < T(0) ? T(eta_minus) : growth);
    const T raised = new_size < T(step_min) ? T(step_min) : new_size;
    size = raised > T(step_max) ? T(step_max) : raised;
    last = agreement < T(0) ? T(0) : g;  // omits this step after a change of sign
    return p - sign(last) * size;
  }
};

}  // namespace halfstep::math
