// SPDX-License-Identifier: Apache-2.0
// mean = sum x / n, var = sum (x - mean)^2 / max(0, n - correction) over the n reduced elements of an output, which are cut into
// segments by shape alone. Each is read once. The moments of threads and segments are joined in double, in order.
#include <algorithm>

#include "cuda/kernels/norm/norms.cuh"
#include "cuda/kernels/reduce/reduce.cuh"

namespace halfstep::cuda {
namespace {

// Most blocks for packed columns: a few for each multiprocessor of a large device. More would have more moments to join.
constexpr int64_t kPackedBlocks = 6 * 132;

struct Moments {
  double mean, squares;  // squares: sum (x - mean)^2
};

// The destination of results: with several segments they go to partials, the means segment by segment and then the squares.
struct Target {
  Operand var, mean;  // mean.data may be null
  double* partials;
  int64_t outputs, count, segments, segment;
  double correction;

  __device__ int64_t begin(int64_t s) const { return s * segment; }
  __device__ int64_t end(int64_t s) const { return (s + 1) * segment < count ? (s + 1) * segment : count; }
  __device__ double& mean_of(int64_t output, int64_t s) const { return partials[s * outputs + output]; }
  __device__ double& squares_of(int64_t output, int64_t s) const { return partials[(segments + s) * outputs + output]; }
  __device__ void finish(const int64_t (&at)[3], const Moments& m) const {
    const double left = double(count) - correction;
    var.store_floating(at[0], m.squares / (left > 0 ? left : 0));
    if (mean.data) mean.store_floating(at[2], count > 0 ? m.mean : double(NAN));
  }
  __device__ void put(int64_t output, int64_t s, const int64_t (&at)[3], const Moments& m) const {
    if (!partials) return finish(at, m);
    mean_of(output, s) = m.mean;
    squares_of(output, s) = m.squares;
  }
};

__device__ inline int64_t short_offset(const Space<1>& along, int64_t i) {
  int64_t at[1];
  along.short_offsets(i, at);
  return at[0];
}

// The elements of one output in packs: runs of aligned whole packs.
struct Runs {
  using Compute = float;
  Operand data;
  Space<1> along;

  Runs(const TensorView& x, const Space<1>& along) : data(x), along(along) {}
  // Calls f(x) for this thread's packs x of [begin, end) of the output that begins at `from`; reads four packs at a time.
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
// The same for a dense tensor with runs that begin and end anywhere, in the packs that cover them.
struct CoveredRuns {
  using Compute = float;
  Operand data;
  int64_t inner, pitch, numel;  // length of a run; distance between runs; elements of the memory

  CoveredRuns(const TensorView& x, const Space<1>& along)
      : data(x), inner(along.shape[along.rank - 1]), pitch(along.rank > 1 ? along.strides[0][0] : 0), numel(x.numel()) {}
  // Calls f(x, from, to) for the elements [from, to) of each pack x.
  template <class Group, class F>
  __device__ void each(int64_t from, int64_t begin, int64_t end, const F& f) const {
    constexpr int kBatch = 4;
    const int64_t first = short_quotient(begin, inner), per_run = Cover<kRun>::packs_of_run(inner);
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
        if (i + k * Group::kSize < packs && pack.first + kRun <= numel) load_raw(data, pack.first, raw[k]);
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (i + k * Group::kSize >= packs) continue;
        const Cover<kRun> pack = cover(i + k * Group::kSize);
        float x[kRun];
        if (pack.first + kRun <= numel) {
          unpack(raw[k], data.dtype, x);
        } else {
#pragma unroll
          for (int j = 0; j < kRun; ++j) x[j] = j >= pack.from && j < pack.to ? data.load_floating<float>(pack.first + j) : 0.0f;
        }
        f(x, pack.from, pack.to);
      }
    }
  }
};
// The same one by one, for any floating dtype and strides.
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

// Computes the moments of segments, each by a group of threads: task = output * segments + segment. kept: the outputs (offsets in
// var, x and mean).
template <class Elements, int Warps>
__global__ void __launch_bounds__(kThreads) moments_of_rows(Elements x, Space<3> kept, Target target) {
  using Group = RowGroup<Warps>;
  SHARED(double, sums, [kBlockWarps]);
  const int64_t tasks = kept.numel * target.segments;
  for (int64_t task = Group::first_row(); task < tasks; task += Group::row_step()) {
    const int64_t output = task / target.segments, s = task % target.segments, begin = target.begin(s), end = target.end(s);
    int64_t at[3];
    kept.offsets(output, at);
    NearSums<typename Elements::Compute> near_sums;
    x.template each<Group>(at[1], begin, end, [&](const auto& v, auto... span) { near_sums.add(v, span...); });
    const double mean = Group::template join<SumJoin>(near_sums.total(), &sums[0]) / double(end - begin);
    const double squares = Group::template join<SumJoin>(near_sums.squares_about(mean), &sums[0]);
    if (Group::rank() == 0) target.put(output, s, at, {mean, squares});
  }
}

// Computes the moments of segments of outputs whose elements lie side by side in x: a block takes 32 columns, whose warps' rows are
// joined at the end. Tasks need no barrier between them: between a thread's reading of one array and the next task's writing, the
// other array is processed.
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
    NearSums<C> near_sums;
    for (int64_t i = begin + warp; inside && i < end; i += kBlockWarps) {
      C v[1];
      x.load(at[1], i, v);
      near_sums.add(v);
    }
    sums[warp][column] = near_sums.total();
    __syncthreads();
    double mean = 0;
    for (int w = 0; w < kBlockWarps; ++w) mean += sums[w][column];
    mean /= double(end - begin);
    squares[warp][column] = near_sums.squares_about(mean);
    __syncthreads();
    if (warp != 0 || !inside) continue;
    double total = 0;
    for (int w = 0; w < kBlockWarps; ++w) total += squares[w][column];
    target.put(o, s, at, {mean, total});
  }
}

