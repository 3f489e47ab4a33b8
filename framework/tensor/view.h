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
  explicit operator bool() const { return data != nullptr; }
  template <class T> T* as() const { return static_cast<T*>(data); }
};

}  // namespace halfstep
