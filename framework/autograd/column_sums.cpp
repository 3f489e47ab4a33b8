// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/column_sums.h"

#include <utility>

namespace halfstep {

void leave_column_sums(const Tensor& gradient, const Tensor& sums) {
  if (sums.defined()) gradient.impl()->meta().column_sums = {sums, gradient.version()};
}

Tensor take_column_sums(const Tensor& gradient) {
  const auto& meta = gradient.impl()->autograd;
  if (!meta) return {};
  const ColumnSums left = std::exchange(meta->column_sums, {});
  return left.version == gradient.version() && !gradient.storage()->is_exposed() ? left.sums : Tensor();
}

}  // namespace halfstep
