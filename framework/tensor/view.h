// SPDX-License-Identifier: Apache-2.0
// A tensor as kernels see it: memory, dtype and geometry, without ownership and gradients.
#pragma once

#include "framework/base/dtype.h"
#include "framework/base/shape.h"

namespace halfstep {

struct TensorView {
  void* data = nullptr;  // first element
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;       // in elements
  bool number = false;   // a C++ number, repeated: one f64, f32, i64 or bool in the host's memory, whatever the device

  int64_t numel() const { return halfstep::numel(shape); }
  bool is_contiguous() const { return halfstep::is_contiguous(shape, strides); }
  MemoryFormat format() const { return format_of(shape, strides); }
  explicit operator bool() const { return data != nullptr; }
  template <class T> T* as() const { return static_cast<T*>(data); }
};

// Returns the same elements with dimensions in the order of memory; contiguous if `v` is contiguous in `format`. Elementwise
// kernels do not depend on the order and get all tensors in the order of the result.
inline TensorView in_memory_order(TensorView v, MemoryFormat format) {
  if (format == MemoryFormat::contiguous) return v;
  v.shape = in_memory_order(v.shape, format);
  v.strides = in_memory_order(v.strides, format);
  return v;
}

// Returns a vector [N] as [1, N]: for the sums of a matrix's columns.
inline TensorView as_row(const TensorView& v) {
  return {v.data, v.dtype, {1, v.shape[0]}, {v.shape[0] * v.strides[0], v.strides[0]}};
}

}  // namespace halfstep
