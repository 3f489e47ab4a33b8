// SPDX-License-Identifier: Apache-2.0
// Sums of the gradients of normalisations, for each of the `count` channels over rows and pixels: sum g, and sum g (x - mean)
// rstd. Each block adds up one segment, into [2, segments, count]; then the segments are joined in order.
#include <algorithm>

#include "cuda/kernels/norm/norms.cuh"

namespace halfstep::cuda {
namespace {

constexpr int kPack = 4;
constexpr int64_t kSegmentRows = 32;      // least rows per block
constexpr int64_t kSegmentRun = 1 << 13;  // least elements of a channel per block
constexpr int64_t kMostSegments = 64;
constexpr int kOctet = 8;                       // lanes that read a row's packs side by side
constexpr int64_t kPackedSegmentRows = 128;     // for columns in packs: least rows per block
constexpr int64_t kMostPackedBlocks = 6 * 132;  // a few per multiprocessor of a large device; more would have more sums to join

// The arguments of channel_sums (norms.cuh) for channels [first, first + count), and the number of segments.
struct Sums {
  Operand grad, x, mean, rstd;
  int64_t rows, channels, inner, stat_row, stat_div, stat_rows;
  int64_t first, count, segments;
  Operand weight, bias;
  double zero;  // stored_as_zero
};

// Loads the statistics of columns c to c + N; `base` is the number of column 0's.
template <class C, int N>
__device__ inline void load_statistics(const Operand& p, int64_t base, int64_t c, int64_t div, C otherwise, C (&v)[N]) {
  if (p.data == nullptr || div % N == 0 || div == 1) return load_parameter(p, base, c, div, otherwise, v);
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = p.load_floating<C>(base + short_quotient(c + j, div));
}

// Sets g to 0 where the ReLU's result was.
template <class C, int N>
__device__ inline void through_relu(const C (&x)[N], const C (&mean)[N], const C (&rstd)[N], const C (&w)[N], const C (&b)[N],
                                    C zero, C (&g)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (normalized(x[j], mean[j], rstd[j] * w[j], b[j]) <= zero) g[j] = 0;
  }
}

// Adds g and g (x - mean) rstd to the sums of N columns.
template <class C, int N>
__device__ inline void add(const C (&g)[N], const C (&x)[N], const C (&mean)[N], const C (&rstd)[N], C (&plain)[N],
                           C (&scaled)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    plain[j] += g[j];
    scaled[j] += g[j] * ((x[j] - mean[j]) * rstd[j]);
  }
}

// Least number of blocks per multiprocessor: without it the compiler limits the next two kernels to few registers, to run more
// blocks, and spills some values to local memory.
constexpr int kColumnBlocks = 3, kRunBlocks = 4;

// inner = 1: a lane has N columns, and a warp every kBlockWarps-th row of the segment. partial: [2, segments, count].
template <class C, int N, bool Relu>
__global__ void __launch_bounds__(kThreads, kColumnBlocks) column_kernel(Sums s, C* partial) {
  constexpr int kTile = 32 * N;
  SHARED(C, shared, [kBlockWarps][2][kTile]);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int64_t tiles = (s.count + kTile - 1) / kTile, part = (s.rows + s.segments - 1) / s.segments;
  for (int64_t task = blockIdx.x; task < tiles * s.segments; task += gridDim.x) {
    const int64_t segment = task / tiles, tile = task % tiles * kTile, column = tile + lane * N;
    const int64_t end = (segment + 1) * part < s.rows ? (segment + 1) * part : s.rows;
    C plain[N] = {}, scaled[N] = {};
    if (column < s.count) {
      const int64_t c = s.first + column;
      for (int64_t r = segment * part + warp; r < end; r += kBlockWarps) {
        C g[N], x[N], mean[N], rstd[N];
        load_some(s.grad, r * s.channels + c, g);
        load_some(s.x, r * s.channels + c, x);
        const int64_t base = short_quotient(r, s.stat_rows) * s.stat_row;
        load_statistics(s.mean, base, c, s.stat_div, C(0), mean);
        load_statistics(s.rstd, base, c, s.stat_div, C(1), rstd);
        if constexpr (Relu) {
          C w[N], b[N];
          load_parameter(s.weight, 0, c, 1, C(1), w);
          load_parameter(s.bias, 0, c, 1, C(0), b);
          through_relu(x, mean, rstd, w, b, C(s.zero), g);
        }
        add(g, x, mean, rstd, plain, scaled);
      }
    }
    __syncthreads();  // waits until the last task's sums were read
#pragma unroll
    for (int j = 0; j < N; ++j) {
      shared[warp][0][lane * N + j] = plain[j];
      shared[warp][1][lane * N + j] = scaled[j];
    }
    __syncthreads();
    for (int i = int(threadIdx.x); i < 2 * kTile; i += kThreads) {
      const int which = i / kTile, k = i % kTile;
      C sum = 0;
      for (int w = 0; w < kBlockWarps; ++w) sum += shared[w][which][k];
      if (tile + k < s.count) partial[(which * s.segments + segment) * s.count + tile + k] = sum;
    }
  }
}

