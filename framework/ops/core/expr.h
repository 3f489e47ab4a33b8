// SPDX-License-Identifier: Apache-2.0
// A value in a formula of elementwise.def that is read on tensors: a Tensor or a plain number.
#pragma once

#include "framework/math/functors.h"
#include "framework/ops/ops.h"

namespace halfstep {

class Expr {
 public:
  explicit Expr(double v) : number_(v) {}
  explicit Expr(Tensor t) : tensor_(std::move(t)) {}
  bool is_number() const { return !tensor_.defined(); }
  double number() const { return number_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  Tensor tensor_;
  double number_ = 0;
};

Expr operator-(const Expr& a);
Expr operator+(const Expr& a, const Expr& b);
Expr operator-(const Expr& a, const Expr& b);
Expr operator*(const Expr& a, const Expr& b);
Expr operator/(const Expr& a, const Expr& b);
Expr operator<(const Expr& a, const Expr& b);
Expr operator<=(const Expr& a, const Expr& b);
Expr operator>(const Expr& a, const Expr& b);
Expr operator>=(const Expr& a, const Expr& b);
Expr operator==(const Expr& a, const Expr& b);
Expr operator!=(const Expr& a, const Expr& b);
Expr select(const Expr& cond, const Expr& a, const Expr& b);  // a and b must not both be numbers

}  // namespace halfstep
