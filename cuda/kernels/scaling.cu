// SPDX-License-Identifier: Apache-2.0
// Gradient scaling: g = g float(1 / scale) for lists of gradients, *found_inf = 1 if any g is not finite, and the end of a step.
// The host reads nothing.
#include "cuda/kernels/tensor_lists.cuh"
#include "framework/math/training.h"

namespace halfstep::cuda {
namespace {

// Sets the flag if `raised` in any thread of the block. Several blocks may store the same 1: atomically, so that the stores do not
// race.
__device__ inline void raise_flag(float* flag, bool raised) {
  if (__syncthreads_or(raised) && threadIdx.x == 0) atomicExch(flag, 1.0f);
}

// Returns the factor; with a null scale only the flag is written.
__device__ inline float factor_of(const float* scale) { return scale ? float(1 / double(*scale)) : 1.0f; }

struct Grad {
  void* data;
  DType dtype;
};
using GradList = List<Grad, 16384>;  // 16384 elements per block

// Multiplies a part of a gradient by the factor. Returns whether this thread found a number that is not finite.
template <class T>
__device__ inline bool unscale_part(T* grad, const GradList::Part& part, float factor) {
  bool bad = false;
  const auto each = [&](auto writes) {
    RowGroup<kBlockWarps>::each<kPackOf<T>, writes.value ? 1 : 4>(part.begin, part.end, [&](int64_t i, auto size) {
      float g[size.value];
      load_pack(grad + i, g);
#pragma unroll
      for (int j = 0; j < size.value; ++j) {
        bad = bad || !finite(g[j]);
        g[j] *= factor;
      }
      if constexpr (writes.value) store_pack(grad + i, g);
    });
  };
  if (factor != 1)
    each(std::true_type());
  else
    each(std::false_type());
  return bad;
}

__global__ void __launch_bounds__(kThreads) unscale_list(GradList list, const float* scale, float* found_inf) {
  const GradList::Part part = list.part();
  void* const data = list.entry[part.tensor].data;
  const float factor = factor_of(scale);
  bool bad;
  switch (list.entry[part.tensor].dtype) {
    case DType::f16: bad = unscale_part(static_cast<__half*>(data), part, factor); break;
    case DType::bf16: bad = unscale_part(static_cast<__nv_bfloat16*>(data), part, factor); break;
    default: bad = unscale_part(static_cast<float*>(data), part, factor);
  }
  raise_flag(found_inf, bad);
}

template <class C>
__global__ void __launch_bounds__(kThreads) unscale_any(Operand grad, Space<1> space, const float* scale, float* found_inf) {
  const float factor = factor_of(scale);
  bool bad = false;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < space.numel; i += int64_t(gridDim.x) * kThreads) {
    const int64_t at = space.offset(i);
    const C g = grad.load_floating<C>(at);
    bad = bad || !finite(g);
    if (factor != 1) grad.store_floating(at, C(g * C(factor)));
  }
  raise_flag(found_inf, bad);
}

__global__ void end_step_kernel(const float* found_inf, math::StepTail tail) {
  if (threadIdx.x == 0) tail.run(found_inf && *found_inf != 0);
}

}  // namespace

void unscale(const Queue& q, std::span<const TensorView> grads, const float* scale, float* found_inf) {
  const auto listed = [](const TensorView& g) { return g.is_contiguous() && aligned16(g.data) && g.dtype != DType::f64; };
  const auto add = [&](GradList& list, const TensorView& g) {
    if (g.numel() == 0 || !listed(g)) return false;
    list.add({g.data, g.dtype}, g.numel());
    return true;
  };
  for_lists<GradList>(grads, add, [&](const GradList& list) {
    launch(unscale_list, list.blocks(), kThreads, 0, q.stream, list, scale, found_inf);
  });
  for (const TensorView& g : grads) {
    if (g.numel() == 0 || listed(g)) continue;
    const Space<1> space(g.shape, {&g.strides});
    launch(g.dtype == DType::f64 ? unscale_any<double> : unscale_any<float>, blocks_for(space.numel, kThreads), kThreads, 0,
           q.stream, Operand(g), space, scale, found_inf);
  }
}

void check_finite(const Queue& q, std::span<const TensorView> grads, float* found_inf) { unscale(q, grads, nullptr, found_inf); }

void end_step(const Queue& q, const float* found_inf, const math::StepTail& tail) {
  launch(end_step_kernel, 1, 32, 0, q.stream, found_inf, tail);
}

}  // namespace halfstep::cuda