// The moments of a thread's part of neighbouring columns, a pack of each row; like NearSums.
struct NearPacks {
  float near[kRun] = {}, sum[kRun] = {}, squares[kRun] = {};
  int count = 0;

  __device__ void add(const float (&x)[kRun]) {
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      if (count == 0) near[j] = x[j];
      const float d = x[j] - near[j];
      sum[j] += d;
      squares[j] += d * d;
    }
    ++count;
  }
  __device__ NearSums<float> of_column(int j) const { return {near[j], sum[j], squares[j], count}; }
};

// Does the same for a dense matrix of f16, bf16 or f32, [count, outputs] with rows `pitch` apart that are aligned for packs. Eight
// lanes take the packs of 64 columns, and the block's 32 such octets every 32nd row. In shared memory, column first + j of lane
// first / kRun is at place j * kOctet + first / kRun, so that neighbouring lanes use neighbouring banks.
__global__ void __launch_bounds__(kThreads) moments_of_packed_columns(Operand x, int64_t pitch, Space<3> kept, Target target) {
  constexpr int kWidth = kOctet * kRun, kRows = kThreads / kOctet, kBatch = 4;
  SHARED(double, sums, [kBlockWarps][kWidth]);
  SHARED(double, squares, [kBlockWarps][kWidth]);
  SHARED(double, means, [kWidth]);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, octet = int(threadIdx.x) / kOctet;
  const int place = int(threadIdx.x), column = place % kOctet * kRun + place / kOctet;  // joined by threads below kWidth
  const int64_t column_blocks = (target.outputs + kWidth - 1) / kWidth;
  for (int64_t task = blockIdx.x; task < column_blocks * target.segments; task += gridDim.x) {
    const int64_t s = task % target.segments, from = task / target.segments * kWidth, begin = target.begin(s), end = target.end(s);
    const int64_t first = from + lane % kOctet * kRun;
    const bool inside = first < target.outputs;  // outputs are whole packs
    NearPacks near_sums;
    for (int64_t i = begin + octet; inside && i < end; i += kRows * kBatch) {
      RawPack packs[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k)
        if (i + k * kRows < end) load_raw(x, (i + k * kRows) * pitch + first, packs[k]);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (i + k * kRows >= end) continue;
        float v[kRun];
        unpack(packs[k], x.dtype, v);
        near_sums.add(v);
      }
    }
    // Joins the four octets of a warp; then one thread per column joins the warps.
    const auto join = [&](double value, double(&to)[kWidth], int j) {
      for (int bits = kOctet; bits < 32; bits *= 2) value += __shfl_xor_sync(kFullMask, value, bits);
      if (lane < kOctet) to[j * kOctet + lane] = value;
    };
    const auto joined = [&](const double(&of)[kBlockWarps][kWidth]) {
      double total = 0;
      for (int w = 0; w < kBlockWarps; ++w) total += of[w][place];
      return total;
    };
#pragma unroll
    for (int j = 0; j < kRun; ++j) join(near_sums.of_column(j).total(), sums[warp], j);
    __syncthreads();
    if (place < kWidth) means[place] = joined(sums) / double(end - begin);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kRun; ++j) join(near_sums.of_column(j).squares_about(means[j * kOctet + lane % kOctet]), squares[warp], j);
    __syncthreads();
    if (place >= kWidth || from + column >= target.outputs) continue;
    int64_t at[3];
    kept.offsets(from + column, at);
    target.put(from + column, s, at, {means[place], joined(squares)});
  }
}

