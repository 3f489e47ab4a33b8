// SPDX-License-Identifier: Apache-2.0
// Mean and variance. As reductions are: the elements of an output are cut into segments by shape alone. Each is read once; what
// threads and segments have seen is joined in double, in order.
#include "cuda/kernels/norms.cuh"
#include "cuda/kernels/reduce.cuh"

namespace halfstep::cuda {
namespace {

struct Moments {
  double mean, squares, count;  // squares: sum (x - mean)^2

  __device__ void join(const Moments& o) {
    if (o.count == 0) return;
    const double d = o.mean - mean, n = count + o.count;
    mean = count == 0 ? o.mean : mean + d * (o.count / n);
    squares = count == 0 ? o.squares : squares + o.squares + d * d * (count * o.count / n);
    count = n;
  }
};

// Where results go: with several segments, to partials, (mean, squares) segment by segment.
struct Target {
  Operand var, mean;  // mean.data may be null
  double* partials;
  int64_t outputs, count, segments, segment;
  double correction;

  __device__ int64_t begin(int64_t s) const { return s * segment; }
  __device__ int64_t end(int64_t s) const { return (s + 1) * segment < count ? (s + 1) * segment : count; }
  __device__ void finish(const int64_t (&at)[3], const Moments& m) const {
    const double left = double(count) - correction;
    var.store_floating(at[0], m.squares / (left > 0 ? left : 0));
    if (mean.data) mean.store_floating(at[2], count > 0 ? m.mean : double(NAN));
  }
  __device__ void put(int64_t output, int64_t s, const int64_t (&at)[3], const Moments& m) const {
    if (!partials) return finish(at, m);
    partials[2 * (s * outputs + output)] = m.mean;
    partials[2 * (s * outputs + output) + 1] = m.squares;
  }
};

__device__ inline int64_t short_offset(const Space<1>& along, int64_t i) {
  int64_t at[1];
  along.short_offsets(i, at);
  return at[0];
}

// The elements of one output in packs: runs that are whole packs and begin where one may.
struct Runs {
  using Compute = float;
  Operand data;
  Space<1> along;

  Runs(const TensorView& x, const Space<1>& along) : data(x), along(along) {}
  // f(x) for this thread's packs x of [begin, end) of the output whose first is at `from`: four packs are read at a time.
  template <class Group, class F>
  __device__ void each(int64_t from, int64_t begin, int64_t end, const F& f) const {
    constexpr int kBatch = 4;
    for (int64_t i = begin + Group::rank() * kRun; i < end; i += Group::kSize * kRun * kBatch) {
      RawPack packs[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k)
        if (i + k * Group::kSize * kRun < end) load_raw(data, from + short_offset(along, i + k * Group::kSize * kRun), packs[k]);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (i + k * Group::kSize * kRun >= end) continue;
        float x[kRun];
        unpack(packs[k], data.dtype, x);
        f(x);
      }
    }
  }
};
// The same of a dense tensor, runs that begin and end anywhere: in the packs that cover them.
struct CoveredRuns {
  using Compute = float;
  Operand data;
  int64_t inner, pitch, numel;  // of a run; from one run to the next; of all memory

