// SPDX-License-Identifier: Apache-2.0
// Helpers for ops with indices.
#pragma once

#include "amp/autocast/autocast.h"
#include "framework/ops/core/in_place.h"
#include "framework/ops/core/promotion.h"

namespace halfstep {

// Converts int32 indices to int64. Throws DTypeError for others.
Tensor index_tensor(std::string_view op, const Tensor& index);
// Throws IndexError unless all are in [0, size). (CUDA: with the next value that the host reads.)
void check_index(std::string_view op, const Tensor& index, int64_t size);
// Throws IndexError unless all are in [-size, size), where negative ones count from the end. Returns them in [0, size).
Tensor wrap_index(std::string_view op, const Tensor& index, int64_t size);

// Returns a 0-dim tensor as a line of one element.
inline Tensor as_line(const Tensor& x) { return x.dim() == 0 ? x.reshape({1}) : x; }

// Implements an in-place op: `run` writes directly to x, a contiguous tensor, if nothing is recorded and none of `others` shares
// its memory; otherwise x gets the value of form(), the op that returns a new tensor.
template <class Run, class Form>
const Tensor& change_in_place(std::string_view op, const Tensor& x, const Tensors& others, const Run& run, const Form& form) {
  const autocast::Off off;
  bool records = false, direct = x.is_contiguous();
  for (const Tensor& t : others) {
    records = records || t.requires_grad();
    direct = direct && !t.shares_memory_with(x);
  }
  const bool recorded = check_in_place(x, x.shape(), x.dtype(), records, op);
  if (recorded || !direct) return assign_in_place(x, form(), op);
  run();
  x.bump_version();
  return x;
}

}  // namespace halfstep
