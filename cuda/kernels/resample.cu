// SPDX-License-Identifier: Apache-2.0
// Multiplies by a sparse matrix along one dimension, one thread per output: x [outer, I, inner] -> out [outer, O, inner],
//   out[a, o, b] = sum over the entries k of row o of weight[k] x[a, index[k], b]
// The gradient is the same call with the transposed matrix.
#include "cuda/kernels/elementwise/divide.cuh"
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {
namespace {

// A sparse matrix by its rows (SparseRows of framework/backend/backend.h).
template <class C>
struct Rows {
  const int64_t *start, *index;
  const C* weight;
};

// x: [outer, columns, inner], out: [outer, rows, inner]
template <class T>
__global__ void __launch_bounds__(kThreads) resample_kernel(const T* x, Rows<typename ComputeOf<T>::type> m, Operand out,
                                                            int64_t columns, int64_t rows, int64_t inner, int64_t numel) {
  using C = typename ComputeOf<T>::type;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < numel; i += step) {
    const int64_t line = quotient(i, inner), outer = quotient(line, rows), o = line - outer * rows;
    const T* const from = x + outer * columns * inner + (i - line * inner);
    C sum = 0;
    for (int64_t k = m.start[o]; k < m.start[o + 1]; ++k) sum += m.weight[k] * C(to_float(from[m.index[k] * inner]));
    out.store_floating(i, sum);
  }
}

}  // namespace

void resample(const Queue& q, const TensorView& x, int dim, const SparseRows& matrix, const TensorView& out) {
  const int64_t n = out.numel();
  if (n == 0) return;
  int64_t inner = 1;
  for (int d = dim + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  const auto run = [&](auto type) {
    using T = decltype(type);
    using C = typename ComputeOf<T>::type;
    const Rows<C> m{matrix.start.as<const int64_t>(), matrix.index.as<const int64_t>(), matrix.weight.as<const C>()};
    launch(resample_kernel<T>, blocks_for(n, kThreads), kThreads, 0, q.stream, x.as<const T>(), m, Operand(out), x.shape[dim],
           out.shape[dim], inner, n);
  };
  if (x.dtype == DType::f64)
    run(double{});
  else
    for_packed_type(x.dtype, run);
}

}  // namespace halfstep::cuda
