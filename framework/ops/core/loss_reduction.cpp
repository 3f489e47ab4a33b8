// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/loss_reduction.h"

#include <variant>

#include "framework/base/check.h"

namespace halfstep {

void check_one_shape(std::string_view op, const Shape& input, const Shape& target) {
  check<ShapeError>(input == target || input.empty() || target.empty(), op, "input and target must have one shape, got ", input,
                    " and ", target, Help{"reshape one of them, such as output.squeeze(1) or target.unsqueeze(1)"});
}

Reduction parse_reduction(std::string_view text, std::string_view where) {
  if (text == "none") return Reduction::none;
  if (text == "sum") return Reduction::sum;
  check<ValueError>(text == "mean", where, "'reduction' must be mean, sum or none, got '", text, "'");
  return Reduction::mean;
}

OptionValue OptionMember<LossReduction>::get(const LossReduction& member) {
  const Reduction value = member;
  return std::string(value == Reduction::mean ? "mean" : value == Reduction::sum ? "sum" : "none");
}
bool OptionMember<LossReduction>::put(LossReduction& member, const OptionValue& value) {
  const auto* const text = std::get_if<std::string>(&value);
  if (text) member = parse_reduction(*text);
  return text;
}

}  // namespace halfstep
