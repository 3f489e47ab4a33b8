// SPDX-License-Identifier: Apache-2.0
// What a kernel sees of a tensor: memory, dtype and geometry. No ownership, no gradients.
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

// The same elements with their dimensions in the order of memory: contiguous where `v` is so in `format`. Elementwise kernels,
// which do not care for the order, are given all their tensors in that of the result.
inline TensorView in_memory_order(TensorView v, MemoryFormat format) {
  if (format == MemoryFormat::contiguous) return v;
  v.shape = in_memory_order(v.shape, format);
  v.strides = in_memory_order(v.strides, format);
  return v;
}

}  // namespace halfstep
