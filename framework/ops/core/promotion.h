// SPDX-License-Identifier: Apache-2.0
// Result dtypes and gradients of broadcast, shared by the elementwise families.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

int category(DType t);  // 0 for bool, 1 for integers, 2 for floating: promotion within a category is by size

// PyTorch's result_type: tensors with dimensions decide; 0-dim tensors and C++ numbers count only with a higher category
// (bool < integer < floating).
DType result_type(const Tensors& in);
// A C++ number as an operand for `like`: takes part in result_type with its category only. It lives in the host's memory and goes
// to tensors of any device, whose kernels get it as an argument.
Tensor wrapped_number(Number value, const Tensor& like);
// A number that the interface of an op has as a double: beside integers a whole one is an integer.
Number number_beside(double value, const Tensor& like);
// Writes a number into all elements.
void fill(const Tensor& to, Number value);
// Where an op computes: the device of the first tensor that is not a C++ number, or the CPU where all are.
Device device_of(const Tensors& in);
// Strides that show `t` in `shape`.
TensorView broadcast_view(const Tensor& t, const Shape& shape);

// The memory format of an elementwise result of this shape: that of the first of `in` which has the shape and lies in one format
// only, as in PyTorch; contiguous where there is none.
MemoryFormat format_of(const Shape& shape, std::span<const Tensor> in);
inline MemoryFormat format_of(const Shape& shape, std::initializer_list<Tensor> in) {
  return format_of(shape, std::span<const Tensor>(in.begin(), in.size()));
}
// `t` shown in `shape`, its dimensions in the order of memory of `format`.
inline TensorView broadcast_view(const Tensor& t, const Shape& shape, MemoryFormat format) {
  return in_memory_order(broadcast_view(t, shape), format);
}
inline TensorView ordered(const Tensor& t, MemoryFormat format) { return in_memory_order(t.view(), format); }

inline TensorView view_of(const Tensor& t) { return t.defined() ? t.view() : TensorView{}; }
// t with its elements one after another, as most kernels of layers want them; undefined stays undefined.
inline Tensor dense(const Tensor& t) { return t.defined() ? t.contiguous() : t; }

}  // namespace halfstep
