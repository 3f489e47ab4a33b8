// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/tensor_option.h"

#include <variant>
#include <vector>

#include "framework/ops/ops.h"

namespace halfstep {

bool OptionMember<Tensor>::put(Tensor& member, const OptionValue& value) {
  const auto* const numbers = std::get_if<std::vector<double>>(&value);
  member = numbers ? tensor(*numbers, {int64_t(numbers->size())}) : Tensor();
  return numbers || std::holds_alternative<std::monostate>(value);
}

}  // namespace halfstep
