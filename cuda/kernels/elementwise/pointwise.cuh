// SPDX-License-Identifier: Apache-2.0
// Kernels of the rows of pointwise.def. Two ways for every row and every gradient:
//   packs  operands of f16, bf16 and f32 in any mixture that are dense, or one element for all: eight elements at a time; compiled
//          for each row
//   any    any dtypes and strides: one kernel that looks the row up, element by element
#pragma once

#include "cuda/kernels/elementwise/operand.cuh"
#include "cuda/kernels/elementwise/packs.cuh"
#include "cuda/kernels/kernels.h"
#include "framework/math/pointwise.h"

namespace halfstep::cuda {

inline constexpr int kPointwiseThreads = 256;

// Computes a row's forward from its numbers p and q and from x: its tensors among a, b, c (pointwise.def).
template <class Row, int Arity>
struct PointwiseForward {
  static constexpr int kReads = Arity;
  template <class T>
  __device__ static T compute(const T* x, T p, T q) {
    return Row{}(x[0], x[Arity > 1 ? 1 : 0], x[Arity > 2 ? 2 : 0], p, q);
  }
};
// Computes a row's gradient by tensor number `Input` from p, q and x: the tensors among g, a, b, c that the gradient names.
template <class Row, int Input>
struct PointwiseGradient {
  static constexpr unsigned kNames = gradient_names<Row, Input>;
  // Returns the index in x of tensor `which` of g, a, b, c; 0 for one that is not named.
  HS_HD static constexpr int operand_index(int which) {
    int before = 0;
    for (int k = 0; k < which; ++k) before += kNames >> k & 1;
    return kNames >> which & 1 ? before : 0;
  }
  static constexpr int kReads = operand_index(0) + (kNames & 1) + (kNames >> 1 & 1) + (kNames >> 2 & 1) + (kNames >> 3 & 1);
  template <class T>
  __device__ static T compute(const T* x, T p, T q) {
    return Row::template gradient<Input>(x[0], x[operand_index(1)], x[operand_index(2)], x[operand_index(3)], p, q);
  }
};

// Computes Fn in packs. o: the output, then the tensors that Fn reads, then unused ones.
template <class Fn>
__global__ void __launch_bounds__(kPointwiseThreads) pointwise_packs_kernel(PackOperands<5> o, Space<5> space, float p, float q) {
  for_packs<Fn::kReads, false, true>(o, space, [&](const float* x) { return Fn::compute(x, p, q); });
}

using PointwisePacks = void (*)(PackOperands<5>, Space<5>, float, float);
PointwisePacks pointwise_packs(Pointwise row);
PointwisePacks pointwise_backward_packs(Pointwise row, int input);  // null if the gradient is 0

}  // namespace halfstep::cuda
