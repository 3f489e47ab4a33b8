// out = Fn(in...), element by element. Two ways for every Fn:
//   dense  all operands dense, of one floating dtype and 16-byte aligned: 16 bytes at a time
//   any    any dtypes and strides, computing in C
#pragma once

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/operand.cuh"
#include "cuda/kernels/packs.cuh"
#include "framework/math/functors.h"

namespace halfstep::cuda {

inline constexpr int kThreads = 256;

template <int N>
struct Operands {
  Operand v[N];  // out, then the inputs
};

template <class Fn, int Inputs, class C>
__device__ inline C apply(const C* x) {
  if constexpr (Inputs == 1)
    return C(Fn{}(x[0]));
  else if constexpr (Inputs == 2)
    return C(Fn{}(x[0], x[1]));
  else
    return C(Fn{}(x[0], x[1], x[2]));
}

// Element i, or the pack from there.
template <class Fn, int Size, class T, int Inputs>
__device__ inline void apply_dense(const Operands<Inputs + 1>& o, int64_t i) {
  using C = typename ComputeOf<T>::type;
  C in[Inputs][Size], out[Size];
#pragma unroll
  for (int k = 0; k < Inputs; ++k) load_pack(static_cast<const T*>(o.v[k + 1].data) + i, in[k]);
#pragma unroll
  for (int j = 0; j < Size; ++j) {
    C x[Inputs];
#pragma unroll
    for (int k = 0; k < Inputs; ++k) x[k] = in[k][j];
    out[j] = apply<Fn, Inputs>(x);
  }
  store_pack(static_cast<T*>(o.v[0].data) + i, out);
}

template <class Fn, class T, int Inputs>
__global__ void __launch_bounds__(kThreads) dense_kernel(Operands<Inputs + 1> o, int64_t n) {
  constexpr int kSize = kPackOf<T>;
  const int64_t packs = n / kSize, first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t p = first; p < packs; p += step) apply_dense<Fn, kSize, T, Inputs>(o, p * kSize);
  if (packs * kSize + first < n) apply_dense<Fn, 1, T, Inputs>(o, packs * kSize + first);
}

template <class Fn, class C, int Inputs>
__global__ void __launch_bounds__(kThreads) any_kernel(Operands<Inputs + 1> o, Space<Inputs + 1> space) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel; i += step) {
    int64_t at[Inputs + 1];
    space.offsets(i, at);
    C x[Inputs];
#pragma unroll
    for (int k = 0; k < Inputs; ++k) x[k] = o.v[k + 1].template load<C>(at[k + 1]);
    o.v[0].store(at[0], apply<Fn, Inputs>(x));
  }
}

template <int Inputs>
using DenseKernel = void (*)(Operands<Inputs + 1>, int64_t);
template <int Inputs>
using AnyKernel = void (*)(Operands<Inputs + 1>, Space<Inputs + 1>);

// The kernels of one op; those that do not exist for it are null. Dense and general forms are compiled in files of their own.
template <int Inputs>
struct DenseKernels {
  DenseKernel<Inputs> f16 = nullptr, bf16 = nullptr, f32 = nullptr;

  template <class Fn>
  static constexpr DenseKernels of() {
    return {dense_kernel<Fn, __half, Inputs>, dense_kernel<Fn, __nv_bfloat16, Inputs>, dense_kernel<Fn, float, Inputs>};
  }
};
template <int Inputs>
struct AnyKernels {
  AnyKernel<Inputs> single, wide, integer;

  template <class Fn>
  static constexpr AnyKernels real() {
    return {any_kernel<Fn, float, Inputs>, any_kernel<Fn, double, Inputs>, nullptr};
  }
  template <class Fn>
  static constexpr AnyKernels any() {
    return {any_kernel<Fn, float, Inputs>, any_kernel<Fn, double, Inputs>, any_kernel<Fn, int64_t, Inputs>};
  }
  template <class Fn>
  static constexpr AnyKernels number() {
    return any<Fn>();
  }
};
DenseKernels<1> dense_unary(Unary op);
DenseKernels<2> dense_unary_backward(Unary op);
DenseKernels<2> dense_binary(Binary op);
DenseKernels<3> dense_binary_backward(Binary op, int input);

template <int Inputs>
void run_elementwise(const Queue& q, const DenseKernels<Inputs>& row, const AnyKernels<Inputs>& general, Compute compute,
                     const TensorView& out, const TensorView* const (&in)[Inputs]) {
  const Space<Inputs + 1> space = [&] {
    if constexpr (Inputs == 1)
      return Space<2>(out.shape, {&out.strides, &in[0]->strides});
    else if constexpr (Inputs == 2)
      return Space<3>(out.shape, {&out.strides, &in[0]->strides, &in[1]->strides});
    else
      return Space<4>(out.shape, {&out.strides, &in[0]->strides, &in[1]->strides, &in[2]->strides});
  }();
  if (space.numel == 0) return;
  Operands<Inputs + 1> o;
  o.v[0] = out;
  bool dense = space.dense() && aligned16(out.data);
  for (int k = 0; k < Inputs; ++k) {
    o.v[k + 1] = *in[k];
    dense = dense && in[k]->dtype == out.dtype && aligned16(in[k]->data);
  }
  const DenseKernel<Inputs> fast = out.dtype == DType::f32    ? row.f32
                                   : out.dtype == DType::f16  ? row.f16
                                   : out.dtype == DType::bf16 ? row.bf16
                                                              : nullptr;
  if (dense && fast && compute == Compute::single) {
    const int64_t packs = (space.numel * int64_t(size_of(out.dtype)) + 15) / 16;
    return launch(fast, blocks_for(packs, kThreads), kThreads, 0, q.stream, o, space.numel);
  }
  const AnyKernel<Inputs> any = compute == Compute::single ? general.single
                                : compute == Compute::wide ? general.wide
                                                           : general.integer;
  launch(any, blocks_for(space.numel, kThreads), kThreads, 0, q.stream, o, space);
}

}  // namespace halfstep::cuda
