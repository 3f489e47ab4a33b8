// SPDX-License-Identifier: Apache-2.0
// The rows of pointwise.def: choice of kernels, and the general kernels.
#include "cuda/kernels/elementwise/pointwise.cuh"

namespace halfstep::cuda {
namespace {

template <class T>
__device__ inline T forward_of(Pointwise row, T a, T b, T c, T p, T q) {
  switch (row) {
#define HS_POINTWISE(row, ...) \
  case Pointwise::row:         \
    return functor::pointwise::row{}(a, b, c, p, q);
#include "framework/math/pointwise.def"
  }
  return T(0);
}

template <class T>
__device__ inline T gradient_of(Pointwise row, int input, T g, T a, T b, T c, T p, T q) {
  switch (int(row) * 3 + input) {
#define HS_POINTWISE(row, ...)                                                                     \
  case int(Pointwise::row) * 3: return functor::pointwise::row::gradient<0>(g, a, b, c, p, q);     \
  case int(Pointwise::row) * 3 + 1: return functor::pointwise::row::gradient<1>(g, a, b, c, p, q); \
  case int(Pointwise::row) * 3 + 2:                                                                \
    return functor::pointwise::row::gradient<2>(g, a, b, c, p, q);
#include "framework/math/pointwise.def"
  }
  return T(0);
}

// The output, then g (backward only), a, b, c.
struct PointwiseOperands {
  Operand v[5];
};

// Computes a row's forward (input < 0) or its gradient by tensor number `input`. o.v[which + 1] is g, a, b or c; `names` has the
// bits of those that are read.
template <class T>
__global__ void __launch_bounds__(kPointwiseThreads)
    pointwise_any_kernel(Pointwise row, int input, unsigned names, PointwiseOperands o, Space<5> space, T p, T q) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel; i += step) {
    int64_t at[5];
    space.offsets(i, at);
    T x[4];
#pragma unroll
    for (int which = 0; which < 4; ++which) x[which] = names >> which & 1 ? o.v[which + 1].template load<T>(at[which + 1]) : T(0);
    const T y = input < 0 ? forward_of(row, x[1], x[2], x[3], p, q) : gradient_of(row, input, x[0], x[1], x[2], x[3], p, q);
    o.v[0].store(at[0], y);
  }
}

// g, a, b, c; unread ones stay empty.
struct Sources {
  TensorView v[4];
  unsigned names = 0;
};

void run(const Queue& queue, PointwisePacks packs, Pointwise row, int input, const Sources& in, double p, double q,
         const TensorView& out) {
  // placed: each tensor at its own index; packed: the tensors that are read, one after another.
  const TensorView *placed[5] = {&out, &out, &out, &out, &out}, *packed[5] = {&out, &out, &out, &out, &out};
  PointwiseOperands o;
  o.v[0] = out;
  bool wide = out.dtype == DType::f64;
  int count = 0;
  for (int which = 0; which < 4; ++which) {
    if (!(in.names >> which & 1)) continue;
    const TensorView& view = in.v[which];
    placed[which + 1] = packed[++count] = &view;
    o.v[which + 1] = view;
    wide = wide || view.dtype == DType::f64;
  }
  const Space<5> space(placed), packed_space(packed);
  const int64_t n = space.numel;
  if (n == 0) return;
  PackOperands<5> dense;
  if (!wide && packed_space.rank <= 1 && packs_fit(packed_space, packed, dense))
    return launch(packs, blocks_for((n + kRun - 1) / kRun, kPointwiseThreads), kPointwiseThreads, 0, queue.stream, dense,
                  packed_space, float(p), float(q));
  const unsigned blocks = blocks_for(n, kPointwiseThreads);
  if (wide)
    launch(pointwise_any_kernel<double>, blocks, kPointwiseThreads, 0, queue.stream, row, input, in.names, o, space, p, q);
  else
    launch(pointwise_any_kernel<float>, blocks, kPointwiseThreads, 0, queue.stream, row, input, in.names, o, space, float(p),
           float(q));
}

}  // namespace

void pointwise(const Queue& queue, Pointwise op, std::span<const TensorView> in, double p, double q, const TensorView& out) {
  Sources sources;
  for (size_t k = 0; k < in.size(); ++k) {
    sources.v[k + 1] = in[k];
    sources.names |= 2u << k;
  }
  run(queue, pointwise_packs(op), op, -1, sources, p, q, out);
}

void pointwise_backward(const Queue& queue, Pointwise op, int input, const TensorView& grad, std::span<const TensorView> in,
                        double p, double q, const TensorView& out) {
  Sources sources;
  sources.names = kPointwiseRows[int(op)].names[input];
  if (sources.names == 0) return fill(queue, out, 0);
  sources.v[0] = grad;
  for (size_t k = 0; k < in.size(); ++k)
    if (sources.names >> (k + 1) & 1) sources.v[k + 1] = in[k];
  run(queue, pointwise_backward_packs(op, input), op, input, sources, p, q, out);
}

}  // namespace halfstep::cuda
