// The update rules of optimizers, one element at a time, shared by host and device. From a rule in the list UpdateRule both
// backends make their fused pass, with unscaling, the 16-bit copy and the step's tail (Backend::update). A rule has
//
//   static constexpr const char* kName    what ledgers call it
//   double lr                            its learning rate, which StepControl::lr replaces
//   static constexpr int kStates         most states that it keeps of an element
//   int states() const                   how many it keeps with these options: the first ones
//   Step begin(double count) const       what it makes of the number of steps applied so far; the type is the rule's
//   static constexpr bool kCostly        begin takes long: it is called once a parameter and step, not by every block of a GPU
//   T update(T p, T g, T (&state)[kStates], const Step&) const
//                                        the new parameter, from the old one and the unscaled gradient; T: float or double.
//                                        States begin at 0; those that it does not keep are 0 and what it writes there is lost
//
// Sources: PyTorch's fused SGD, Adam and AdamW; Kingma & Ba 2015; Loshchilov & Hutter 2019.
#pragma once

#include <math.h>

#include <variant>

#include "framework/base/hd.h"

namespace halfstep::math {

inline constexpr int kMaxStates = 3;

struct SgdRule {
  static constexpr const char* kName = "sgd";
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;

  static constexpr int kStates = 1;  // the momentum buffer
  static constexpr bool kCostly = false;
  using Step = bool;  // the parameter's first
  HS_HD int states() const { return momentum != 0 ? 1 : 0; }
  HS_HD Step begin(double count) const { return count == 0; }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& first) const {
    if (maximize) g = -g;
    if (weight_decay != 0) g += T(weight_decay) * p;  // 0 times an infinite parameter would be NaN
    if (momentum != 0) {
      T& buffer = state[0];
      buffer = first ? g : T(momentum) * buffer + T(1 - dampening) * g;
      g = nesterov ? g + T(momentum) * buffer : buffer;
    }
    return p - T(lr) * g;
  }
};

struct AdamRule {
  static constexpr const char* kName = "adam";
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;  // true: AdamW
  bool amsgrad = false, maximize = false;

  static constexpr int kStates = 3;  // first and second moment; amsgrad: the largest second moment so far
  static constexpr bool kCostly = true;
  struct Step {
    double step_size;   // lr / (1 - beta1^t)
    double bias2_sqrt;  // sqrt(1 - beta2^t)
  };
  HS_HD int states() const { return amsgrad ? 3 : 2; }
  HS_HD Step begin(double count) const {
    return {lr / (1 - ::pow(beta1, count + 1)), ::sqrt(1 - ::pow(beta2, count + 1))};
  }

  template <class T>
  HS_HD T update(T p, T g, T (&state)[kStates], const Step& step) const {
    if (maximize) g = -g;
    if (weight_decay != 0) {
      if (decoupled)
        p -= T(lr * weight_decay) * p;
      else
        g += T(weight_decay) * p;
    }
    T &m = state[0], &v = state[1], &top = state[2];
    m = T(beta1) * m + T(1 - beta1) * g;
    v = T(beta2) * v + T(1 - beta2) * g * g;
    if (!amsgrad) top = T(-INFINITY);  // no maximum yet: one path for both
    top = top > v ? top : v;
    const T root = T(sizeof(T) == 4 ? ::sqrtf(float(top)) : ::sqrt(double(top)));
    return p - T(step.step_size) * m / (root / T(step.bias2_sqrt) + T(eps));
  }
};

}  // namespace halfstep::math

namespace halfstep {

using UpdateRule = std::variant<math::SgdRule, math::AdamRule>;

}  // namespace halfstep
