// SPDX-License-Identifier: Apache-2.0
// The update rules of optimizers, one element at a time, shared by host and device. From a rule in the list UpdateRule both
// backends make their fused pass, with unscaling, clipping, the 16-bit copy and the step's tail (Backend::update). A rule has
//
//   static constexpr const char* kName    its name in logs of calls and kernels
//   double lr                            its learning rate, which StepControl::lr replaces
//   double momentum or beta1             if it has one: StepControl::momentum replaces it
//   static constexpr int kStates         largest number of states for each element
//   int states() const                   number of states with these options: the first ones
//   Step begin(double count, double number) const
//                                        computes its Step from the number of steps applied so far and from ParamUpdate::number (0
//                                        without one, NaN where a state lacks it); the type is the rule's. The step stores the
//                                        Step's `number` there
//   bool idle(const Step&) const         optional: true if the step changes nothing, so that no memory need be read
//   static constexpr bool kCostly        begin takes long: it is called once for each parameter and step, not by every block
//   static constexpr bool kCounts        whether the pass counts the step; false for the second pass of an optimizer with two
//   T update(T p, T g, T (&state)[kStates], const Step&) const
//                                        the new parameter, from the old one and the unscaled and clipped gradient; T: float or
//                                        double. States begin at 0. Those from states() on are 0 in each call; what it writes
//                                        there is lost
#pragma once

#include <variant>

#include "framework/math/adam_rules.h"
#include "framework/math/adaptive_rules.h"
#include "framework/math/pass_rules.h"
#include "framework/math/sgd_rules.h"

namespace halfstep {

// One of the rules. It is a class, not an alias, so that code that only passes it on can declare it without including the rules.
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