// Does the same for columns in packs of f16, bf16 or f32, with the statistics of their channel: the backward of batch
// normalisation in channels_last. Eight lanes take the packs of 64 columns, and the block's 32 such octets every 32nd row. All
// packs of a round are read before the first is used, so that the reads overlap. A sum of g (x - mean) is multiplied by rstd at
// the end.
template <bool Relu>
__global__ void __launch_bounds__(kThreads) packed_column_kernel(Sums s, float* partial) {
  constexpr int kWidth = kOctet * kRun, kRows = kThreads / kOctet, kBatch = 2;
  SHARED(float, shared, [kBlockWarps][2][kWidth]);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, octet = int(threadIdx.x) / kOctet;
  const int own = lane % kOctet * kRun;
  const float zero = float(s.zero);
  const int64_t tiles = (s.count + kWidth - 1) / kWidth, part = (s.rows + s.segments - 1) / s.segments;
  for (int64_t task = blockIdx.x; task < tiles * s.segments; task += gridDim.x) {
    const int64_t segment = task / tiles, tile = task % tiles * kWidth, c = s.first + tile + own;
    const int64_t end = (segment + 1) * part < s.rows ? (segment + 1) * part : s.rows;
    float plain[kRun] = {}, scaled[kRun] = {};
    if (tile + own < s.count) {  // whole packs
      float mean[kRun], scale[kRun], b[kRun];
      load_parameter(s.mean, 0, c, 1, 0.0f, mean);
      if constexpr (Relu) {
        float w[kRun];
        load_parameter(s.rstd, 0, c, 1, 1.0f, scale);
        load_parameter(s.weight, 0, c, 1, 1.0f, w);
        load_parameter(s.bias, 0, c, 1, 0.0f, b);
#pragma unroll
        for (int j = 0; j < kRun; ++j) scale[j] *= w[j];
      }
      for (int64_t r = segment * part + octet; r < end; r += kRows * kBatch) {
        RawPack grads[kBatch], inputs[kBatch];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          if (r + k * kRows >= end) continue;
          load_raw(s.grad, (r + k * kRows) * s.channels + c, grads[k]);
          load_raw(s.x, (r + k * kRows) * s.channels + c, inputs[k]);
        }
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          if (r + k * kRows >= end) continue;
          float g[kRun], x[kRun];
          unpack(grads[k], s.grad.dtype, g);
          unpack(inputs[k], s.x.dtype, x);
#pragma unroll
          for (int j = 0; j < kRun; ++j) {
            if (Relu && normalized(x[j], mean[j], scale[j], b[j]) <= zero) g[j] = 0;
            plain[j] += g[j];
            scaled[j] += g[j] * (x[j] - mean[j]);
          }
        }
      }
    }
    // Joins the four octets of a warp, then the warps.
    __syncthreads();  // waits until the last task's sums were read
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      for (int bits = kOctet; bits < 32; bits *= 2) {
        plain[j] += __shfl_xor_sync(kFullMask, plain[j], bits);
        scaled[j] += __shfl_xor_sync(kFullMask, scaled[j], bits);
      }
      if (lane < kOctet) shared[warp][0][own + j] = plain[j], shared[warp][1][own + j] = scaled[j];
    }
    __syncthreads();
    const int which = int(threadIdx.x) / kWidth, column = int(threadIdx.x) % kWidth;
    if (which >= 2 || tile + column >= s.count) continue;
    float sum = 0;
    for (int w = 0; w < kBlockWarps; ++w) sum += shared[w][which][column];
    if (which == 1) sum *= s.rstd.load_floating<float>(s.first + tile + column);
    partial[(which * s.segments + segment) * s.count + tile + column] = sum;
  }
}

