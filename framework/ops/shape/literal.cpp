// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/shape/literal.h"

#include <optional>

#include "framework/ops/core/promotion.h"
#include "framework/ops/ops.h"

namespace halfstep {

struct TensorLiteral::Values {
  Shape shape;
  bool is_shaped = false;      // whether the first row was read down to its first number
  std::optional<DType> dtype;  // of the highest category so far
  std::vector<double> numbers;
  std::vector<int64_t> wholes;  // the same numbers, exact if integers
  bool is_exact = true;         // whether all integers are below 2^63
};

void TensorLiteral::append_to(Values& values, int depth) const {
  const Shape& shape = values.shape;
  if (!values.is_shaped && !is_number_) values.shape.push_back(int64_t(parts_.size()));
  values.is_shaped = values.is_shaped || is_number_ || parts_.empty();
  if (is_number_) {
    check<ShapeError>(depth == shape.size(), "tensor", "one entry is a number, the others are rows of ", shape.size() - depth,
                      " dimension(s)");
    if (!values.dtype || category(dtype_) > category(*values.dtype)) values.dtype = dtype_;
    values.numbers.push_back(number_);
    values.wholes.push_back(whole_);
    values.is_exact = values.is_exact && is_exact_;
    return;
  }
  check<ShapeError>(depth < shape.size(), "tensor", "one entry is a row, the others are numbers");
  check<ShapeError>(shape[depth] == int64_t(parts_.size()), "tensor", "rows of dimension ", depth, " must have the same size, got ",
                    shape[depth], " and ", parts_.size());
  for (const TensorLiteral& part : parts_) part.append_to(values, depth + 1);
}

namespace {

// Throws ValueError for a number that an integer dtype does not have. Floating dtypes round to infinity, as in PyTorch.
void check_fit(DType dtype, bool floating, const std::vector<double>& numbers, const std::vector<int64_t>& wholes) {
  if (is_floating(dtype) || dtype == DType::boolean) return;
  for (size_t i = 0; i < numbers.size(); ++i) check_fits("tensor", floating ? Number(numbers[i]) : Number(wholes[i]), dtype);
}

}  // namespace

Tensor TensorLiteral::tensor(const NumberOptions& options) const {
  Values values;
  append_to(values, 0);
  const DType own = values.dtype.value_or(DType::f32), dtype = options.dtype.value_or(own);
  check_fit(dtype, own == DType::f32 || !values.is_exact, values.numbers, values.wholes);
  // Converts through double, except integers, which are exact beyond 2^53.
  const Tensor t = own != DType::f32 && values.is_exact ? from_vector(values.wholes, values.shape, options.device)
                                                        : from_vector(values.numbers, values.shape, options.device);
  const Tensor out = t.to(dtype);
  if (options.requires_grad) out.set_requires_grad();
  return out;
}

Tensor Tensor::new_tensor(const TensorLiteral& values) const { return values.tensor({.dtype = dtype(), .device = device()}); }
Tensor tensor(const TensorLiteral& values, const NumberOptions& options) { return values.tensor(options); }

}  // namespace halfstep
