// SPDX-License-Identifier: Apache-2.0
// Reductions over any dimensions. The elements of an output are cut into segments by shape alone; a group of threads reduces a
// segment, and a second kernel joins the segments in order. Floats are added in float by each thread, in double between them.
#pragma once

#include "cuda/kernels/reduce/reduce_plan.h"
#include "cuda/kernels/reduce/rows.cuh"

namespace halfstep::cuda {

// The type in which the results of threads that compute in C are joined.
template <class C>
struct WideOf {
  using type = double;
};
template <>
struct WideOf<int64_t> {
  using type = int64_t;
};

template <class W>
__device__ inline W lowest() {
  return W(-INFINITY);
}
template <>
__device__ inline int64_t lowest<int64_t>() {
  return INT64_MIN;
}
template <class W>
__device__ inline W highest() {
  return W(INFINITY);
}
template <>
__device__ inline int64_t highest<int64_t>() {
  return INT64_MAX;
}

// identity: the result of an empty reduction. first maps an element before joining.
#define HS_REDUCTION(name, Join, start, mapped) \
  struct name : Join {                          \
    template <class W>                          \
    __device__ static W identity() {            \
      return start;                             \
    }                                           \
    template <class C>                          \
    __device__ static C first(C x) {            \
      return mapped;                            \
    }                                           \
  };
HS_REDUCTION(Sum, SumJoin, W(0), x)
HS_REDUCTION(SumAbs, SumJoin, W(0), x < C(0) ? m::neg(x) : x)
HS_REDUCTION(SumSquares, SumJoin, W(0), m::mul(x, x))
HS_REDUCTION(Product, ProductJoin, W(1), x)
HS_REDUCTION(Max, MaxJoin, lowest<W>(), x)
HS_REDUCTION(Min, MinJoin, highest<W>(), x)
HS_REDUCTION(Any, MaxJoin, W(0), C(x != C(0)))
HS_REDUCTION(All, MinJoin, W(1), C(x != C(0)))
#undef HS_REDUCTION

// The destination of results: `mean` divides by the count; with several segments, they go to partials, segment by segment.
template <class W>
struct Result {
  Operand out;
  W* partials;      // null: directly to out
  int64_t outputs;  // number of outputs
  int64_t count;    // elements per output
  bool mean;

  __device__ void finish(int64_t offset, W value) const {
    if (mean)
      out.store(offset, double(value) / double(count));
    else
      out.store(offset, value);
  }
  __device__ void put(int64_t output, int64_t segment, int64_t offset, W value) const {
    if (partials)
      partials[segment * outputs + output] = value;
    else
      finish(offset, value);
  }
};

// The elements of outputs, of any dtype and strides. load: element i of the output whose first is at `first`.
template <class C>
struct Scattered {
  using Compute = C;
  static constexpr int kPack = 1;
  Operand data;
  Space<1> along;

