// SPDX-License-Identifier: Apache-2.0
// Dtypes and memory formats of results, C++ numbers as operands, and views for kernels.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

int category(DType t);  // returns 0 for bool, 1 for integers, 2 for floating; promotion within a category is by size

// Returns PyTorch's result_type: tensors with dimensions decide; 0-dim tensors and C++ numbers count only with a higher category
// (bool < integer < floating).
DType result_type(const Tensors& in);
// Makes an operand for `like` from a C++ number: only its category counts in result_type. It is in host memory and works with
// tensors of any device, whose kernels get it as an argument.
Tensor wrapped_number(Number value, const Tensor& like);
// Converts a number from an interface that takes doubles: beside integers, a whole value becomes an integer.
Number number_beside(double value, const Tensor& like);
// Writes a number into all elements.
void fill(const Tensor& to, Number value);
// Returns where an op computes: the device of the first tensor that is not a C++ number, or the CPU.
Device device_of(const Tensors& in);
// Returns a view of `t` broadcast to `shape`.
TensorView broadcast_view(const Tensor& t, const Shape& shape);

// Returns the memory format of an elementwise result: that of the first of `in` with this shape and a unique format, as in
// PyTorch; contiguous if there is none.
MemoryFormat format_of(const Shape& shape, std::span<const Tensor> in);
inline MemoryFormat format_of(const Shape& shape, std::initializer_list<Tensor> in) {
  return format_of(shape, std::span<const Tensor>(in.begin(), in.size()));
}
// Returns `t` broadcast to `shape`, with its dimensions in the order of memory of `format`.
inline TensorView broadcast_view(const Tensor& t, const Shape& shape, MemoryFormat format) {
  return in_memory_order(broadcast_view(t, shape), format);
}
// Returns all of `t` with its dimensions in the order of memory of `format`.
inline TensorView ordered(const Tensor& t, MemoryFormat format) { return in_memory_order(t.view(), format); }

// Returns a view without data for an undefined tensor.
inline TensorView view_of(const Tensor& t) { return t.defined() ? t.view() : TensorView{}; }
// Makes t contiguous, as most layer kernels need; undefined stays undefined.
inline Tensor dense(const Tensor& t) { return t.defined() ? t.contiguous() : t; }

}  // namespace halfstep
