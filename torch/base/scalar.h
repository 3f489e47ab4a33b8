// SPDX-License-Identifier: Apache-2.0
// Scalar: a number of any type, as an argument.
#pragma once

#include "framework/base/number.h"
#include "torch/base/scalar_type.h"

namespace torch {

class Scalar {
 public:
  Scalar() : v_(int64_t(0)) {}
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T v) {
    if constexpr (std::is_same_v<T, bool>)
      v_ = v;
    else if constexpr (std::is_integral_v<T>)
      v_ = int64_t(v);
    else
      v_ = double(v);
  }
  Scalar(Half v) : v_(double(float(v))) {}
  Scalar(BFloat16 v) : v_(double(float(v))) {}
  template <class T>
  T to() const {
    return std::visit([](auto v) { return T(v); }, v_);
  }
  double toDouble() const { return to<double>(); }
  float toFloat() const { return to<float>(); }
  int toInt() const { return to<int>(); }
  int64_t toLong() const { return to<int64_t>(); }
  bool toBool() const { return to<bool>(); }
  bool isFloatingPoint() const { return std::holds_alternative<double>(v_); }
  bool isIntegral(bool include_bool) const { return std::holds_alternative<int64_t>(v_) || (include_bool && isBoolean()); }
  bool isBoolean() const { return std::holds_alternative<bool>(v_); }
  hs::Number n() const {
    return isFloatingPoint() ? hs::Number(toDouble()) : isBoolean() ? hs::Number(toBool()) : hs::Number(toLong());
  }
  Scalar operator-() const { return isFloatingPoint() ? Scalar(-toDouble()) : Scalar(-toLong()); }
  ScalarType type() const { return isFloatingPoint() ? kDouble : isBoolean() ? kBool : kLong; }

 private:
  std::variant<int64_t, double, bool> v_;
};
inline std::ostream& operator<<(std::ostream& out, const Scalar& s) {
  if (s.isFloatingPoint()) return out << s.toDouble();
  if (s.isBoolean()) return out << (s.toBool() ? "true" : "false");
  return out << s.toLong();
}

}  // namespace torch
