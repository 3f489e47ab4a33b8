// SPDX-License-Identifier: Apache-2.0
// The derivative out = g act'(saved) of an activation, with the sums of out's columns, which are the gradient of the bias before
// it: the pass that writes out also adds its rounded elements, in the order and with the bits of a reduction of out.
#include "cuda/kernels/reduce/reduce.cuh"

namespace halfstep::cuda {
namespace {

// A matrix of T with dense rows.
template <class T>
struct Lines {
  T* data;
  int64_t step;
};

// Fn: the derivative, of elementwise.def. out may be grad. With a fourth block on a multiprocessor registers would spill.
template <class T, class Fn>
__global__ void __launch_bounds__(kThreads, 3)
    derivative_sums_kernel(Lines<const T> grad, Lines<const T> saved, Lines<T> out, Space<2> kept, int64_t segments,
                           int64_t segment, Result<double> result) {
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
        z[k] = *reinterpret_cast<const uint4*>(saved.data + i * saved.step + column);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int64_t i = begin + k * kColumnRows;
        if (i >= end) break;
        float v[kPack], y[kPack];
        load_pack(reinterpret_cast<const T*>(&g[k]), v);
        load_pack(reinterpret_cast<const T*>(&z[k]), y);
#pragma unroll
        for (int j = 0; j < kPack; ++j) v[j] = to_float(from_float<T>(Fn{}(v[j], y[j])));
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

template <class T>
auto kernel_of(Unary op) {
  return op == Unary::relu   ? derivative_sums_kernel<T, functor::relu_backward>
         : op == Unary::gelu ? derivative_sums_kernel<T, functor::gelu_backward>
                             : derivative_sums_kernel<T, functor::gelu_tanh_backward>;
}

// Does all in one pass; returns false and does nothing if there is none for these ops, dtypes and strides.
bool in_one_pass(const Queue& q, Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out,
                 const TensorView& sums) {
  const DType t = out.dtype;
  if (op != Unary::relu && op != Unary::gelu && op != Unary::gelu_tanh) return false;
  if (!is_half(t) || grad.dtype != t || saved.dtype != t || !is_in_packs(grad) || !is_in_packs(saved) || !is_in_packs(out))
    return false;
  const ReduceInput r = ReduceInput::of(out, as_row(sums));
  ReduceFacts facts = r.facts(out);
  facts.has_packed_columns = true;
  const ReducePlan plan = plan_reduction(facts);
  if (plan.kernel != ReducePlan::Kernel::packed_columns) return false;
  Result<double> result{Operand(sums), nullptr, r.kept.numel, r.reduced.numel, false};
  if (plan.join != ReducePlan::Join::none) result.partials = q.scratch;
  for_packed_type(t, [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      launch(kernel_of<T>(op), column_blocks<T>(r, plan), kThreads, 0, q.stream,
             Lines<const T>{grad.as<const T>(), grad.strides[0]}, Lines<const T>{saved.as<const T>(), saved.strides[0]},
             Lines<T>{out.as<T>(), out.strides[0]}, r.kept, plan.cut.segments, plan.cut.segment, result);
    }
  });
  join_plan<Sum>(q, plan, r, result);
  return true;
}

}  // namespace

void unary_summed_backward(const Queue& q, Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out,
                           const TensorView& sums) {
  if (in_one_pass(q, op, grad, saved, out, sums)) return;
  unary_backward(q, op, grad, saved, out);
  reduce(q, Reduce::sum, out, as_row(sums));
}

}  // namespace halfstep::cuda
