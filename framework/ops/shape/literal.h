// SPDX-License-Identifier: Apache-2.0
// The argument of tensor(): a number, or numbers in braces.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

class TensorLiteral {
 public:
  TensorLiteral() = default;  // {}: no element
  TensorLiteral(bool value) : number_(value), whole_(value), dtype_(DType::boolean), is_number_(true) {}
  TensorLiteral(std::integral auto value)
      : number_(double(value)),
        whole_(int64_t(value)),
        dtype_(DType::i64),
        is_number_(true),
        is_exact_(std::is_signed_v<decltype(value)> || uint64_t(value) >> 63 == 0) {}
  TensorLiteral(std::floating_point auto value) : number_(double(value)), is_number_(true) {}
  TensorLiteral(std::initializer_list<TensorLiteral> parts) : parts_(parts) {}

  Tensor tensor(const NumberOptions& options) const;

 private:
  struct Values;
  // Appends the numbers in row-major order; the first row gives the shape, which all others must have.
  void append_to(Values& values, int depth) const;

  double number_ = 0;
  int64_t whole_ = 0;         // exact, if dtype_ is i64 or bool
  DType dtype_ = DType::f32;  // f32, i64 or bool
  bool is_number_ = false;
  bool is_exact_ = true;  // whether whole_ is the number, if dtype_ is i64
  std::vector<TensorLiteral> parts_;
};

}  // namespace halfstep
