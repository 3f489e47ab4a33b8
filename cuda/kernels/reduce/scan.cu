// SPDX-License-Identifier: Apache-2.0
// Running sums and products along one dimension: out[i] = x[0] op ... op x[i], reverse: x[i] op ... op x[n - 1]. A group of
// threads walks a row tile by tile: each thread joins its elements, the group joins the threads' results, and the tile's result is
// carried on. Few long rows are cut into segments by shape alone, and the totals of the segments are scanned first. Floats are
// joined in double.
#include "cuda/kernels/reduce/reduce.cuh"

namespace halfstep::cuda {
namespace {

constexpr int kItems = 4;           // neighbours per thread
constexpr int64_t kFewRows = 1024;  // below this number, long rows are cut into segments

template <class Op, class W, int Warps>
struct GroupScan {
  // Returns the join of all values before this thread's; `total` gets the join over the group.
  __device__ static W before(W value, W& total, W* shared) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    W upto = value;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const W other = W(__shfl_up_sync(kFullMask, upto, d));
      if (lane >= d) upto = Op::join(other, upto);
    }
    W start = W(__shfl_up_sync(kFullMask, upto, 1));
    if (lane == 0) start = Op::template identity<W>();
    total = W(__shfl_sync(kFullMask, upto, 31));
    if constexpr (Warps > 1) {
      __syncthreads();  // waits until the totals of an earlier call were read
      if (lane == 31) shared[warp] = upto;
      __syncthreads();
      W warps_before = Op::template identity<W>();
      total = Op::template identity<W>();
      for (int w = 0; w < Warps; ++w) {
        if (w == warp) warps_before = total;
        total = Op::join(total, shared[w]);
      }
      start = Op::join(warps_before, start);
    }
    return start;
  }
};

// Loads an element as C, the compute type: an operand of a floating C has a floating dtype.
template <class C>
__device__ inline C load_as(const Operand& x, int64_t i) {
  if constexpr (std::is_integral_v<C>)
    return x.load<C>(i);
  else
    return x.load_floating<C>(i);
}
template <class C, class W>
__device__ inline void store_as(const Operand& out, int64_t i, W value) {
  if constexpr (std::is_integral_v<C>)
    out.store(i, value);
  else
    out.store_floating(i, value);
}

struct Rows {
  Operand x, out;  // out.data null: compute only the totals of segments
  Space<2> rows;   // offsets of rows in x and out
  int64_t length, x_step, out_step;
  int64_t segments, segment;
  void* totals;  // W [rows, segments]: written without out; otherwise, if given, already scanned
};

// Scans segments, or only totals them: task = row * segments + segment.
template <class Op, class C, int Warps>
__global__ void __launch_bounds__(kThreads) scan_rows(Rows r) {
  using W = typename WideOf<C>::type;
  using Group = RowGroup<Warps>;
  SHARED(W, shared, [kBlockWarps]);
  W* const totals = static_cast<W*>(r.totals);
  const int64_t tasks = r.rows.numel * r.segments;
  for (int64_t task = Group::first_row(); task < tasks; task += Group::row_step()) {
    const int64_t s = task % r.segments, begin = s * r.segment;
    const int64_t end = begin + r.segment < r.length ? begin + r.segment : r.length;
    int64_t at[2];
    r.rows.offsets(task / r.segments, at);
    W carry = r.out.data && s > 0 ? totals[task - 1] : Op::template identity<W>();
    for (int64_t tile = begin; tile < end; tile += Group::kSize * kItems) {
      const int64_t first = tile + int64_t(Group::rank()) * kItems;
      W v[kItems], partial = Op::template identity<W>();
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        if (first + j < end) partial = Op::join(partial, W(load_as<C>(r.x, at[0] + (first + j) * r.x_step)));
        v[j] = partial;
      }
      W total;
      const W start = Op::join(carry, GroupScan<Op, W, Warps>::before(partial, total, &shared[0]));
      carry = Op::join(carry, total);
      if (!r.out.data) continue;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        if (first + j < end) store_as<C>(r.out, at[1] + (first + j) * r.out_step, Op::join(start, v[j]));
      }
    }
    if (!r.out.data && Group::rank() == 0) totals[task] = carry;
  }
}