  CoveredRuns(const TensorView& x, const Space<1>& along)
      : data(x), inner(along.shape[along.rank - 1]), pitch(along.rank > 1 ? along.strides[0][0] : 0), numel(x.numel()) {}
  // f(x, from, to): of the pack x the elements [from, to).
  template <class Group, class F>
  __device__ void each(int64_t from, int64_t begin, int64_t end, const F& f) const {
    constexpr int kBatch = 4;
    const int64_t first = short_quotient(begin, inner), per_run = Cover<kRun>::each(inner);
    const int64_t packs = (short_quotient(end - 1, inner) + 1 - first) * per_run;
    const auto cover = [&](int64_t p) {
      const int64_t of = short_quotient(p, per_run), skip = begin - (first + of) * inner, stop = end - (first + of) * inner;
      const int64_t run = from + (first + of) * pitch;
      return Cover<kRun>(run + (skip > 0 ? skip : 0), run + (stop < inner ? stop : inner), p - of * per_run);
    };
    for (int64_t i = Group::rank(); i < packs; i += Group::kSize * kBatch) {
      RawPack raw[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const Cover<kRun> pack = cover(i + k * Group::kSize);
        if (i + k * Group::kSize < packs && pack.at + kRun <= numel) load_raw(data, pack.at, raw[k]);
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (i + k * Group::kSize >= packs) continue;
        const Cover<kRun> pack = cover(i + k * Group::kSize);
        float x[kRun];
        if (pack.at + kRun <= numel) {
          unpack(raw[k], data.dtype, x);
        } else {
#pragma unroll
          for (int j = 0; j < kRun; ++j) x[j] = j >= pack.from && j < pack.to ? data.load_floating<float>(pack.at + j) : 0.0f;
        }
        f(x, pack.from, pack.to);
      }
    }
  }
};
// The same one by one, of any floating dtype and wherever they are.
template <class C>
struct Singles {
  using Compute = C;
  Operand data;
  Space<1> along;

