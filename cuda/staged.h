// SPDX-License-Identifier: Apache-2.0
// A tensor in another layout or dtype during one call.
#pragma once

#include <optional>

#include "cuda/kernels/kernels.h"
#include "framework/backend/workspace.h"

namespace halfstep::cuda {

// Returns whether the strides agree in all dimensions with more than one element.
inline bool same_layout(const Shape& shape, const Strides& a, const Strides& b) {
  for (int d = 0; d < shape.size(); ++d)
    if (shape[d] > 1 && a[d] != b[d]) return false;
  return true;
}

// `view` itself if it has this dtype, these strides and this alignment (in bytes); else workspace memory that has them: then the
// strides must be of a dense layout.
class Staged {
 public:
  enum Use { read, write };

  Staged(const Queue& q, const TensorView& view, DType dtype, const Strides& strides, Use use, size_t alignment = 1)
      : q_(q), given_(view), view_(view) {
    view_.strides = strides;
    const bool aligned = reinterpret_cast<uintptr_t>(view.data) % alignment == 0;
    if (!view || (view.dtype == dtype && aligned && same_layout(view.shape, view.strides, strides))) return;
    work_.emplace(Device::cuda, size_t(view.numel()) * size_of(dtype));
    view_.dtype = dtype;
    view_.data = work_->data();
    if (use == read) copy(given_, view_);
  }
  const TensorView& view() const { return view_; }
  // Copies what was written to the original view.
  void deliver() const {
    if (work_) copy(view_, given_);
  }

 private:
  // Copies along the memory of `to`: if both have one layout, the copy's kernels see one dense row.
  void copy(const TensorView& from, const TensorView& to) const {
    cuda::copy(q_, in_memory_order(from, to.format()), in_memory_order(to, to.format()));
  }

  const Queue& q_;
  TensorView given_, view_;
  std::optional<Workspace> work_;
};

}  // namespace halfstep::cuda