  Scattered(const TensorView& x, const Space<1>& along) : data(x), along(along) {}
  __device__ void load(int64_t first, int64_t i, C (&x)[1]) const { x[0] = data.load<C>(first + along.offset(i)); }
};

// Reduces segments, each by a group of threads: task = output * segments + segment. kept: the outputs (offsets in out and x).
template <class Op, class Elements, int Warps>
__global__ void __launch_bounds__(kThreads) reduce_rows(Elements x, Space<2> kept, int64_t segments, int64_t segment,
                                                        Result<typename WideOf<typename Elements::Compute>::type> result) {
  using C = typename Elements::Compute;
  using W = typename WideOf<C>::type;
  using Group = RowGroup<Warps>;
  // Short rows of 16-bit elements in packs: with more reads in progress, ptxas spills registers, because it plans for many warps
  // at a time.
  constexpr int kPack = Elements::kPack, kUnroll = kPack == 1 || (kPack == 8 && Warps == 1) ? 1 : 4;
  SHARED(W, shared, [kBlockWarps]);
  const int64_t tasks = kept.numel * segments;
  for (int64_t task = Group::first_row(); task < tasks; task += Group::row_step()) {
    const int64_t output = task / segments, s = task % segments, begin = s * segment;
    int64_t at[2];
    kept.offsets(output, at);
    C partial[kPack];  // one for each place in a pack: several independent chains of additions
#pragma unroll
    for (int j = 0; j < kPack; ++j) partial[j] = Op::template identity<C>();
    const int64_t end = begin + segment < result.count ? begin + segment : result.count;
    Group::template each<kPack, kUnroll>(begin, end, [&](int64_t i, auto size) {
      C v[size.value];
      x.load(at[1], i, v);
#pragma unroll
      for (int j = 0; j < size.value; ++j) partial[j] = Op::join(partial[j], Op::first(v[j]));
    });
#pragma unroll
    for (int j = 1; j < kPack; ++j) partial[0] = Op::join(partial[0], partial[j]);
    const W joined = Group::template join<Op>(W(partial[0]), &shared[0]);
    if (Group::rank() == 0) result.put(output, s, at[0], joined);
  }
}

// Reduces segments of outputs whose elements lie side by side in x: a block takes 32 columns, and each of its eight warps every
// eighth row; the warps' results are joined at the end.
template <class Op, class C>
__global__ void __launch_bounds__(kThreads)
    reduce_columns(Scattered<C> x, Space<2> kept, int64_t segments, int64_t segment, Result<typename WideOf<C>::type> result) {
  using W = typename WideOf<C>::type;
  SHARED(W, shared, [kBlockWarps][33]);
  const int column = int(threadIdx.x) % 32, lane_row = int(threadIdx.x) / 32;
  const int64_t column_blocks = (kept.numel + 31) / 32;
  for (int64_t task = blockIdx.x; task < column_blocks * segments; task += gridDim.x) {
    const int64_t s = task % segments, o = task / segments * 32 + column;
    const int64_t begin = s * segment, end = begin + segment < result.count ? begin + segment : result.count;
    int64_t at[2] = {0, 0};
    C partial = Op::template identity<C>();
    if (o < kept.numel) {
      kept.offsets(o, at);
      for (int64_t i = begin + lane_row; i < end; i += kBlockWarps) {
        C v[1];
        x.load(at[1], i, v);
        partial = Op::join(partial, Op::first(v[0]));
      }
    }
    __syncthreads();  // waits until the last task's values were read
    shared[lane_row][column] = W(partial);
    __syncthreads();
    if (lane_row != 0 || o >= kept.numel) continue;
    W joined = shared[0][column];
    for (int r = 1; r < kBlockWarps; ++r) joined = Op::join(joined, shared[r][column]);
    result.put(o, s, at[0], joined);
  }
}

// Does the same for a dense matrix [count, outputs] in packs: bias gradients. Eight lanes take the packs of 128 neighbouring bytes,
// and the block's 32 such octets every 32nd row. walk(first, end, column, add) calls add(v) for the packs of a thread's rows.
inline constexpr int kOctet = 8, kColumnRows = kThreads / kOctet;
template <class Op, int kPack, class Walk>
__device__ inline void reduce_pack_columns(double (*shared)[kOctet * kPack], const Space<2>& kept, int64_t segments,
                                           int64_t segment, const Result<double>& result, const Walk& walk) {
  constexpr int kWidth = kOctet * kPack;
  const int lane = int(threadIdx.x) % 32, octet = int(threadIdx.x) / kOctet, first = lane % kOctet * kPack;
  const int64_t column_blocks = (result.outputs + kWidth - 1) / kWidth;
  for (int64_t task = blockIdx.x; task < column_blocks * segments; task += gridDim.x) {
    const int64_t s = task % segments, from = task / segments * kWidth, o = from + first;
    const int64_t begin = s * segment, end = begin + segment < result.count ? begin + segment : result.count;
    float partial[kPack];
#pragma unroll
    for (int j = 0; j < kPack; ++j) partial[j] = Op::template identity<float>();
    const auto add = [&](const float (&v)[kPack]) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) partial[j] = Op::join(partial[j], Op::first(v[j]));
    };
    if (o < result.outputs) walk(begin + octet, end, o, add);  // outputs are whole packs
    __syncthreads();  // waits until the last task's values were read
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      double joined = double(partial[j]);
      for (int bits = kOctet; bits < 32; bits *= 2) joined = Op::join(joined, __shfl_xor_sync(kFullMask, joined, bits));
      if (lane < kOctet) shared[threadIdx.x / 32][first + j] = joined;
    }
    __syncthreads();
    const int64_t own_output = from + int64_t(threadIdx.x);
    if (int(threadIdx.x) >= kWidth || own_output >= result.outputs) continue;
    double joined = shared[0][threadIdx.x];
    for (int w = 1; w < kBlockWarps; ++w) joined = Op::join(joined, shared[w][threadIdx.x]);
    int64_t at[2];
    kept.offsets(own_output, at);
    result.put(own_output, s, at[0], joined);
  }
}