  Singles(const TensorView& x, const Space<1>& along) : data(x), along(along) {}
  __device__ void load(int64_t from, int64_t i, C (&x)[1]) const { x[0] = data.load_floating<C>(from + short_offset(along, i)); }
  template <class Group, class F>
  __device__ void each(int64_t from, int64_t begin, int64_t end, const F& f) const {
    Group::template each<1>(begin, end, [&](int64_t i, auto) {
      C v[1];
      load(from, i, v);
      f(v);
    });
  }
};

// kept: the outputs (offsets in var, x and mean). Task = output * segments + segment.
template <class Elements, int Warps>
__global__ void __launch_bounds__(kThreads) moments_of_rows(Elements x, Space<3> kept, Target target) {
  using Group = RowGroup<Warps>;
  SHARED(double, sums, [kBlockWarps]);
  const int64_t tasks = kept.numel * target.segments;
  for (int64_t task = Group::first_row(); task < tasks; task += Group::row_step()) {
    const int64_t output = task / target.segments, s = task % target.segments, begin = target.begin(s), end = target.end(s);
    int64_t at[3];
    kept.offsets(output, at);
    NearSums<typename Elements::Compute> seen;
    x.template each<Group>(at[1], begin, end, [&](const auto& v, auto... span) { seen.add(v, span...); });
    const double mean = Group::template join<SumJoin>(seen.total(), &sums[0]) / double(end - begin);
    const double squares = Group::template join<SumJoin>(seen.about(mean), &sums[0]);
    if (Group::rank() == 0) target.put(output, s, at, {mean, squares, double(end - begin)});
  }
}

// Kept elements lie side by side in x: 32 columns a block, its warps' rows joined at the end. From one task to the next no barrier
// is needed: between a thread's reading of either array and the next task's writing lies the other array's.
template <class C>
__global__ void __launch_bounds__(kThreads) moments_of_columns(Singles<C> x, Space<3> kept, Target target) {
  SHARED(double, sums, [kBlockWarps][33]);
  SHARED(double, squares, [kBlockWarps][33]);
  const int column = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int64_t column_blocks = (kept.numel + 31) / 32;
  for (int64_t task = blockIdx.x; task < column_blocks * target.segments; task += gridDim.x) {
    const int64_t s = task % target.segments, o = task / target.segments * 32 + column, begin = target.begin(s),
                  end = target.end(s);
    const bool inside = o < kept.numel;
    int64_t at[3] = {0, 0, 0};
    if (inside) kept.offsets(o, at);
    NearSums<C> seen;
    for (int64_t i = begin + warp; inside && i < end; i += kBlockWarps) {
      C v[1];
      x.load(at[1], i, v);
      seen.add(v);
    }
    sums[warp][column] = seen.total();
    __syncthreads();
    double mean = 0;
    for (int w = 0; w < kBlockWarps; ++w) mean += sums[w][column];
    mean /= double(end - begin);
    squares[warp][column] = seen.about(mean);
    __syncthreads();
    if (warp != 0 || !inside) continue;
    double all = 0;
    for (int w = 0; w < kBlockWarps; ++w) all += squares[w][column];
    target.put(o, s, at, {mean, all, double(end - begin)});
  }
}

// The same for a dense matrix of f16, bf16 or f32, [count, outputs] with rows `pitch` apart that begin where packs may. Eight lanes
// take the packs of 64 columns, and the block's 32 such octets every 32nd row.
__global__ void __launch_bounds__(kThreads) moments_of_packed_columns(Operand x, int64_t pitch, Space<3> kept, Target target) {
  constexpr int kWidth = kOctet * kRun, kRows = kThreads / kOctet, kBatch = 2;
  SHARED(double, sums, [kBlockWarps][kWidth]);
  SHARED(double, squares, [kBlockWarps][kWidth]);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, octet = int(threadIdx.x) / kOctet;
  const int first = lane % kOctet * kRun;
  const int64_t column_blocks = (target.outputs + kWidth - 1) / kWidth;
  for (int64_t task = blockIdx.x; task < column_blocks * target.segments; task += gridDim.x) {
    const int64_t s = task % target.segments, from = task / target.segments * kWidth, begin = target.begin(s), end = target.end(s);
    const bool inside = from + first < target.outputs;  // the outputs are a whole number of packs
    NearSums<float> seen[kRun];
    for (int64_t i = begin + octet; inside && i < end; i += kRows * kBatch) {
      RawPack packs[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k)
        if (i + k * kRows < end) load_raw(x, (i + k * kRows) * pitch + from + first, packs[k]);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (i + k * kRows >= end) continue;
        float v[kRun];
        unpack(packs[k], x.dtype, v);
#pragma unroll
        for (int j = 0; j < kRun; ++j) {
          const float one[1] = {v[j]};
          seen[j].add(one);
        }
      }
    }
    // Of the four octets of a warp, then of the warps.
    const auto join = [&](double value, double* to) {
      for (int bits = kOctet; bits < 32; bits *= 2) value += __shfl_xor_sync(kFullMask, value, bits);
      if (lane < kOctet) *to = value;
    };
    __syncthreads();  // the last task's values have been read
#pragma unroll
    for (int j = 0; j < kRun; ++j) join(seen[j].total(), &sums[warp][first + j]);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      double mean = 0;
      for (int w = 0; w < kBlockWarps; ++w) mean += sums[w][first + j];
      join(seen[j].about(mean / double(end - begin)), &squares[warp][first + j]);
    }
    __syncthreads();
    const int column = int(threadIdx.x);
    if (column >= kWidth || from + column >= target.outputs) continue;
    double mean = 0, all = 0;
    for (int w = 0; w < kBlockWarps; ++w) {
      mean += sums[w][column];
      all += squares[w][column];
    }
    int64_t at[3];
    kept.offsets(from + column, at);
    target.put(from + column, s, at, {mean / double(end - begin), all, double(end - begin)});
  }
}

// A warp an output.
__global__ void __launch_bounds__(kThreads) join_moments(Space<3> kept, Target target) {
  using Group = RowGroup<1>;
  for (int64_t o = Group::first_row(); o < kept.numel; o += Group::row_step()) {
    Moments m{0, 0, 0};
    for (int64_t s = Group::rank(); s < target.segments; s += Group::kSize) {
      const double* p = target.partials + 2 * (s * target.outputs + o);
      m.join({p[0], p[1], double(target.end(s) - target.begin(s))});
    }
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) {
      m.join({__shfl_xor_sync(kFullMask, m.mean, bits), __shfl_xor_sync(kFullMask, m.squares, bits),
              __shfl_xor_sync(kFullMask, m.count, bits)});
    }
    if (Group::rank() != 0) continue;
    int64_t at[3];
    kept.offsets(o, at);
    target.finish(at, m);
  }
}

