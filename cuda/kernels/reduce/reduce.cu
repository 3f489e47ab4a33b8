// SPDX-License-Identifier: Apache-2.0
// The entry to all reductions, and those of floats.
#include "cuda/kernels/reduce/reduce.cuh"

namespace halfstep::cuda {

extern template void reduce_as<double>(const Queue&, Reduce, const TensorView&, const TensorView&);
extern template void reduce_as<int64_t>(const Queue&, Reduce, const TensorView&, const TensorView&);

void reduce(const Queue& q, Reduce op, const TensorView& x, const TensorView& out) {
  if (out.numel() == 0) return;
  switch (compute_of(x.dtype)) {
    case Compute::single: return reduce_as<float>(q, op, x, out);
    case Compute::wide: return reduce_as<double>(q, op, x, out);
    case Compute::integer: return reduce_as<int64_t>(q, op, x, out);
  }
}

}  // namespace halfstep::cuda
