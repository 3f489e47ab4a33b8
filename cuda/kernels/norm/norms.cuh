// SPDX-License-Identifier: Apache-2.0
// Helpers of the normalisations: operands of any floating dtype, several neighbouring elements at a time, and the sums over a
// channel that gradients need.
#pragma once

#include "cuda/kernels/reduce/rows.cuh"

namespace halfstep::cuda {

// Loads elements i to i + N of an operand. N > 1: no operand may be f64, its memory must be aligned to 16 bytes, and i a multiple
// of N.
template <class C, int N>
__device__ inline void load_some(const Operand& o, int64_t i, C (&x)[N]) {
  if constexpr (N == 1) {
    x[0] = o.load_floating<C>(i);
  } else {
    switch (o.dtype) {
      case DType::f16: return load_pack(&o.at<__half>(i), x);
      case DType::bf16: return load_pack(&o.at<__nv_bfloat16>(i), x);
      default: return load_pack(&o.at<float>(i), x);
    }
  }
}
template <class C, int N>
__device__ inline void store_some(const Operand& o, int64_t i, const C (&x)[N]) {
  if constexpr (N == 1) {
    o.store_floating(i, x[0]);
  } else {
    switch (o.dtype) {
      case DType::f16: return store_pack(static_cast<__half*>(o.data) + i, x);
      case DType::bf16: return store_pack(static_cast<__nv_bfloat16*>(o.data) + i, x);
      default: return store_pack(static_cast<float*>(o.data) + i, x);
    }
  }
}

// Returns i / d, in 32 bits if that suffices.
__device__ inline int64_t short_quotient(int64_t i, int64_t d) {
  return (i | d) <= 0x7fffffff ? int64_t(uint32_t(i) / uint32_t(d)) : i / d;
}

// Loads the parameters of elements i to i + N of [channels, inner]; channel 0 has parameter `base`. Without any, they are
// `otherwise`.
template <class C, int N>
__device__ inline void load_parameter(const Operand& p, int64_t base, int64_t i, int64_t inner, C otherwise, C (&v)[N]) {
  if (p.data != nullptr && inner == 1) return load_some(p, base + i, v);
  const C value = p.data != nullptr ? p.load_floating<C>(base + short_quotient(i, inner)) : otherwise;
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = value;
}

// Rounds x to the 16 bits of `dtype`, if it has 16.
template <class C, int N>
__device__ inline void round_to(DType dtype, C (&x)[N]) {
  if (dtype == DType::f16) {
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = C(__half2float(from_float<__half>(x[j])));
  } else if (dtype == DType::bf16) {
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = C(__bfloat162float(from_float<__nv_bfloat16>(x[j])));
  }
}

// Returns whether these operands (ignoring empty ones) can be read N elements at a time, in runs of a multiple of N.
inline bool reads_some(int n, std::initializer_list<const TensorView*> operands, int64_t run) {
  bool fits = run % n == 0;
  for (const TensorView* v : operands) fits = fits && v->dtype != DType::f64 && aligned16(v->data);
  return fits;
}

// A pack of N elements of memory that overlaps a run which begins and ends anywhere.
template <int N>
struct Cover {
  int64_t first;  // the pack's first element
  int from, to;   // its elements that belong to the run: none if to <= from

  // Returns the most packs that a run of `inner` elements needs, for runs side by side.
  static __device__ int64_t packs_of_run(int64_t inner) { return inner % N == 0 ? inner / N : (inner + 2 * (N - 1)) / N; }
  // Makes the k-th pack of the run [begin, end).
  __device__ Cover(int64_t begin, int64_t end, int64_t k) : first((begin / N + k) * N) {
    from = begin > first ? int(begin - first) : 0;
    to = end - first < N ? int(end - first) : N;
  }
};

// The moments of a thread's elements: sums about the mean of its own first elements, which is near the rest, so that little
// precision is lost if the mean is far from zero.
template <class C>
struct NearSums {
  C near = 0, sum = 0, squares = 0;
  int count = 0;

  // Adds the elements [from, to) of x.
  template <int N>
  __device__ void add(const C (&x)[N], int from = 0, int to = N) {
    if (to <= from) return;
    if (count == 0) {
#pragma unroll
      for (int j = 0; j < N; ++j) near += j >= from && j < to ? x[j] / C(to - from) : C(0);
    }
    count += to - from;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const C d = j >= from && j < to ? x[j] - near : C(0);
      sum += d;
      squares += d * d;
    }
  }
  __device__ double total() const { return double(near) * double(count) + double(sum); }
  // Returns sum (x - mean)^2.
  __device__ double squares_about(double mean) const {
    const double off = mean - double(near), rest = double(squares) - off * (2 * double(sum) - off * double(count));
    return rest < 0 ? 0 : rest;  // NaN stays
  }
};

// Returns batch_norm's result for x, with scale = rstd weight. A ReLU's gradient recomputes it and needs the same bits.
template <class C>
__device__ inline C normalized(C x, C mean, C scale, C bias) {
  const C centered = x - mean;
#ifdef HALFSTEP_CUDA_EMU
  return centered * scale + bias;
#else
  return ::fma(centered, scale, bias);
#endif
}

// Computes mean and rstd of each channel of x in training, updates the running statistics (both may be empty) and adds 1 to
// batches (may be empty).
void batch_statistics(const Queue& q, const BatchNormArgs& args, const TensorView& x, const TensorView& running_mean,
                      const TensorView& running_var, const TensorView& batches, const TensorView& mean, const TensorView& rstd);

// For x and grad [rows, channels, inner]: sum g and sum g (x - mean) rstd over rows and inner. The statistics of (row, channel)
// have the index row / stat_rows * stat_row + channel / stat_div. mean may be empty: 0.
struct ChannelSumArgs {
  TensorView grad, x, mean, rstd;
  int64_t rows, channels, inner, stat_row, stat_div;
  int64_t stat_rows = 1;  // more than one only if inner = 1
  // relu: g counts as 0 where normalized() was stored as 0 or less, in x's dtype. weight and bias: of the channels; may be empty.
  bool relu = false;
  TensorView weight = {}, bias = {};
};
// Most channels of one call.
inline constexpr int64_t kChannelsAtOnce = 16384;
// Sums channels [first, first + count): the sums go to `plain` and `scaled` (either may be empty) and, as C divided by the number
// of a channel's elements, to totals_of(q): all plain ones, then the scaled. Uses all of the scratch memory. The order of the sums
// depends only on the shape.
void channel_sums(const Queue& q, const ChannelSumArgs& s, int64_t first, int64_t count, const TensorView& plain,
                  const TensorView& scaled);
inline double* totals_of(const Queue& q) { return q.scratch + kScratchBytes / 2 / sizeof(double); }
// Runs its last step: partial is [2, segments, count], the plain sums of each segment and then the scaled ones; if `more` is given,
// [3, segments, count] with sums that go there.
void join_channel_sums(const Queue& q, const float* partial, int64_t segments, int64_t count, const TensorView& plain,
                       const TensorView& scaled, const TensorView& more = {});

// Compute normalize, and dx of its backward, for images in channels_last.
void normalize_channels_last(const Queue& q, const NormArgs& args, const TensorView& x, const TensorView& weight,
                             const TensorView& bias, const TensorView& out, const TensorView& mean, const TensorView& rstd);
void normalize_channels_last_backward(const Queue& q, const NormArgs& args, const TensorView& grad, const TensorView& x,
                                      const TensorView& weight, const TensorView& mean, const TensorView& rstd,
                                      const TensorView& dx);

}  // namespace halfstep::cuda