template <class C>
void variance_as(const Queue& q, const TensorView& x, double correction, const TensorView& mean, const TensorView& var) {
  const Strides& mean_strides = mean ? mean.strides : var.strides;
  Shape kept_shape, reduced_shape;
  Strides kept_var, kept_in, kept_mean, reduced_in;
  for (int d = 0; d < x.shape.size(); ++d) {
    const bool goes = var.shape[d] == 1 && x.shape[d] != 1;
    (goes ? reduced_shape : kept_shape).push_back(x.shape[d]);
    (goes ? reduced_in : kept_in).push_back(x.strides[d]);
    if (!goes) kept_var.push_back(var.strides[d]);
    if (!goes) kept_mean.push_back(mean_strides[d]);
  }
  const Space<3> kept(kept_shape, {&kept_var, &kept_in, &kept_mean});
  const Space<1> reduced(reduced_shape, {&reduced_in});
  const int64_t kept_step = kept.rank > 0 ? kept.strides[1][kept.rank - 1] : 0;
  const int64_t reduced_step = reduced.rank > 0 ? reduced.strides[0][reduced.rank - 1] : 0;
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v; };
  const bool columns = kept.rank > 0 && reduced.rank > 0 && kept.shape[kept.rank - 1] >= 8 && reduced.numel > 1 &&
                       magnitude(kept_step) < magnitude(reduced_step);
  const bool narrow = packs_of_any(x) && x.dtype != DType::boolean;
  const bool packed_columns = columns && narrow && kept.rank == 1 && kept_step == 1 && reduced.rank == 1 &&
                              kept.numel % kRun == 0 && keeps_packs(x, reduced_step);
  bool packed_rows = !columns && narrow && reduced_step == 1 && reduced.shape[reduced.rank - 1] % kRun == 0;
  for (int d = 0; d < reduced.rank - 1; ++d) packed_rows = packed_rows && keeps_packs(x, reduced.strides[0][d]);
  for (int d = 0; d < kept.rank; ++d) packed_rows = packed_rows && keeps_packs(x, kept.strides[1][d]);
  const Cut cut(reduced.numel, 2 * kept.numel, columns ? 512 : kSegment);
  Target target{var,         mean,      cut.segments > 1 ? q.scratch : nullptr, kept.numel, reduced.numel, cut.segments,
                cut.segment, correction};
  const auto rows = [&](const auto& elements) {
    using Elements = std::decay_t<decltype(elements)>;
    const auto kernel = cut.segment <= kWarpRow ? moments_of_rows<Elements, 1> : moments_of_rows<Elements, kBlockWarps>;
    launch(kernel, row_blocks(kept.numel * cut.segments, cut.segment), kThreads, 0, q.stream, elements, kept, target);
  };
  if (packed_columns) {
    const int64_t blocks = (kept.numel + kOctet * kRun - 1) / (kOctet * kRun) * cut.segments;
    launch(moments_of_packed_columns, blocks_for(blocks, 1), kThreads, 0, q.stream, Operand(x), reduced_step, kept, target);
  } else if (columns) {
    const int64_t blocks = (kept.numel + 31) / 32 * cut.segments;
    launch(moments_of_columns<C>, blocks_for(blocks, 1), kThreads, 0, q.stream, Singles<C>(x, reduced), kept, target);
  } else if (packed_rows) {
    rows(Runs(x, reduced));
  } else if (narrow && x.is_contiguous() && reduced.rank > 0 && reduced.rank <= 2 && reduced_step == 1 &&
             reduced.shape[reduced.rank - 1] >= kRun) {
    rows(CoveredRuns(x, reduced));
  } else {
    rows(Singles<C>(x, reduced));
  }
  if (cut.segments > 1) launch(join_moments, blocks_for(kept.numel, kBlockWarps), kThreads, 0, q.stream, kept, target);
}

}  // namespace

void variance(const Queue& q, const TensorView& x, double correction, const TensorView& mean, const TensorView& var) {
  if (var.numel() == 0) return;
  x.dtype == DType::f64 ? variance_as<double>(q, x, correction, mean, var) : variance_as<float>(q, x, correction, mean, var);
}

}  // namespace halfstep::cuda