// Turns a channel's moments into batch normalisation's statistics, and updates the running ones. The offset in rstd is the channel.
struct BatchStatistics {
  Operand mean, rstd, running_mean, running_var;  // the running ones may be empty
  int64_t* batches;                               // incremented by one; may be null
  double count, eps, momentum;

  __device__ void finish(const int64_t (&at)[3], const Moments& m) const {
    const double var = m.squares / count, keep = 1 - momentum;
    mean.store_floating(at[0], m.mean);
    rstd.store_floating(at[0], 1 / ::sqrt(var + eps));
    if (at[0] == 0 && batches != nullptr) ++*batches;
    if (running_mean.data == nullptr || count == 0) return;
    running_mean.store_floating(at[0], multiply_add(momentum * m.mean, keep, running_mean.load_floating<double>(at[0])));
    running_var.store_floating(
        at[0], multiply_add(momentum * (var * count / (count - 1)), keep, running_var.load_floating<double>(at[0])));
  }
};

// Joins four outputs per block, so that four lanes read a whole sector, with four lanes for every 64th of their segments. Each is
// read once: its squares, and its mean's distance from the first segment's. Result: Target or BatchStatistics.
constexpr int kJoined = 4;
template <class Result>
__global__ void __launch_bounds__(kThreads, 3) join_moments(Space<3> kept, Target target, Result result) {
  constexpr int kRows = kThreads / kJoined;
  SHARED(double, sums, [kBlockWarps][kJoined]);
  SHARED(double, squares, [kBlockWarps][kJoined]);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, column = lane % kJoined;
  for (int64_t task = blockIdx.x; task * kJoined < kept.numel; task += gridDim.x) {
    const int64_t o = task * kJoined + column;
    const double first = o < kept.numel ? target.mean_of(o, 0) : 0;
    const double near = first - first == 0 ? first : 0;  // finite
    double sum = 0, square = 0;
#pragma unroll 4
    for (int64_t s = int(threadIdx.x) / kJoined; o < kept.numel && s < target.segments; s += kRows) {
      const double n = double(target.end(s) - target.begin(s)), off = target.mean_of(o, s) - near;
      sum += n * off;
      square += target.squares_of(o, s) + n * off * off;
    }
    for (int bits = kJoined; bits < 32; bits *= 2) {
      sum += __shfl_xor_sync(kFullMask, sum, bits);
      square += __shfl_xor_sync(kFullMask, square, bits);
    }
    if (lane < kJoined) sums[warp][column] = sum, squares[warp][column] = square;
    __syncthreads();
    if (int(threadIdx.x) < kJoined && o < kept.numel) {
      sum = square = 0;
      for (int w = 0; w < kBlockWarps; ++w) sum += sums[w][column], square += squares[w][column];
      const double shift = sum / double(target.count), rest = square - sum * shift;
      int64_t at[3];
      kept.offsets(o, at);
      result.finish(at, {near + shift, rest < 0 ? 0 : rest});
    }
    __syncthreads();  // the next task writes the sums
  }
}

struct VarianceInput {
  Space<3> kept;     // the outputs: offsets in var, x and mean
  Space<1> reduced;  // the elements of one output
};

// Splits the dimensions of x: those of size 1 in var are reduced.
VarianceInput input_of(const TensorView& x, const TensorView& mean, const TensorView& var) {
  const Strides& mean_strides = mean ? mean.strides : var.strides;
  Shape kept_shape, reduced_shape;
  Strides kept_var, kept_in, kept_mean, reduced_in;
  for (int d = 0; d < x.shape.size(); ++d) {
    const bool is_reduced = var.shape[d] == 1 && x.shape[d] != 1;
    (is_reduced ? reduced_shape : kept_shape).push_back(x.shape[d]);
    (is_reduced ? reduced_in : kept_in).push_back(x.strides[d]);
    if (!is_reduced) kept_var.push_back(var.strides[d]);
    if (!is_reduced) kept_mean.push_back(mean_strides[d]);
  }
  return {Space<3>(kept_shape, {&kept_var, &kept_in, &kept_mean}), Space<1>(reduced_shape, {&reduced_in})};
}

