// SPDX-License-Identifier: Apache-2.0
// out = Fn(in...), element by element. Two ways for every Fn:
//   packs  computes eight elements at a time, in float. Operands: f16, bf16, f32 (for some Fn also bool) in any mixture, dense or
//          repeated along the innermost dimension; or single numbers
//   any    computes one element at a time, in the compute type C (float, double or int64). Operands: any dtypes and strides
#pragma once

#include "cuda/kernels/elementwise/operand.cuh"
#include "cuda/kernels/elementwise/packs.cuh"
#include "cuda/kernels/kernels.h"
#include "framework/math/functors.h"

namespace halfstep::cuda {

inline constexpr int kThreads = 256;

// The output, then the inputs.
template <int N, class C>
struct Operands {
  Operand view[N];
  C number[N] = {};  // values of operands without memory
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

template <class Fn, int Inputs, bool Booleans = false>
__global__ void __launch_bounds__(kThreads) packs_kernel(PackOperands<Inputs + 1> o, Space<Inputs + 1> space) {
  for_packs<Inputs, Booleans>(o, space, [](const float* x) { return apply<Fn, Inputs>(x); });
}

template <class Fn, class C, int Inputs>
__global__ void __launch_bounds__(kThreads) any_kernel(Operands<Inputs + 1, C> o, Space<Inputs + 1> space) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel; i += step) {
    int64_t at[Inputs + 1];
    space.short_offsets(i, at);
    C x[Inputs];
#pragma unroll
    for (int k = 1; k <= Inputs; ++k)
      x[k - 1] = o.view[k].data != nullptr ? o.view[k].template load<C>(at[k]) : o.number[k];
    o.view[0].store(at[0], apply<Fn, Inputs>(x));
  }
}

template <int Inputs>
using PacksKernel = void (*)(PackOperands<Inputs + 1>, Space<Inputs + 1>);
template <int Inputs, class C>
using AnyKernel = void (*)(Operands<Inputs + 1, C>, Space<Inputs + 1>);

// The general kernels of one op; missing ones are null. The functions have the names of the kinds in elementwise.def: `real`
// computes floating numbers only, `whole` integers only, `any` and `number` both.
template <int Inputs>
struct AnyKernels {
  AnyKernel<Inputs, float> single;
  AnyKernel<Inputs, double> wide;
  AnyKernel<Inputs, int64_t> integer;

  template <class Fn>
  static constexpr AnyKernels real() {
    return {any_kernel<Fn, float, Inputs>, any_kernel<Fn, double, Inputs>, nullptr};
  }
  template <class Fn>
  static constexpr AnyKernels any() {
    return {any_kernel<Fn, float, Inputs>, any_kernel<Fn, double, Inputs>, any_kernel<Fn, int64_t, Inputs>};
  }
  template <class Fn>
  static constexpr AnyKernels whole() {
    return {nullptr, nullptr, any_kernel<Fn, int64_t, Inputs>};
  }
  template <class Fn>
  static constexpr AnyKernels number() {
    return any<Fn>();
  }
};

// Return the packs kernels of the rows of elementwise.def, which are compiled in separate files.
PacksKernel<1> unary_packs(Unary op);
PacksKernel<2> unary_backward_packs(Unary op);
PacksKernel<2> binary_packs(Binary op);
PacksKernel<3> binary_backward_packs(Binary op, int input);

template <int Inputs, class C>
void run_any(const Queue& q, AnyKernel<Inputs, C> kernel, const Space<Inputs + 1>& space,
             const TensorView* const (&views)[Inputs + 1]) {
  Operands<Inputs + 1, C> o;
  for (int k = 0; k <= Inputs; ++k) {
    if (views[k]->number)
      o.number[k] = number_of<C>(*views[k]);
    else
      o.view[k] = *views[k];
  }
  launch(kernel, blocks_for(space.numel, kThreads), kThreads, 0, q.stream, o, space);
}

// Runs an op. views: the output, then the inputs. booleans: whether `packs` accepts bool.
template <int Inputs>
void run_elementwise(const Queue& q, PacksKernel<Inputs> packs, const AnyKernels<Inputs>& general, Compute compute,
                     const TensorView* const (&views)[Inputs + 1], bool booleans = false) {
  const Space<Inputs + 1> space(views);
  if (space.numel == 0) return;
  PackOperands<Inputs + 1> o;  // filled by packs_fit
  if (compute == Compute::single && packs_fit(space, views, o, booleans))
    return launch(packs, blocks_for((space.numel + kRun - 1) / kRun, kThreads), kThreads, 0, q.stream, o, space);
  switch (compute) {
    case Compute::single: return run_any<Inputs>(q, general.single, space, views);
    case Compute::wide: return run_any<Inputs>(q, general.wide, space, views);
    case Compute::integer: return run_any<Inputs>(q, general.integer, space, views);
  }
}

}  // namespace halfstep::cuda
