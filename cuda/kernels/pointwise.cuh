// Kernels of the rows of pointwise.def. Two ways for every row and every gradient:
//   packs  float operands that are dense and aligned, of f16, bf16 or f32 in any mixture, or one element for all: eight elements
//          at a time; compiled for each row
//   any    any dtypes and strides: one kernel that looks the row up, element by element
#pragma once

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/operand.cuh"
#include "cuda/kernels/packs.cuh"
#include "framework/math/pointwise.h"

namespace halfstep::cuda {

inline constexpr int kPointwiseThreads = 256, kPointwisePack = 8;

// The output, then g (backward only), a, b, c as far as the kernel reads them.
template <int N>
struct PointwiseOperands {
  Operand v[N];
  unsigned constant = 0;  // bit k: v[k] is one element, repeated
};

// N elements from i.
template <int N>
__device__ inline void load_operand(const Operand& o, bool constant, int64_t i, float (&x)[N]) {
  if (constant) {
    const float value = o.load_floating<float>(0);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = value;
  } else if (o.dtype == DType::f32) {
    load_pack(static_cast<const float*>(o.data) + i, x);
  } else if (o.dtype == DType::f16) {
    load_pack(static_cast<const __half*>(o.data) + i, x);
  } else {
    load_pack(static_cast<const __nv_bfloat16*>(o.data) + i, x);
  }
}
template <int N>
__device__ inline void store_operand(const Operand& o, int64_t i, const float (&x)[N]) {
  if (o.dtype == DType::f32)
    store_pack(static_cast<float*>(o.data) + i, x);
  else if (o.dtype == DType::f16)
    store_pack(static_cast<__half*>(o.data) + i, x);
  else
    store_pack(static_cast<__nv_bfloat16*>(o.data) + i, x);
}

// A row's forward, from a, b, c; and a gradient, from those of g, a, b, c that it names.
template <class Row, int Arity>
struct PointwiseForward {
  static constexpr int kReads = Arity;
  template <class T>
  __device__ static T compute(const T* x, T p, T q) {
    return Row{}(x[0], x[Arity > 1 ? 1 : 0], x[Arity > 2 ? 2 : 0], p, q);
  }
};
template <class Row, int Input>
struct PointwiseGradient {
  static constexpr unsigned kNames = gradient_names<Row, Input>;
  HS_HD static constexpr int place(int which) {
    int before = 0;
    for (int k = 0; k < which; ++k) before += kNames >> k & 1;
    return kNames >> which & 1 ? before : 0;
  }
  static constexpr int kReads = place(0) + (kNames & 1) + (kNames >> 1 & 1) + (kNames >> 2 & 1) + (kNames >> 3 & 1);
  template <class T>
  __device__ static T compute(const T* x, T p, T q) {
    return Row::template gradient<Input>(x[0], x[place(1)], x[place(2)], x[place(3)], p, q);
  }
};

template <class Fn, int N>
__device__ inline void pointwise_pack(const PointwiseOperands<5>& o, int64_t i, float p, float q) {
  float in[Fn::kReads][N], out[N];
#pragma unroll
  for (int k = 0; k < Fn::kReads; ++k) load_operand(o.v[k + 1], o.constant >> (k + 1) & 1, i, in[k]);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    float x[Fn::kReads];
#pragma unroll
    for (int k = 0; k < Fn::kReads; ++k) x[k] = in[k][j];
    out[j] = Fn::compute(x, p, q);
  }
  store_operand(o.v[0], i, out);
}

template <class Fn>
__global__ void __launch_bounds__(kPointwiseThreads) pointwise_packs_kernel(PointwiseOperands<5> o, int64_t n, float p, float q) {
  const int64_t packs = n / kPointwisePack, first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t k = first; k < packs; k += step) pointwise_pack<Fn, kPointwisePack>(o, k * kPointwisePack, p, q);
  const int64_t rest = packs * kPointwisePack + first;
  if (rest < n) pointwise_pack<Fn, 1>(o, rest, p, q);
}

using PointwisePacks = void (*)(PointwiseOperands<5>, int64_t, float, float);
PointwisePacks pointwise_packs(Pointwise row);
PointwisePacks pointwise_backward_packs(Pointwise row, int input);  // null where the gradient is 0

}  // namespace halfstep::cuda