// A block has a segment of a channel's runs, in the packs that cover them.
template <class C, int N, bool Relu>
__global__ void __launch_bounds__(kThreads, kRunBlocks) run_kernel(Sums s, C* partial) {
  SHARED(double, sums, [kBlockWarps]);
  const int64_t per_run = Cover<N>::packs_of_run(s.inner), packs = s.rows * per_run, part = (packs + s.segments - 1) / s.segments;
  const int64_t numel = s.rows * s.channels * s.inner;
  for (int64_t task = blockIdx.x; task < s.count * s.segments; task += gridDim.x) {
    const int64_t segment = task / s.count, k = task % s.count, c = s.first + k;
    const int64_t end = (segment + 1) * part < packs ? (segment + 1) * part : packs;
    C plain[N] = {}, scaled[N] = {};
    for (int64_t p = segment * part + threadIdx.x; p < end; p += kThreads) {
      const int64_t row = short_quotient(p, per_run), run = (row * s.channels + c) * s.inner;
      const Cover<N> pack(run, run + s.inner, p - row * per_run);
      C g[N] = {}, x[N] = {}, mean[N], rstd[N];
      if (N == 1 || pack.first + N <= numel) {
        load_some(s.grad, pack.first, g);
        load_some(s.x, pack.first, x);
      } else {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          if (j < pack.from || j >= pack.to) continue;
          g[j] = s.grad.load_floating<C>(pack.first + j);
          x[j] = s.x.load_floating<C>(pack.first + j);
        }
      }
      const int64_t stat = row * s.stat_row + short_quotient(c, s.stat_div);
      mean[0] = s.mean.data != nullptr ? s.mean.load_floating<C>(stat) : C(0);
      rstd[0] = s.rstd.load_floating<C>(stat);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        mean[j] = mean[0], rstd[j] = rstd[0];
        if (N > 1 && (j < pack.from || j >= pack.to)) g[j] = 0, x[j] = mean[0];
      }
      if constexpr (Relu) {
        C w[N], b[N];
        load_parameter(s.weight, 0, c * s.inner, s.inner, C(1), w);
        load_parameter(s.bias, 0, c * s.inner, s.inner, C(0), b);
        through_relu(x, mean, rstd, w, b, C(s.zero), g);
      }
      add(g, x, mean, rstd, plain, scaled);
    }
    double total[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < N; ++j) {
      total[0] += double(plain[j]);
      total[1] += double(scaled[j]);
    }
    for (int which = 0; which < 2; ++which) {
      const double sum = block_join<SumJoin>(total[which], &sums[0]);
      if (threadIdx.x == 0) partial[(which * s.segments + segment) * s.count + k] = C(sum);
    }
  }
}

// Joins eight sums per block, so that eight lanes read a whole sector, with an octet for every 32nd segment. outputs: two or three
// times `count`, each of a kind. totals: the sums divided by `number`, the elements of a channel.
template <class C>
__global__ void __launch_bounds__(kThreads) join_kernel(const C* partial, int64_t segments, int64_t first, int64_t count,
                                                        int64_t outputs, Operand plain, Operand scaled, Operand more, C* totals,
                                                        double number) {
  constexpr int kRows = kThreads / kOctet;
  SHARED(double, sums, [kBlockWarps][kOctet]);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  for (int64_t task = blockIdx.x; task * kOctet < outputs; task += gridDim.x) {
    const int64_t i = task * kOctet + lane % kOctet, which = i < count ? 0 : i < 2 * count ? 1 : 2, k = i - which * count;
    double sum = 0;
    if (i < outputs) {
#pragma unroll 4
      for (int64_t p = int(threadIdx.x) / kOctet; p < segments; p += kRows)
        sum += double(partial[(which * segments + p) * count + k]);
    }
    for (int bits = kOctet; bits < 32; bits *= 2) sum += __shfl_xor_sync(kFullMask, sum, bits);
    __syncthreads();  // waits until the last task's sums were read
    if (lane < kOctet) sums[warp][lane] = sum;
    __syncthreads();
    if (int(threadIdx.x) >= kOctet || i >= outputs) continue;
    for (int w = 1; w < kBlockWarps; ++w) sum += sums[w][lane];
    if (totals != nullptr) totals[i] = C(sum / number);
    const Operand to = which == 0 ? plain : which == 1 ? scaled : more;
    if (to.data != nullptr) to.store_floating(first + k, sum);
  }
}

