// Reductions over any dimensions. The elements of an output are cut into segments by shape alone; a group of threads reduces a
// segment, and a second kernel joins the segments in order. Floats are added in float by each thread, in double between them.
#pragma once

#include "cuda/kernels/rows.cuh"

namespace halfstep::cuda {
inline constexpr int64_t kSegment = 32 * 256;
inline constexpr int64_t kMaxPartials = int64_t(kScratchBytes / sizeof(double));

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

// `first` maps an element before it is joined.
struct Sum : SumJoin {
  template <class W>
  __device__ static W identity() {
    return W(0);
  }
  template <class C>
  __device__ static C first(C x) {
    return x;
  }
};
struct Product : ProductJoin {
  template <class W>
  __device__ static W identity() {
    return W(1);
  }
  template <class C>
  __device__ static C first(C x) {
    return x;
  }
};
struct Max : MaxJoin {
  template <class W>
  __device__ static W identity() {
    return lowest<W>();
  }
  template <class C>
  __device__ static C first(C x) {
    return x;
  }
};
struct Min : MinJoin {
  template <class W>
  __device__ static W identity() {
    return highest<W>();
  }
  template <class C>
  __device__ static C first(C x) {
    return x;
  }
};
struct Any : MaxJoin {
  template <class W>
  __device__ static W identity() {
    return W(0);
  }
  template <class C>
  __device__ static C first(C x) {
    return x != C(0) ? C(1) : C(0);
  }
};
struct All : MinJoin {
  template <class W>
  __device__ static W identity() {
    return W(1);
  }
  template <class C>
  __device__ static C first(C x) {
    return x != C(0) ? C(1) : C(0);
  }
};

// Where results go: `mean` divides by the count; with several segments a row, to partials instead.
template <class W>
struct Result {
  Operand out;
  W* partials;    // null: straight to out
  int64_t count;  // elements a result
  bool mean;

  __device__ void finish(int64_t offset, W value) const {
    if (mean)
      out.store(offset, double(value) / double(count));
    else
      out.store(offset, value);
  }
};

// kept: the outputs (offsets in out and x); reduced: what each runs over (offsets in x). Task = output * segments + segment.
template <class Op, class C, int Warps>
__global__ void __launch_bounds__(kThreads) reduce_rows(Operand x, Space<2> kept, Space<1> reduced, int64_t segments,
                                                        int64_t segment, Result<typename WideOf<C>::type> result) {
  using W = typename WideOf<C>::type;
  using Group = RowGroup<Warps>;
  SHARED(W, shared, [kBlockWarps]);
  const int64_t tasks = kept.numel * segments;
  for (int64_t task = Group::first_row(); task < tasks; task += Group::row_step()) {
    int64_t at[2];
    kept.offsets(task / segments, at);
    const int64_t begin = task % segments * segment;
    const int64_t end = begin + segment < reduced.numel ? begin + segment : reduced.numel;
    C mine = Op::template identity<C>();
    for (int64_t i = begin + Group::rank(); i < end; i += Group::kSize) {
      mine = Op::join(mine, Op::first(x.load<C>(at[1] + reduced.offset(i))));
    }
    const W all = Group::template join<Op>(W(mine), &shared[0]);
    if (Group::rank() != 0) continue;
    if (result.partials)
      result.partials[task] = all;
    else
      result.finish(at[0], all);
  }
}

// Kept elements lie side by side in x: a thread a column, eight threads' rows joined at the end.
template <class Op, class C>
__global__ void __launch_bounds__(kThreads) reduce_columns(Operand x, Space<2> kept, Space<1> reduced, int64_t segments,
                                                           int64_t segment, Result<typename WideOf<C>::type> result) {
  using W = typename WideOf<C>::type;
  SHARED(W, shared, [kBlockWarps][33]);
  const int column = int(threadIdx.x) % 32, lane_row = int(threadIdx.x) / 32;
  const int64_t column_blocks = (kept.numel + 31) / 32;
  for (int64_t task = blockIdx.x; task < column_blocks * segments; task += gridDim.x) {
    const int64_t s = task % segments, o = task / segments * 32 + column;
    const int64_t begin = s * segment, end = begin + segment < reduced.numel ? begin + segment : reduced.numel;
    int64_t at[2] = {0, 0};
    C mine = Op::template identity<C>();
    if (o < kept.numel) {
      kept.offsets(o, at);
      for (int64_t i = begin + lane_row; i < end; i += kBlockWarps) {
        mine = Op::join(mine, Op::first(x.load<C>(at[1] + reduced.offset(i))));
      }
    }
    __syncthreads();  // the last task's values have been read
    shared[lane_row][column] = W(mine);
    __syncthreads();
    if (lane_row != 0 || o >= kept.numel) continue;
    W all = shared[0][column];
    for (int r = 1; r < kBlockWarps; ++r) all = Op::join(all, shared[r][column]);
    if (result.partials)
      result.partials[o * segments + s] = all;
    else
      result.finish(at[0], all);
  }
}

template <class Op, class W>
__global__ void __launch_bounds__(kThreads) join_segments(Space<2> kept, int64_t segments, Result<W> result) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t o = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; o < kept.numel; o += step) {
    W value = result.partials[o * segments];
    for (int64_t s = 1; s < segments; ++s) value = Op::join(value, result.partials[o * segments + s]);
    int64_t at[2];
    kept.offsets(o, at);
    result.finish(at[0], value);
  }
}