// Computes mean and var, or with `statistics` those of batch normalisation, by the kernels that fit the layout.
template <class C>
void variance_as(const Queue& q, const TensorView& x, double correction, const TensorView& mean, const TensorView& var,
                 const BatchStatistics* statistics) {
  const VarianceInput input = input_of(x, mean, var);
  const Space<3>& kept = input.kept;
  const Space<1>& reduced = input.reduced;
  const int64_t kept_step = kept.rank > 0 ? kept.strides[1][kept.rank - 1] : 0;
  const int64_t reduced_step = reduced.rank > 0 ? reduced.strides[0][reduced.rank - 1] : 0;
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v; };
  const bool columns = kept.rank > 0 && reduced.rank > 0 && kept.shape[kept.rank - 1] >= kLeastColumns && reduced.numel > 1 &&
                       magnitude(kept_step) < magnitude(reduced_step);
  const bool narrow = packs_of_any(x) && x.dtype != DType::boolean;
  const bool packed_columns = columns && narrow && kept.rank == 1 && kept_step == 1 && reduced.rank == 1 &&
                              kept.numel % kRun == 0 && keeps_packs(x, reduced_step);
  bool packed_rows = !columns && narrow && reduced_step == 1 && reduced.shape[reduced.rank - 1] % kRun == 0;
  for (int d = 0; d < reduced.rank - 1; ++d) packed_rows = packed_rows && keeps_packs(x, reduced.strides[0][d]);
  for (int d = 0; d < kept.rank; ++d) packed_rows = packed_rows && keeps_packs(x, kept.strides[1][d]);
  const int64_t tiles = (kept.numel + kOctet * kRun - 1) / (kOctet * kRun);
  const int64_t wanted = packed_columns ? std::max(kPackedSegment, reduced.numel * tiles / kPackedBlocks)
                         : columns      ? kColumnSegment
                                        : kSegment;
  const Cut cut(reduced.numel, 2 * kept.numel, wanted);
  const bool joins = cut.segments > 1 || statistics;
  Target target{var, mean, joins ? q.scratch : nullptr, kept.numel, reduced.numel, cut.segments, cut.segment, correction};
  const auto rows = [&](const auto& elements) {
    using Elements = std::decay_t<decltype(elements)>;
    const auto kernel = cut.segment <= kWarpRow ? moments_of_rows<Elements, 1> : moments_of_rows<Elements, kBlockWarps>;
    launch(kernel, row_blocks(kept.numel * cut.segments, cut.segment), kThreads, 0, q.stream, elements, kept, target);
  };
  if (packed_columns) {
    launch(moments_of_packed_columns, blocks_for(tiles * cut.segments, 1), kThreads, 0, q.stream, Operand(x), reduced_step, kept,
           target);
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
  if (statistics)
    launch(join_moments<BatchStatistics>, blocks_for(kept.numel, kJoined), kThreads, 0, q.stream, kept, target, *statistics);
  else if (joins)
    launch(join_moments<Target>, blocks_for(kept.numel, kJoined), kThreads, 0, q.stream, kept, target, target);
}

void variance_of(const Queue& q, const TensorView& x, double correction, const TensorView& mean, const TensorView& var,
                 const BatchStatistics* statistics) {
  const auto find = x.dtype == DType::f64 ? variance_as<double> : variance_as<float>;
  if (var.numel() > 0) find(q, x, correction, mean, var, statistics);
}

}  // namespace

void variance(const Queue& q, const TensorView& x, double correction, const TensorView& mean, const TensorView& var) {
  variance_of(q, x, correction, mean, var, nullptr);
}

void batch_statistics(const Queue& q, const BatchNormArgs& a, const TensorView& x, const TensorView& running_mean,
                      const TensorView& running_var, const TensorView& batches, const TensorView& mean, const TensorView& rstd) {
  for (int64_t first = 0; first < a.channels; first += kChannelsAtOnce) {
    const auto part = [&](TensorView v, int64_t batch, int64_t inner) {
      if (v.data) v.data = static_cast<char*>(v.data) + size_t(first * inner) * size_of(v.dtype);
      v.shape = {batch, std::min(kChannelsAtOnce, a.channels - first), inner};
      v.strides = {a.channels * inner, inner, 1};
      return v;
    };
    const TensorView part_mean = part(mean, 1, 1), part_rstd = part(rstd, 1, 1);
    int64_t* const counted = first == 0 ? batches.as<int64_t>() : nullptr;
    const double n = double(a.batch * a.inner);
    const BatchStatistics to{part_mean, part_rstd, part(running_mean, 1, 1), part(running_var, 1, 1), counted, n,
                             a.eps,     a.momentum};
    variance_of(q, part(x, a.batch, a.inner), 0, part_mean, part_rstd, &to);
  }
}

}  // namespace halfstep::cuda
