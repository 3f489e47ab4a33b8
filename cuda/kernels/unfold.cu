// SPDX-License-Identifier: Apache-2.0
// Copies windows into columns, and adds columns back. x [N, C, in...], K taps per window, P output positions, columns [N, C K, P]:
//   unfold  columns[n, c K + k, o] = x[n, c, o stride - padding + k dilation], 0 outside of x
//   fold    x[n, c, i] = sum of columns[n, c K + k, o] over all k and o with o stride - padding + k dilation = i
// Neighbouring threads take neighbouring positions (unfold) or pixels (fold) of one row.
#include "cuda/kernels/elementwise/elementwise.cuh"
#include "framework/backend/unfold_conv.h"

namespace halfstep::cuda {
namespace {

// Splits last digits off a row-major index; divides in 32 bits if the numbers allow it.
struct Digits {
  int64_t rest;
  __device__ int64_t take(int64_t size) {
    const int64_t index = rest;
    rest = (index | size) <= 0x7fffffff ? int64_t(uint32_t(index) / uint32_t(size)) : index / size;
    return index - rest * size;
  }
};

struct UnfoldSizes {
  int64_t in[3], out[3], size[3], stride[3], padding[3], dilation[3];
  int64_t taps, positions, pixels;

  explicit UnfoldSizes(const WindowGeometry& g) : taps(g.taps()), positions(g.positions()), pixels(g.pixels()) {
    for (size_t d = 0; d < 3; ++d) {
      in[d] = g.in[d], out[d] = g.out[d], size[d] = g.size[d];
      stride[d] = g.stride[d], padding[d] = g.padding[d], dilation[d] = g.dilation[d];
    }
  }
};

// Returns the pixel in dimension d that tap k reads at position o; -1: padding.
__device__ inline int64_t pixel(const UnfoldSizes& s, int d, int64_t o, int64_t k) {
  const int64_t i = o * s.stride[d] - s.padding[d] + k * s.dilation[d];
  return i >= 0 && i < s.in[d] ? i : -1;
}
// Returns the position in dimension d at which tap k reads pixel i; -1: none.
__device__ inline int64_t position(const UnfoldSizes& s, int d, int64_t i, int64_t k) {
  const int64_t at = i + s.padding[d] - k * s.dilation[d];
  if (at < 0) return -1;
  Digits digits{at};
  if (digits.take(s.stride[d]) != 0) return -1;
  return digits.rest < s.out[d] ? digits.rest : -1;
}

// Copies N neighbouring positions at a time; N divides the row.
template <class Bits, int N>
__global__ void __launch_bounds__(kThreads) unfold_kernel(const Bits* x, Bits* columns, UnfoldSizes s, int64_t packs) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t p = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; p < packs; p += step) {
    Digits digits{p};
    int64_t o[3], k[3];
    o[2] = digits.take(s.out[2] / N) * N;
    o[1] = digits.take(s.out[1]);
    o[0] = digits.take(s.out[0]);
    for (int d = 2; d >= 0; --d) k[d] = digits.take(s.size[d]);
    const int64_t a = pixel(s, 0, o[0], k[0]), b = pixel(s, 1, o[1], k[1]);
    const Bits* row = x + digits.rest * s.pixels + (a * s.in[1] + b) * s.in[2];
    Bits values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int64_t c = pixel(s, 2, o[2] + j, k[2]);
      values[j] = a >= 0 && b >= 0 && c >= 0 ? row[c] : Bits(0);
    }
    if constexpr (N == 1) {
      columns[p] = values[0];
    } else {
      uint4 word;
      memcpy(&word, values, sizeof word);
      *reinterpret_cast<uint4*>(columns + p * N) = word;
    }
  }
}

template <class Bits>
void unfold_as(const Queue& q, const TensorView& x, const UnfoldSizes& s, const TensorView& columns) {
  constexpr int kPack = 16 / int(sizeof(Bits));
  const int64_t n = columns.numel();
  if (s.out[2] % kPack == 0 && aligned16(columns.data))
    launch(unfold_kernel<Bits, kPack>, blocks_for(n / kPack, kThreads), kThreads, 0, q.stream, x.as<const Bits>(),
           columns.as<Bits>(), s, n / kPack);
  else
    launch(unfold_kernel<Bits, 1>, blocks_for(n, kThreads), kThreads, 0, q.stream, x.as<const Bits>(), columns.as<Bits>(), s, n);
}

// Sums for each pixel the gradients of the column elements read from it, in the order of the kernel's elements.
template <class From, class To>
__global__ void __launch_bounds__(kThreads) fold_kernel(const From* columns, To* out, UnfoldSizes s, int64_t count) {
  using C = typename ComputeOf<From>::type;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t p = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; p < count; p += step) {
    Digits digits{p};
    int64_t i[3];
    for (int d = 2; d >= 0; --d) i[d] = digits.take(s.in[d]);
    const From* plane = columns + digits.rest * s.taps * s.positions;
    C sum = 0;
    for (int64_t k0 = 0; k0 < s.size[0]; ++k0) {
      const int64_t a = position(s, 0, i[0], k0);
      if (a < 0) continue;
      for (int64_t k1 = 0; k1 < s.size[1]; ++k1) {
        const int64_t b = position(s, 1, i[1], k1);
        if (b < 0) continue;
        const From* row = plane + (k0 * s.size[1] + k1) * s.size[2] * s.positions + (a * s.out[1] + b) * s.out[2];
        for (int64_t k2 = 0; k2 < s.size[2]; ++k2) {
          const int64_t c = position(s, 2, i[2], k2);
          if (c >= 0) sum += C(to_float(row[k2 * s.positions + c]));
        }
      }
    }
    out[p] = from_float<To>(sum);
  }
}

template <class From, class To>
void fold_as(const Queue& q, const TensorView& columns, const UnfoldSizes& s, const TensorView& out) {
  launch(fold_kernel<From, To>, blocks_for(out.numel(), kThreads), kThreads, 0, q.stream, columns.as<const From>(), out.as<To>(), s,
         out.numel());
}

}  // namespace

void unfold(const Queue& q, const TensorView& x, const Window& window, const Spatial& positions, const TensorView& columns) {
  if (columns.numel() == 0) return;
  const UnfoldSizes s(WindowGeometry(window, spatial_sizes(x, window.dims), positions));
  switch (size_of(x.dtype)) {
    case 2: return unfold_as<uint16_t>(q, x, s, columns);
    case 4: return unfold_as<uint32_t>(q, x, s, columns);
    default: return unfold_as<uint64_t>(q, x, s, columns);
  }
}

void fold(const Queue& q, const TensorView& columns, const Window& window, const Spatial& positions, const TensorView& out) {
  if (out.numel() == 0) return;
  const UnfoldSizes s(WindowGeometry(window, spatial_sizes(out, window.dims), positions));
  const bool wide = columns.dtype == DType::f32;
  switch (out.dtype) {
    case DType::f64: return fold_as<double, double>(q, columns, s, out);
    case DType::f16: return wide ? fold_as<float, __half>(q, columns, s, out) : fold_as<__half, __half>(q, columns, s, out);
    case DType::bf16:
      return wide ? fold_as<float, __nv_bfloat16>(q, columns, s, out) : fold_as<__nv_bfloat16, __nv_bfloat16>(q, columns, s, out);
    default: return fold_as<float, float>(q, columns, s, out);
  }
}

}  // namespace halfstep::cuda
