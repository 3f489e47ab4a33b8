// SPDX-License-Identifier: Apache-2.0
// Reductions in double.
#include "cuda/kernels/reduce/reduce.cuh"

namespace halfstep::cuda {

template void reduce_as<double>(const Queue&, Reduce, const TensorView&, const TensorView&);

}  // namespace halfstep::cuda
