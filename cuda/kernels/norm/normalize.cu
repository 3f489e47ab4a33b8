// SPDX-License-Identifier: Apache-2.0
// Layer, RMS and group normalisation of x [R, G, C, L]: R rows of G groups, C channels of L pixels each; n = C L elements share
// one mean and variance, and each (group, channel) has a weight w and a bias b.
//   forward   mean = sum x / n (RMS: 0), rstd = 1 / sqrt(sum (x - mean)^2 / n + eps), xhat = (x - mean) rstd, y = xhat w + b
//   backward  dx = rstd (g w - sum(g w) / n - xhat sum(g w xhat) / n), for RMS without the first sum
//             dw = sum g xhat, db = sum g over rows and pixels
// A warp processes a short run of n elements, and a block a long one. A run is read twice, the second time from the cache. The
// backward reads runs that fit into registers once, for all gradients. x may be the sum of two tensors, which the same kernel
// writes, and dx may be added to a gradient that x has from elsewhere; its columns are summed for the bias of the layer that
// computed x.
#include <utility>

#include "cuda/kernels/norm/norms.cuh"

namespace halfstep::cuda {
namespace {

constexpr int kPack = 8;

// x [slices, length]: a slice has the elements that share a mean. Backward: bias is the gradient of y, and out that of x.
struct NormOperands {
  Operand x, weight, bias, out, mean, rstd;
  int64_t slices, length, groups, channels, inner;
  double eps;
  bool centered;
};

// Mean and squared distances of a thread's elements.
template <class C>
struct ThreadMoments {
  C mean = 0, squares = 0, count = 0;

