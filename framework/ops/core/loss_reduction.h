// SPDX-License-Identifier: Apache-2.0
// The reduction of a loss: a Reduction, or PyTorch's name for it: mse_loss(x, y, "sum"), {.reduction = "none"}.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "framework/backend/backend.h"
#include "framework/base/options.h"
#include "framework/base/shape.h"

namespace halfstep {

// Parses "none", "mean" or "sum". Throws ValueError for anything else.
Reduction parse_reduction(std::string_view text, std::string_view where = "loss");

// Throws ShapeError unless input and target have one shape, or one is a 0-dim number. Broadcasting [N, 1] against [N] would compare
// every element with every target.
void check_one_shape(std::string_view op, const Shape& input, const Shape& target);

class LossReduction {
 public:
  constexpr LossReduction(Reduction value) : value_(value) {}
  template <size_t n>
  LossReduction(const char (&name)[n]) : value_(parse_reduction(name)) {}
  LossReduction(const std::string& name) : value_(parse_reduction(name)) {}
  constexpr operator Reduction() const { return value_; }

 private:
  Reduction value_;
};
template <>
struct OptionMember<LossReduction> {
  static constexpr OptionKind kKind = OptionKind::text;
  static OptionValue get(const LossReduction& member);
  static bool put(LossReduction& member, const OptionValue& value);
};
// Returns the option `reduction`, which most losses have.
template <class O>
Option<O> reduction_of() {
  return option("reduction", &O::reduction, "over the batch; training takes the mean").one_of({"mean", "sum", "none"}).unseen();
}

}  // namespace halfstep
