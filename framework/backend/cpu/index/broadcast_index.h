// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "framework/tensor/view.h"

namespace halfstep::cpu {

// Returns the index broadcast to `shape`: a one-dimensional one chooses whole slices along dim.
inline TensorView broadcast_index(const TensorView& index, const Shape& shape, int dim) {
  if (index.shape.size() == shape.size()) return index;
  TensorView v = index;
  v.shape = shape;
  v.strides = Dims::filled(shape.size(), 0);
  if (!shape.empty() && !index.shape.empty()) v.strides[dim] = index.strides[0];
  return v;
}

}  // namespace halfstep::cpu