  template <int N>
  __device__ void add(const C (&x)[N], bool centered) {
    C middle = 0, spread = 0;
    if (centered) {
#pragma unroll
      for (int j = 0; j < N; ++j) middle += x[j];
      middle /= C(N);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) spread += (x[j] - middle) * (x[j] - middle);
    const C d = middle - mean, share = C(N) / (count + C(N));
    squares += spread + d * d * count * share;
    mean += d * share;
    count += C(N);
  }
};

// Computes the rows of normalize. read(i, x): loads elements of x for the statistics; later they are loaded from a.x.
template <class C, int N, int Warps, class Read>
__device__ inline void normalize_rows(const NormOperands& a, const Read& read) {
  using Group = RowGroup<Warps>;
  SHARED(double, sums, [kBlockWarps]);
  for (int64_t k = Group::first_row(); k < a.slices; k += Group::row_step()) {
    const int64_t row = k * a.length, base = k % a.groups * a.channels;
    ThreadMoments<C> moments;
    Group::template each<N>(0, a.length, [&](int64_t i, auto size) {
      C x[size.value];
      read(row + i, x);
      moments.add(x, a.centered);
    });
    const double n = double(a.length);
    const double mean = Group::template join<SumJoin>(double(moments.mean) * double(moments.count), &sums[0]) / n;
    const double off = double(moments.mean) - mean;
    const double squares = Group::template join<SumJoin>(double(moments.squares) + double(moments.count) * off * off, &sums[0]);
    const C m = C(mean), r = C(1 / ::sqrt(squares / n + a.eps));
    if (Group::rank() == 0) {
      if (a.mean.data != nullptr) a.mean.store_floating(k, m);
      a.rstd.store_floating(k, r);
    }
    Group::template each<N>(0, a.length, [&](int64_t i, auto size) {
      C x[size.value], w[size.value], b[size.value];
      load_some(a.x, row + i, x);
      load_parameter(a.weight, base, i, a.inner, C(1), w);
      load_parameter(a.bias, base, i, a.inner, C(0), b);
#pragma unroll
      for (int j = 0; j < size.value; ++j) x[j] = (x[j] - m) * r * w[j] + b[j];
      store_some(a.out, row + i, x);
    });
  }
}

template <class C, int N, int Warps>
__global__ void __launch_bounds__(kThreads) normalize_kernel(NormOperands a) {
  normalize_rows<C, N, Warps>(a, [&](int64_t i, auto& x) { load_some(a.x, i, x); });
}

// Does the same for x = left + right, which it writes.
template <class C, int N, int Warps>
__global__ void __launch_bounds__(kThreads) add_normalize_kernel(NormOperands a, Operand left, Operand right) {
  normalize_rows<C, N, Warps>(a, [&](int64_t i, auto& x) {
    std::remove_reference_t<decltype(x)> y;
    load_some(left, i, x);
    load_some(right, i, y);
#pragma unroll
    for (int j = 0; j < length_of(y); ++j) x[j] += y[j];
    round_to(a.x.dtype, x);
    store_some(a.x, i, x);
  });
}

// Where the gradient of a sum comes from besides its norm, and where it goes besides dx; either may be empty.
struct ResidualOperands {
  Operand residual, copy;
};

// Stores elements of dx, to which the residual's gradient is added after they were rounded; d is then what was added and stored.
template <class C, int N>
__device__ inline void store_gradient(const NormOperands& a, const ResidualOperands& r, int64_t i, C (&d)[N]) {
  if (r.residual.data != nullptr) {
    C more[N];
    load_some(r.residual, i, more);
    round_to(a.out.dtype, d);
#pragma unroll
    for (int j = 0; j < N; ++j) d[j] = rounded_sum(d[j], more[j]);
  }
  store_some(a.out, i, d);
  if (r.copy.data != nullptr) store_some(r.copy, i, d);
}

// Computes dx = rstd (g w - mean(g w) - xhat mean(g w xhat)) and stores it with store(i, dx); bias: g.
template <class C, int N, int Warps, class Store>
__device__ inline void gradient_rows(const NormOperands& a, const Store& store) {
  using Group = RowGroup<Warps>;
  SHARED(double, sums, [kBlockWarps]);
  for (int64_t k = Group::first_row(); k < a.slices; k += Group::row_step()) {
    const int64_t row = k * a.length, base = k % a.groups * a.channels;
    const C m = a.mean.data != nullptr ? a.mean.load_floating<C>(k) : C(0), r = a.rstd.load_floating<C>(k);
    C first = 0, second = 0;
    Group::template each<N>(0, a.length, [&](int64_t i, auto size) {
      C g[size.value], x[size.value], w[size.value];
      load_some(a.bias, row + i, g);
      load_some(a.x, row + i, x);
      load_parameter(a.weight, base, i, a.inner, C(1), w);
#pragma unroll
      for (int j = 0; j < size.value; ++j) {
        first += g[j] * w[j];
        second += g[j] * w[j] * ((x[j] - m) * r);
      }
    });
    const double n = double(a.length);
    const C mean_gw = a.centered ? C(Group::template join<SumJoin>(double(first), &sums[0]) / n) : C(0);
    const C mean_gwx = C(Group::template join<SumJoin>(double(second), &sums[0]) / n);
    Group::template each<N>(0, a.length, [&](int64_t i, auto size) {
      C g[size.value], x[size.value], w[size.value];
      load_some(a.bias, row + i, g);
      load_some(a.x, row + i, x);
      load_parameter(a.weight, base, i, a.inner, C(1), w);
#pragma unroll
      for (int j = 0; j < size.value; ++j) g[j] = r * (g[j] * w[j] - mean_gw - (x[j] - m) * r * mean_gwx);
      store(row + i, g);
    });
  }
}

template <class C, int N, int Warps>
__global__ void __launch_bounds__(kThreads) backward_kernel(NormOperands a) {
  gradient_rows<C, N, Warps>(a, [&](int64_t i, auto& d) { store_some(a.out, i, d); });
}
template <class C, int N, int Warps>
__global__ void __launch_bounds__(kThreads) add_backward_kernel(NormOperands a, ResidualOperands r) {
  gradient_rows<C, N, Warps>(a, [&](int64_t i, auto& d) { store_gradient(a, r, i, d); });
}

// Writes the sums of a block's threads for their columns of a row of `length`, summed over the block's warps if each of these had
// its own rows. The columns of one sum lie `step` behind those of the sum before.
template <int Warps, int Sums>
__device__ inline void store_columns(const float (&sums)[Sums][kHeldPacks][kRun], int64_t length, float* to, int64_t step) {
  using Group = RowGroup<Warps>;
  using Held = HeldRows<RunRows, Group, 2>;
  if constexpr (Warps > 1) {
#pragma unroll
    for (int p = 0; p < kHeldPacks; ++p) {
      if (Held::pack_offset(p) >= length) continue;
#pragma unroll
      for (int s = 0; s < Sums; ++s) store_pack(to + s * step + Held::pack_offset(p), sums[s][p]);
    }
  } else {
    SHARED(float, shared, [Sums][kBlockWarps][32 * kRun]);
#pragma unroll
    for (int p = 0; p < kHeldPacks; ++p) {
      if (p * 32 * kRun >= length) continue;
      __syncthreads();  // waits until the last columns' sums were read
#pragma unroll
      for (int s = 0; s < Sums; ++s) {
#pragma unroll
        for (int j = 0; j < kRun; ++j) shared[s][Group::in_block()][Group::rank() * kRun + j] = sums[s][p][j];
      }
      __syncthreads();
      const int64_t column = p * 32 * kRun + int(threadIdx.x);
      if (column >= length) continue;
      for (int s = 0; s < Sums; ++s) {
        float sum = 0;
        for (int w = 0; w < kBlockWarps; ++w) sum += shared[s][w][threadIdx.x];
        to[s * step + column] = sum;
      }
    }
  }
}

// Does the same for inner = 1 and rows in packs that fit into registers, with the sums over rows: a block has a segment of a
// group's rows, and each of its warps, or all together, process one row at a time. A thread's sums for its columns go to partial,
// [Sums, segments, groups * channels]: sum g, sum g xhat, and with a third the sum of what store() leaves in dx. partial may be
// null.
template <int Warps, int Sums, class Store>
__device__ inline void gradients_once(const NormOperands& a, int64_t rows, int64_t segments, float* partial, const Store& store) {
  using Group = RowGroup<Warps>;
  using Held = HeldRows<RunRows, Group, 2>;
  SHARED(double, sums, [kBlockWarps]);
  const RunRows x{a.x}, grad{a.bias};
  const int64_t part = (rows + segments - 1) / segments;
  const double n = double(a.length);
  for (int64_t task = blockIdx.x; task < a.groups * segments; task += gridDim.x) {
    const int64_t segment = task / a.groups, group = task % a.groups, base = group * a.channels;
    const int64_t end = (segment + 1) * part < rows ? (segment + 1) * part : rows;
    float column_sums[Sums][kHeldPacks][kRun] = {};
    for (int64_t r = segment * part + Group::in_block(); r < end; r += Group::kPerBlock) {
      const int64_t k = r * a.groups + group, row = k * a.length;
      const Held held({x, grad}, {row, row}, a.length);
      const float m = a.mean.data != nullptr ? a.mean.load_floating<float>(k) : 0.0f, s = a.rstd.load_floating<float>(k);
      float first = 0, second = 0;
      held.each_held([&](int p, int64_t i, const auto& v) {
        float w[kRun];
        load_parameter(a.weight, base, i, 1, 1.0f, w);
#pragma unroll
        for (int j = 0; j < kRun; ++j) {
          const float g = v[1][j], distance = (v[0][j] - m) * s;
          column_sums[0][p][j] += g;
          column_sums[1][p][j] += g * distance;
          first += g * w[j];
          second += g * w[j] * distance;
        }
      });
      const float mean_gw = a.centered ? float(Group::template join<SumJoin>(double(first), &sums[0]) / n) : 0.0f;
      const float mean_gwx = float(Group::template join<SumJoin>(double(second), &sums[0]) / n);
      held.each_held([&](int p, int64_t i, const auto& v) {
        float w[kRun], d[kRun];
        load_parameter(a.weight, base, i, 1, 1.0f, w);
#pragma unroll
        for (int j = 0; j < kRun; ++j) d[j] = s * (v[1][j] * w[j] - mean_gw - (v[0][j] - m) * s * mean_gwx);
        store(row + i, d);
        if constexpr (Sums > 2) {
#pragma unroll
          for (int j = 0; j < kRun; ++j) column_sums[2][p][j] += d[j];
        }
      });
    }
    if (partial == nullptr) continue;
    const int64_t columns = a.groups * a.channels;
    store_columns<Warps, Sums>(column_sums, a.length, partial + segment * columns + base, segments * columns);
  }
}

template <int Warps>
__global__ void __launch_bounds__(kThreads) backward_once_kernel(NormOperands a, int64_t rows, int64_t segments, float* partial) {
  gradients_once<Warps, 2>(a, rows, segments, partial, [&](int64_t i, const auto& d) { store_run(a.out, i, d); });
}
// Sums: 2, or 3 with those of the columns of the copy, or of dx without one.
template <int Warps, int Sums>
__global__ void __launch_bounds__(kThreads)
    add_backward_once_kernel(NormOperands a, ResidualOperands r, int64_t rows, int64_t segments, float* partial) {
  gradients_once<Warps, Sums>(a, rows, segments, partial, [&](int64_t i, auto& d) {
    store_gradient(a, r, i, d);
    if constexpr (Sums > 2) round_to(r.copy.data != nullptr ? r.copy.dtype : a.out.dtype, d);
  });
}

// Calls f(C{}, elements read at a time: kPack or 1, warps of a row: 1 or kBlockWarps).
template <class F>
void for_rows_of(const NormOperands& a, bool packed, const F& f) {
  const auto with = [&](auto type, auto pack) {
    a.length <= kWarpRow ? f(type, pack, std::integral_constant<int, 1>())
                         : f(type, pack, std::integral_constant<int, kBlockWarps>());
  };
  if (a.x.dtype == DType::f64) return with(double{}, std::integral_constant<int, 1>());
  packed ? with(float{}, std::integral_constant<int, kPack>()) : with(float{}, std::integral_constant<int, 1>());
}

NormOperands operands_of(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                         const TensorView& out, const TensorView& mean, const TensorView& rstd) {
  return {x,           weight,        bias,       out,      mean,         rstd, args.rows * args.groups, args.channels * args.inner,
          args.groups, args.channels, args.inner, args.eps, args.centered};
}
int64_t run_of(const NormArgs& a) { return a.inner == 1 ? a.channels : a.inner; }

// Most segments of dense rows of `channels`, in packs, with few enough columns for a segment's sums. The number depends on the
// shape alone: at least two rows for each of a block's groups of threads, so that writing the sums costs little compared with
// reading the rows.
constexpr int64_t kMostSegments = 256;
int64_t segments_of(const NormArgs& a, int64_t sums = 2) {
  const int64_t each = a.channels <= kWarpRow ? 2 * kBlockWarps : 2, room = int64_t(kScratchBytes / sizeof(float)) / sums;
  return std::min({(a.rows + each - 1) / each, kMostSegments, room / (a.groups * a.channels)});
}

// Computes the gradients of weight and bias by themselves; either may be empty.
void sum_parameters(const Queue& q, const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& mean,
                    const TensorView& rstd, const TensorView& dweight, const TensorView& dbias) {
  if (!dweight && !dbias) return;
  const int64_t channels = args.groups * args.channels;
  ChannelSumArgs s{grad, x, mean, rstd, args.rows, channels, args.inner, args.groups, args.channels};
  if (x.format() == MemoryFormat::channels_last) s.rows *= s.stat_rows = std::exchange(s.inner, 1);
  for (int64_t first = 0; first < channels; first += kChannelsAtOnce)
    channel_sums(q, s, first, channels - first < kChannelsAtOnce ? channels - first : kChannelsAtOnce, dbias, dweight);
}

}  // namespace

void normalize(const Queue& q, const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
               const TensorView& out, const TensorView& mean, const TensorView& rstd) {
  const NormOperands a = operands_of(args, x, weight, bias, out, mean, rstd);
  if (a.slices == 0) return;
  if (x.format() == MemoryFormat::channels_last) return normalize_channels_last(q, args, x, weight, bias, out, mean, rstd);
  for_rows_of(a, reads_some(kPack, {&x, &weight, &bias, &out}, run_of(args)), [&](auto type, auto pack, auto warps) {
    launch(normalize_kernel<decltype(type), pack.value, warps.value>, row_blocks(a.slices, a.length), kThreads, 0, q.stream, a);
  });
}

void add_normalize(const Queue& q, const NormArgs& args, const TensorView& left, const TensorView& right, const TensorView& weight,
                   const TensorView& bias, const TensorView& sum, const TensorView& out, const TensorView& mean,
                   const TensorView& rstd) {
  const NormOperands a = operands_of(args, sum, weight, bias, out, mean, rstd);
  if (a.slices == 0) return;
  for_rows_of(a, reads_some(kPack, {&left, &right, &sum, &weight, &bias, &out}, run_of(args)),
              [&](auto type, auto pack, auto warps) {
                launch(add_normalize_kernel<decltype(type), pack.value, warps.value>, row_blocks(a.slices, a.length), kThreads, 0,
                       q.stream, a, Operand(left), Operand(right));
              });
}

void add_normalize_backward(const Queue& q, const NormArgs& args, const TensorView& grad, const TensorView& residual,
                            const TensorView& x, const TensorView& weight, const TensorView& mean, const TensorView& rstd,
                            const TensorView& dx, const TensorView& copy, const TensorView& dweight, const TensorView& dbias,
                            const TensorView& sums) {
  const NormOperands a = operands_of(args, x, weight, grad, dx, mean, rstd);
  const ResidualOperands r{residual, copy};
  const bool packed = reads_some(kPack, {&x, &weight, &grad, &dx, &residual, &copy}, run_of(args));
  const int64_t segments = a.length > 0 ? segments_of(args, sums ? 3 : 2) : 0;
  if (a.slices > 0 && packed && a.length <= kHeldRow && segments > 0) {
    float* const partial = dweight || dbias || sums ? reinterpret_cast<float*>(q.scratch) : nullptr;
    const auto run = [&](auto count) {
      const auto kernel =
          a.length <= kWarpRow ? add_backward_once_kernel<1, count.value> : add_backward_once_kernel<kBlockWarps, count.value>;
      launch(kernel, blocks_for(segments, 1), kThreads, 0, q.stream, a, r, args.rows, segments, partial);
    };
    sums ? run(std::integral_constant<int, 3>()) : run(std::integral_constant<int, 2>());
    if (partial != nullptr) join_channel_sums(q, partial, segments, args.channels, dbias, dweight, sums);
    return;
  }
  if (a.slices > 0) {
    for_rows_of(a, packed, [&](auto type, auto pack, auto warps) {
      launch(add_backward_kernel<decltype(type), pack.value, warps.value>, row_blocks(a.slices, a.length), kThreads, 0, q.stream, a,
             r);
    });
  }
  sum_parameters(q, args, grad, x, mean, rstd, dweight, dbias);
  const TensorView& d = copy ? copy : dx;
  if (sums) reduce(q, Reduce::sum, {d.data, d.dtype, {args.rows, args.channels}, {args.channels, 1}}, as_row(sums));
}

void normalize_backward(const Queue& q, const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                        const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                        const TensorView& dbias) {
  const bool last = x.format() == MemoryFormat::channels_last;
  const NormOperands a = operands_of(args, x, weight, grad, dx, mean, rstd);
  const bool packed = reads_some(kPack, {&x, &weight, &grad, &dx}, run_of(args));
  if (dx && a.slices > 0 && packed && args.inner == 1 && a.length <= kHeldRow && segments_of(args) > 0) {
    const int64_t segments = segments_of(args);
    float* const partial = dweight || dbias ? reinterpret_cast<float*>(q.scratch) : nullptr;
    launch(a.length <= kWarpRow ? backward_once_kernel<1> : backward_once_kernel<kBlockWarps>,
           blocks_for(args.groups * segments, 1), kThreads, 0, q.stream, a, args.rows, segments, partial);
    if (partial != nullptr) join_channel_sums(q, partial, segments, args.groups * args.channels, dbias, dweight);
    return;
  }
  if (dx && last) {
    normalize_channels_last_backward(q, args, grad, x, weight, mean, rstd, dx);
  } else if (dx && a.slices > 0) {
    for_rows_of(a, packed, [&](auto type, auto pack, auto warps) {
      launch(backward_kernel<decltype(type), pack.value, warps.value>, row_blocks(a.slices, a.length), kThreads, 0, q.stream, a);
    });
  }
  sum_parameters(q, args, grad, x, mean, rstd, dweight, dbias);
}

}  // namespace halfstep::cuda
