// SPDX-License-Identifier: Apache-2.0
// Reductions in int64.
#include "cuda/kernels/reduce/reduce.cuh"

namespace halfstep::cuda {

template void reduce_as<int64_t>(const Queue&, Reduce, const TensorView&, const TensorView&);

}  // namespace halfstep::cuda