// Scans rows that lie side by side, one thread per row.
template <class Op, class C>
__global__ void __launch_bounds__(kThreads) scan_columns(Rows r) {
  using W = typename WideOf<C>::type;
  const int64_t threads = int64_t(gridDim.x) * blockDim.x;
  for (int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; row < r.rows.numel; row += threads) {
    int64_t at[2];
    r.rows.offsets(row, at);
    W carry = Op::template identity<W>();
    for (int64_t i = 0; i < r.length; ++i) {
      carry = Op::join(carry, W(load_as<C>(r.x, at[0] + i * r.x_step)));
      store_as<C>(r.out, at[1] + i * r.out_step, carry);
    }
  }
}

template <class Op, class C>
void run_rows(const Queue& q, const Rows& r) {
  const auto kernel = r.segment <= kWarpRow ? scan_rows<Op, C, 1> : scan_rows<Op, C, kBlockWarps>;
  launch(kernel, row_blocks(r.rows.numel * r.segments, r.segment), kThreads, 0, q.stream, r);
}

template <class Op, class C>
void scan_as(const Queue& q, Rows r) {
  using W = typename WideOf<C>::type;
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v; };
  const Space<2>& rows = r.rows;
  const bool beside = rows.rank > 0 && magnitude(rows.strides[0][rows.rank - 1]) < magnitude(r.x_step);
  // Few long columns would use too few threads: a block takes each.
  if (r.length == 1 || (beside && (rows.numel >= kManyColumns || r.length <= kShortColumn)))
    return launch(scan_columns<Op, C>, blocks_for(rows.numel, kThreads), kThreads, 0, q.stream, r);
  const Cut cut(r.length, rows.numel, 2 * kSegment);
  if (rows.numel < kFewRows && cut.segments > 1) {
    r.segments = cut.segments;
    r.segment = cut.segment;
    r.totals = q.scratch;
    Rows totals = r;
    totals.out = Operand();
    run_rows<Op, C>(q, totals);
    // Scans the totals as separate rows, in place.
    const Shape shape{rows.numel, 1};
    const Strides strides{cut.segments, 1};
    TensorView view;
    view.data = q.scratch;
    view.dtype = std::is_same_v<W, int64_t> ? DType::i64 : DType::f64;
    run_rows<Op, W>(q, Rows{.x = view,
                            .out = view,
                            .rows = Space<2>(shape, {&strides, &strides}),
                            .length = cut.segments,
                            .x_step = 1,
                            .out_step = 1,
                            .segments = 1,
                            .segment = cut.segments,
                            .totals = nullptr});
  }
  run_rows<Op, C>(q, r);
}

// Returns a view of the same elements from last to first along dim.
TensorView backwards(TensorView v, int dim) {
  v.data = static_cast<char*>(v.data) + (v.shape[dim] - 1) * v.strides[dim] * int64_t(size_of(v.dtype));
  v.strides[dim] = -v.strides[dim];
  return v;
}

}  // namespace

void scan(const Queue& q, Scan op, const TensorView& x, int dim, bool reverse, const TensorView& out) {
  if (out.numel() == 0) return;
  if (reverse && !x.shape.empty()) return scan(q, op, backwards(x, dim), dim, false, backwards(out, dim));
  const int64_t length = row_length(x, dim);
  const Rows rows{x,
                  out,
                  Space<2>(without(x.shape, dim), {&x.strides, &out.strides}),
                  length,
                  row_stride(x, dim),
                  row_stride(out, dim),
                  1,
                  length,
                  nullptr};
  const auto run = [&](auto tag) {
    using C = decltype(tag);
    op == Scan::sum ? scan_as<Sum, C>(q, rows) : scan_as<Product, C>(q, rows);
  };
  switch (compute_of(x.dtype)) {
    case Compute::single: return run(float{});
    case Compute::wide: return run(double{});
    case Compute::integer: return run(int64_t{});
  }
}

}  // namespace halfstep::cuda
