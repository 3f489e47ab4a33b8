// SPDX-License-Identifier: Apache-2.0
// Checks the tensors that are passed to a process group.
#pragma once

#include <string_view>

#include "framework/base/check.h"
#include "framework/comm/process_group.h"

namespace halfstep {

inline void check_contiguous(const Tensor& t) {
  check<ValueError>(t.is_contiguous(), "distributed", "tensors that are exchanged must be contiguous, got strides of ", t.shape());
}

inline void check_list(const Tensors& tensors) {
  check<ValueError>(!tensors.empty(), "distributed", "there must be a tensor to exchange");
  for (const Tensor& t : tensors)
    check<DTypeError>(t.dtype() == tensors[0].dtype(), "distributed", "tensors of one operation must have one dtype, got ",
                      tensors[0].dtype(), " and ", t.dtype());
}

inline void check_root(int root, int size) {
  check<ValueError>(root >= 0 && root < size, "distributed", "root must be a rank below ", size, ", got ", root);
}

// Checks `all`, the concatenated parts of the ranks, and one part.
inline void check_parts(std::string_view what, std::string_view all_name, const Tensor& all, std::string_view part_name,
                        const Tensor& part, int size) {
  check<ShapeError>(all.numel() == part.numel() * size && all.dtype() == part.dtype(), what, '`', all_name, "` must be ", size,
                    " times `", part_name, "` in its dtype, got ", all.dtype(), " ", all.shape(), " and ", part.dtype(), " ",
                    part.shape());
}

}  // namespace halfstep