template <class Op, class C>
void reduce_with(const Queue& q, bool mean, const TensorView& x, const TensorView& out) {
  using W = typename WideOf<C>::type;
  Shape kept_shape, reduced_shape;
  Strides kept_out, kept_in, reduced_in;
  for (int d = 0; d < x.shape.size(); ++d) {
    const bool goes = out.shape[d] == 1 && x.shape[d] != 1;
    (goes ? reduced_shape : kept_shape).push_back(x.shape[d]);
    (goes ? reduced_in : kept_in).push_back(x.strides[d]);
    if (!goes) kept_out.push_back(out.strides[d]);
  }
  const Space<2> kept(kept_shape, {&kept_out, &kept_in});
  const Space<1> reduced(reduced_shape, {&reduced_in});
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v; };
  const bool columns = kept.rank > 0 && reduced.rank > 0 && kept.shape[kept.rank - 1] >= 8 && reduced.numel > 1 &&
                       magnitude(kept.strides[1][kept.rank - 1]) < magnitude(reduced.strides[0][reduced.rank - 1]);
  // Segments as long as kSegment, or longer where their results would not fit in the scratch memory.
  const int64_t wanted = columns ? (reduced.numel + 511) / 512 : (reduced.numel + kSegment - 1) / kSegment;
  const int64_t fit = kMaxPartials / (kept.numel > 0 ? kept.numel : 1);
  int64_t segments = wanted < fit ? wanted : fit;
  if (segments < 1) segments = 1;
  const int64_t segment = (reduced.numel + segments - 1) / segments;
  Result<W> result{Operand(out), segments > 1 ? reinterpret_cast<W*>(q.scratch) : nullptr, reduced.numel, mean};
  if (columns) {
    const unsigned blocks = blocks_for((kept.numel + 31) / 32 * segments, 1);
    launch(reduce_columns<Op, C>, blocks, kThreads, 0, q.stream, Operand(x), kept, reduced, segments, segment, result);
  } else {
    const unsigned blocks = row_blocks(kept.numel * segments, segment);
    const auto kernel = segment <= kWarpRow ? reduce_rows<Op, C, 1> : reduce_rows<Op, C, kBlockWarps>;
    launch(kernel, blocks, kThreads, 0, q.stream, Operand(x), kept, reduced, segments, segment, result);
  }
  if (segments > 1) launch(join_segments<Op, W>, blocks_for(kept.numel, kThreads), kThreads, 0, q.stream, kept, segments, result);
}

template <class C>
void reduce_as(const Queue& q, Reduce op, const TensorView& x, const TensorView& out) {
  switch (op) {
    case Reduce::sum: return reduce_with<Sum, C>(q, false, x, out);
    case Reduce::mean: return reduce_with<Sum, C>(q, true, x, out);
    case Reduce::prod:  // leaves float's range on the way to a result inside it
      if constexpr (std::is_same_v<C, float>)
        return reduce_with<Product, double>(q, false, x, out);
      else
        return reduce_with<Product, C>(q, false, x, out);
    case Reduce::max: return reduce_with<Max, C>(q, false, x, out);
    case Reduce::min: return reduce_with<Min, C>(q, false, x, out);
    case Reduce::any: return reduce_with<Any, C>(q, false, x, out);
    case Reduce::all: return reduce_with<All, C>(q, false, x, out);
  }
}

}  // namespace halfstep::cuda