// x: rows `pitch` apart that are aligned to 16 bytes.
template <class Op, class T>
__global__ void __launch_bounds__(kThreads)
    reduce_packed_columns(const T* x, int64_t pitch, Space<2> kept, int64_t segments, int64_t segment, Result<double> result) {
  constexpr int kPack = kPackOf<T>;
  SHARED(double, shared, [kBlockWarps][kOctet * kPack]);
  const auto walk = [&](int64_t first, int64_t end, int64_t column, const auto& add) {
#pragma unroll 4
    for (int64_t i = first; i < end; i += kColumnRows) {
      float v[kPack];
      load_pack(x + i * pitch + column, v);
      add(v);
    }
  };
  reduce_pack_columns<Op, kPack>(&shared[0], kept, segments, segment, result, walk);
}

// Joins the segments: one thread per output, or one block if there are many segments.
template <class Op, class W, bool Blocks>
__global__ void __launch_bounds__(kThreads) join_segments(Space<2> kept, int64_t segments, Result<W> result) {
  SHARED(W, shared, [kBlockWarps]);
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x, threads = int64_t(gridDim.x) * kThreads;
  for (int64_t o = Blocks ? blockIdx.x : thread; o < kept.numel; o += Blocks ? gridDim.x : threads) {
    W value = Op::template identity<W>();
#pragma unroll 8
    for (int64_t s = Blocks ? threadIdx.x : 0; s < segments; s += Blocks ? kThreads : 1)
      value = Op::join(value, result.partials[s * result.outputs + o]);
    if constexpr (Blocks) {
      value = block_join<Op>(value, &shared[0]);
      if (threadIdx.x != 0) continue;
    }
    int64_t at[2];
    kept.offsets(o, at);
    result.finish(at[0], value);
  }
}

// Whether an op has kernels for dense rows, and for dense columns, of floats.
template <class Op, class C>
inline constexpr bool kPackedColumns = std::is_same_v<C, float>&& std::is_same_v<Op, Sum>;
template <class Op, class C>
inline constexpr bool kPackedRows = std::is_same_v<C, float> &&
                                    (std::is_same_v<Op, Sum> || std::is_same_v<Op, Max> || std::is_same_v<Op, Min> ||
                                     std::is_same_v<Op, SumAbs> || std::is_same_v<Op, SumSquares>);

// The input of a reduction and its layout. A dimension is reduced if its size is 1 in out.
struct ReduceInput {
  Space<2> kept;     // the outputs: offsets in out and x
  Space<1> reduced;  // the elements of one output

  static ReduceInput of(const TensorView& x, const TensorView& out) {
    Shape kept_shape, reduced_shape;
    Strides kept_out, kept_in, reduced_in;
    for (int d = 0; d < x.shape.size(); ++d) {
      const bool is_reduced = out.shape[d] == 1 && x.shape[d] != 1;
      (is_reduced ? reduced_shape : kept_shape).push_back(x.shape[d]);
      (is_reduced ? reduced_in : kept_in).push_back(x.strides[d]);
      if (!is_reduced) kept_out.push_back(out.strides[d]);
    }
    return {Space<2>(kept_shape, {&kept_out, &kept_in}), Space<1>(reduced_shape, {&reduced_in})};
  }

  ReduceFacts facts(const TensorView& x) const {
    ReduceFacts f;
    f.outputs = kept.numel;
    f.length = reduced.numel;
    f.kept_dims = kept.rank;
    f.reduced_dims = reduced.rank;
    if (kept.rank > 0) f.kept_inner = kept.shape[kept.rank - 1], f.kept_step = kept.strides[1][kept.rank - 1];
    if (reduced.rank > 0) f.reduced_step = reduced.strides[0][reduced.rank - 1];
    f.pack = 16 / int64_t(size_of(x.dtype));
    for (int d = 0; d < kept.rank; ++d) f.kept_steps_are_packs = f.kept_steps_are_packs && kept.strides[1][d] % f.pack == 0;
    f.aligned = aligned16(x.data);
    return f;
  }
};

// Returns the blocks of a kernel that reduces columns in packs of T.
template <class T>
unsigned column_blocks(const ReduceInput& r, const ReducePlan& plan) {
  constexpr int64_t kWidth = kOctet * kPackOf<T>;
  return blocks_for((r.kept.numel + kWidth - 1) / kWidth * plan.cut.segments, 1);
}

