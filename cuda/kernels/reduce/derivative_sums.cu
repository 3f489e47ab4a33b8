// SPDX-License-Identifier: Apache-2.0
// The derivative out = g act'(aux) of an activation, with the sums of out's columns, which are the gradient of the bias before it:
// the pass that writes out also adds its rounded elements, in the order and with the bits of a reduction of out.
#include "cuda/kernels/reduce/reduce.cuh"

namespace halfstep::cuda {
namespace {

// A matrix of T with dense rows.
template <class T>
struct Lines {
  T* data;
  int64_t step;
};

template <Activation Act>
__device__ inline float derivative(float g, float z) {
  if constexpr (Act == Activation::relu)
    return z <= 0 ? 0.0f : g;  // passes at NaN
  else
    return functor::gelu_tanh_backward{}(g, z);
}

// aux: a ReLU's output, or GELU's input. out may be grad. With a fourth block on a multiprocessor registers would spill.
template <class T, Activation Act>
__global__ void __launch_bounds__(kThreads, 3)
    derivative_sums_kernel(Lines<const T> grad, Lines<const T> aux, Lines<T> out, Space<2> kept, int64_t segments, int64_t segment,
                           Result<double> result) {
  constexpr int kPack = kPackOf<T>, kAhead = 2;  // rows that are read at a time
  SHARED(double, shared, [kBlockWarps][kOctet * kPack]);
  const auto walk = [&](int64_t first, int64_t end, int64_t column, const auto& add) {
    for (int64_t begin = first; begin < end; begin += kAhead * kColumnRows) {
      uint4 g[kAhead], z[kAhead];  // all are read first: out may be grad, so no read moves up across a write
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int64_t i = begin + k * kColumnRows;
        if (i >= end) break;
        g[k] = *reinterpret_cast<const uint4*>(grad.data + i * grad.step + column);
        z[k] = *reinterpret_cast<const uint4*>(aux.data + i * aux.step + column);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int64_t i = begin + k * kColumnRows;
        if (i >= end) break;
        float v[kPack], y[kPack];
        load_pack(reinterpret_cast<const T*>(&g[k]), v);
        load_pack(reinterpret_cast<const T*>(&z[k]), y);
#pragma unroll
        for (int j = 0; j < kPack; ++j) v[j] = to_float(from_float<T>(derivative<Act>(v[j], y[j])));
        store_pack(out.data + i * out.step + column, v);
        add(v);
      }
    }
  };
  reduce_pack_columns<Sum, kPack>(&shared[0], kept, segments, segment, result, walk);
}

bool is_in_packs(const TensorView& v) {
  return aligned16(v.data) && v.strides[1] == 1 && v.strides[0] * int64_t(size_of(v.dtype)) % 16 == 0;
}

}  // namespace

bool activation_derivative_with_sums(const Queue& q, const TensorView& grad, Activation activation, const TensorView& aux,
                                     const TensorView& out, const TensorView& sums) {
  const DType t = out.dtype;
  if (!is_half(t) || grad.dtype != t || aux.dtype != t || !is_in_packs(grad) || !is_in_packs(aux) || !is_in_packs(out))
    return false;
  const int64_t columns = out.shape[1];
  const ReduceInput r = ReduceInput::of(out, {sums.data, sums.dtype, {1, columns}, {columns * sums.strides[0], sums.strides[0]}});
  ReduceFacts facts = r.facts(out);
  facts.has_packed_columns = true;
  const ReducePlan plan = plan_reduction(facts);
  if (plan.kernel != ReducePlan::Kernel::packed_columns) return false;
  Result<double> result{Operand(sums), nullptr, r.kept.numel, r.reduced.numel, false};
  if (plan.join != ReducePlan::Join::none) result.partials = q.scratch;
  for_packed_type(t, [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      const auto kernel = activation == Activation::relu ? derivative_sums_kernel<T, Activation::relu>
                                                         : derivative_sums_kernel<T, Activation::gelu>;
      launch(kernel, column_blocks<T>(r, plan), kThreads, 0, q.stream, Lines<const T>{grad.as<const T>(), grad.strides[0]},
             Lines<const T>{aux.as<const T>(), aux.strides[0]}, Lines<T>{out.as<T>(), out.strides[0]}, r.kept, plan.cut.segments,
             plan.cut.segment, result);
    }
  });
  join_plan<Sum>(q, plan, r, result);
  return true;
}

}  // namespace halfstep::cuda
