// SPDX-License-Identifier: Apache-2.0
// Functions that several update rules share, and functions that read a rule's optional members (update_rules.h).
#pragma once

#include <math.h>

#include "framework/base/host_device.h"

namespace halfstep::math {

template <class T>
HS_HD T root(T x) {
  return T(sizeof(T) == 4 ? ::sqrtf(float(x)) : ::sqrt(double(x)));
}
template <class T>
HS_HD T magnitude(T x) {
  return x < T(0) ? -x : x;
}
template <class T>
HS_HD T sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;  // of NaN: NaN
}

// Returns the gradient to descend along: with the weight decay that belongs to the gradient, and negated to maximize.
template <class T>
HS_HD T descent(T g, T p, double weight_decay, bool maximize) {
  if (maximize) g = -g;
  return weight_decay != 0 ? g + T(weight_decay) * p : g;  // 0 times an infinite parameter would be NaN
}
// Does the same for rules that may instead use decoupled decay, which shrinks the parameter itself.
template <class T>
HS_HD T descent(T g, T& p, double weight_decay, bool maximize, bool decoupled, double lr) {
  if (!decoupled || weight_decay == 0) return descent(g, p, weight_decay, maximize);
  p -= T(lr * weight_decay) * p;
  return maximize ? -g : g;
}
// Returns 1 - beta^t for step t = count + 1.
HS_HD double bias_correction(double beta, double count) { return 1 - ::pow(beta, count + 1); }

template <class Rule>
concept HasNumber = requires(typename Rule::Step step) {
  step.number;
};

// Sets the rule's learning rate and its momentum or beta1, if it has one, to the given numbers; null: no change.
template <class Rule>
HS_HD void take_rates(Rule& rule, const double* lr, const double* momentum) {
  if (lr) rule.lr = *lr;
  if constexpr (requires { rule.momentum; }) {
    if (momentum) rule.momentum = *momentum;
  } else if constexpr (requires { rule.beta1; }) {
    if (momentum) rule.beta1 = *momentum;
  }
}
// Returns whether the rule has idle() and says that the step changes nothing.
template <class Rule>
HS_HD bool is_idle(const Rule& rule, const typename Rule::Step& step) {
  if constexpr (requires { rule.idle(step); }) return rule.idle(step);
  return false;
}

}  // namespace halfstep::math