template <class Op, class C>
void reduce_in_rows(const Queue& q, const ReducePlan& plan, const TensorView& x, const ReduceInput& r,
                    const Result<typename WideOf<C>::type>& to) {
  const Cut& cut = plan.cut;
  const unsigned blocks = row_blocks(r.kept.numel * cut.segments, cut.segment);
  const auto run = [&](auto elements) {
    using Elements = decltype(elements);
    const auto kernel = cut.segment <= kWarpRow ? reduce_rows<Op, Elements, 1> : reduce_rows<Op, Elements, kBlockWarps>;
    launch(kernel, blocks, kThreads, 0, q.stream, elements, r.kept, cut.segments, cut.segment, to);
  };
  if constexpr (kPackedRows<Op, C>) {
    if (plan.kernel == ReducePlan::Kernel::packed_rows &&
        for_packed_type(x.dtype, [&](auto type) { run(PackedRows<decltype(type)>(x, 1)); }))
      return;
  }
  run(Scattered<C>(x, r.reduced));
}

template <class Op, class C>
void reduce_in_columns(const Queue& q, const ReducePlan& plan, const TensorView& x, const ReduceInput& r,
                       const Result<typename WideOf<C>::type>& to) {
  const Cut& cut = plan.cut;
  if constexpr (kPackedColumns<Op, C>) {
    if (plan.kernel == ReducePlan::Kernel::packed_columns && for_packed_type(x.dtype, [&](auto type) {
          using T = decltype(type);
          launch(reduce_packed_columns<Op, T>, column_blocks<T>(r, plan), kThreads, 0, q.stream, x.as<const T>(),
                 r.reduced.strides[0][0], r.kept, cut.segments, cut.segment, to);
        }))
      return;
  }
  launch(reduce_columns<Op, C>, blocks_for((r.kept.numel + 31) / 32 * cut.segments, 1), kThreads, 0, q.stream,
         Scattered<C>(x, r.reduced), r.kept, cut.segments, cut.segment, to);
}

// Joins the segments, if there are several.
template <class Op, class W>
void join_plan(const Queue& q, const ReducePlan& plan, const ReduceInput& r, const Result<W>& result) {
  if (plan.join == ReducePlan::Join::blocks)
    launch(join_segments<Op, W, true>, blocks_for(r.kept.numel, 1), kThreads, 0, q.stream, r.kept, plan.cut.segments, result);
  else if (plan.join == ReducePlan::Join::threads)
    launch(join_segments<Op, W, false>, blocks_for(r.kept.numel, kThreads), kThreads, 0, q.stream, r.kept, plan.cut.segments,
           result);
}

template <class Op, class C>
void reduce_with(const Queue& q, bool mean, const TensorView& x, const TensorView& out) {
  using W = typename WideOf<C>::type;
  const ReduceInput r = ReduceInput::of(x, out);
  ReduceFacts facts = r.facts(x);
  const bool packable = x.dtype == DType::f16 || x.dtype == DType::bf16 || x.dtype == DType::f32;
  facts.has_packed_rows = packable && kPackedRows<Op, C>;
  facts.has_packed_columns = packable && kPackedColumns<Op, C>;
  const ReducePlan plan = plan_reduction(facts);
  Result<W> result{Operand(out), nullptr, r.kept.numel, r.reduced.numel, mean};
  if (plan.join != ReducePlan::Join::none) result.partials = reinterpret_cast<W*>(q.scratch);
  const bool columns = plan.kernel == ReducePlan::Kernel::columns || plan.kernel == ReducePlan::Kernel::packed_columns;
  columns ? reduce_in_columns<Op, C>(q, plan, x, r, result) : reduce_in_rows<Op, C>(q, plan, x, r, result);
  join_plan<Op>(q, plan, r, result);
}

template <class C>
void reduce_as(const Queue& q, Reduce op, const TensorView& x, const TensorView& out) {
  switch (op) {
    case Reduce::sum: return reduce_with<Sum, C>(q, false, x, out);
    case Reduce::mean: return reduce_with<Sum, C>(q, true, x, out);
    case Reduce::prod:  // a product may leave float's range on the way to a result inside it
      if constexpr (std::is_same_v<C, float>)
        return reduce_with<Product, double>(q, false, x, out);
      else
        return reduce_with<Product, C>(q, false, x, out);
    case Reduce::max: return reduce_with<Max, C>(q, false, x, out);
    case Reduce::min: return reduce_with<Min, C>(q, false, x, out);
    case Reduce::any: return reduce_with<Any, C>(q, false, x, out);
    case Reduce::all: return reduce_with<All, C>(q, false, x, out);
    case Reduce::sum_abs: return reduce_with<SumAbs, C>(q, false, x, out);
    case Reduce::sum_squares: return reduce_with<SumSquares, C>(q, false, x, out);
  }
}

}  // namespace halfstep::cuda