template <class C>
void join(const Queue& q, const C* partial, int64_t segments, int64_t first, int64_t count, const TensorView& plain,
          const TensorView& scaled, C* totals, int64_t number, const TensorView& more = {}) {
  const int64_t outputs = (more ? 3 : 2) * count;
  launch(join_kernel<C>, blocks_for(outputs, kOctet), kThreads, 0, q.stream, partial, segments, first, count, outputs,
         Operand(plain), Operand(scaled), Operand(more), totals, double(number));
}

// Computes the sums of one call of channel_sums, by columns (inner = 1) or by runs.
template <class C, int N, bool Relu>
void sum_up(const Queue& q, Sums s, const TensorView& plain, const TensorView& scaled) {
  const int64_t room = int64_t(kScratchBytes / 2 / (2 * sizeof(C))) / s.count;
  const int64_t useful = s.inner == 1 ? s.rows / kSegmentRows : s.rows * s.inner / kSegmentRun;
  s.segments = useful < 1 ? 1 : useful < kMostSegments ? useful : kMostSegments;
  if (s.segments > room) s.segments = room;
  C* partial = reinterpret_cast<C*>(q.scratch);
  if (s.inner == 1)
    launch(column_kernel<C, N, Relu>, blocks_for((s.count + 32 * N - 1) / (32 * N) * s.segments, 1), kThreads, 0, q.stream, s,
           partial);
  else
    launch(run_kernel<C, N, Relu>, blocks_for(s.count * s.segments, 1), kThreads, 0, q.stream, s, partial);
  join<C>(q, partial, s.segments, s.first, s.count, plain, scaled, reinterpret_cast<C*>(totals_of(q)), s.rows * s.inner);
}

template <bool Relu>
void sum_up_packs(const Queue& q, Sums s, const TensorView& plain, const TensorView& scaled) {
  const int64_t room = int64_t(kScratchBytes / 2 / (2 * sizeof(float))) / s.count;
  const int64_t tiles = (s.count + kOctet * kRun - 1) / (kOctet * kRun);
  s.segments = std::max<int64_t>(1, std::min({s.rows / kPackedSegmentRows, kMostPackedBlocks / tiles, room}));
  float* const partial = reinterpret_cast<float*>(q.scratch);
  launch(packed_column_kernel<Relu>, blocks_for(tiles * s.segments, 1), kThreads, 0, q.stream, s, partial);
  join<float>(q, partial, s.segments, s.first, s.count, plain, scaled, reinterpret_cast<float*>(totals_of(q)), s.rows);
}

}  // namespace

void join_channel_sums(const Queue& q, const float* partial, int64_t segments, int64_t count, const TensorView& plain,
                       const TensorView& scaled, const TensorView& more) {
  join<float>(q, partial, segments, 0, count, plain, scaled, nullptr, 1, more);
}

void channel_sums(const Queue& q, const ChannelSumArgs& s, int64_t first, int64_t count, const TensorView& plain,
                  const TensorView& scaled) {
  const Sums sums{s.grad,     s.x,         s.mean, s.rstd, s.rows, s.channels, s.inner, s.stat_row,
                  s.stat_div, s.stat_rows, first,  count,  0,      s.weight,   s.bias,  stored_as_zero(s.x.dtype)};
  const auto sum = [&](auto type, auto pack) {
    using C = decltype(type);
    s.relu ? sum_up<C, pack.value, true>(q, sums, plain, scaled) : sum_up<C, pack.value, false>(q, sums, plain, scaled);
  };
  const std::integral_constant<int, 1> one;
  if (s.x.dtype == DType::f64 || s.grad.dtype == DType::f64) return sum(double(), one);
  const bool of_channels = s.inner == 1 && s.stat_row == 0 && s.stat_div == 1;
  if (of_channels && reads_some(kRun, {&s.grad, &s.x, &s.mean, &s.rstd, &s.weight, &s.bias}, s.channels))
    return s.relu ? sum_up_packs<true>(q, sums, plain, scaled) : sum_up_packs<false>(q, sums, plain, scaled);
  const int64_t run = s.inner == 1 ? s.channels : s.inner >= kPack ? kPack : s.inner;
  const bool packed = reads_some(kPack, {&s.grad, &s.x, &s.mean, &s.rstd, &s.weight, &s.bias}, run);
  packed ? sum(float(), std::integral_constant<int, kPack>()) : sum(float(), one);
}

}  // namespace halfstep::cuda
