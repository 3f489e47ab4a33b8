// SPDX-License-Identifier: Apache-2.0
// Random numbers by the rules of framework/math/random.h, equal to the CPU's. Each thread computes whole Philox blocks of four
// elements. Dropout: out = x / (1 - p) where uniform >= p, else 0.
#include "cuda/kernels/elementwise/elementwise.cuh"
#include "framework/math/random.h"

namespace halfstep::cuda {
namespace {

// The source of a draw's blocks.
struct Stream {
  uint64_t seed, offset;
  const uint64_t* base;

  __device__ uint64_t start() const { return offset + (base ? *base : 0); }
};

// ---- distributions. value: element `lane` of a block, before it is rounded; if it is `beyond` then, it becomes `lo`.

// Base of distributions that use 32 random bits for an element.
template <class Number>
struct Narrow {
  using C = Number;
  using Bits = math::Random4;
  __device__ static Bits bits(uint64_t seed, uint64_t block) { return math::philox(seed, block); }
  __device__ bool beyond(double) const { return false; }
};
// Computes lo + (hi - lo) u, within [lo, hi) in every dtype.
struct Uniform : Narrow<double> {
  double lo, hi;
  Uniform(double from, double to) : lo(from), hi(to) {}
  __device__ double value(const Bits& r, int lane) const { return multiply_add(lo, hi - lo, double(math::uniform(r.v[lane]))); }
  __device__ bool beyond(double rounded) const { return lo < hi && rounded >= hi; }
};
// A block of the stream and of the second one.
struct TwoBlocks {
  math::Random4 first, second;
  __device__ static TwoBlocks at(uint64_t seed, uint64_t block) {
    return {math::philox(seed, block), math::philox(seed ^ math::kSecondKey, block)};
  }
};
// Uniform with 53 random bits, for float64.
struct WideUniform : Uniform {
  using Bits = TwoBlocks;
  using Uniform::Uniform;
  __device__ static Bits bits(uint64_t seed, uint64_t block) { return Bits::at(seed, block); }
  __device__ double value(const Bits& r, int lane) const {
    return multiply_add(lo, hi - lo, math::uniform64(r.first.v[lane], r.second.v[lane]));
  }
};
struct Normal : Narrow<double> {
  double lo, stddev;  // lo: the mean
  Normal(double mean, double deviation) : lo(mean), stddev(deviation) {}
  __device__ double value(const Bits& r, int lane) const { return lo + stddev * double(math::normal(r, lane)); }
};
// Computes lo + the range times a random fraction, of 32 bits if that suffices.
struct Integers : Narrow<int64_t> {
  int64_t lo;
  uint64_t range;
  Integers(int64_t from, uint64_t size) : lo(from), range(size) {}
  __device__ int64_t value(const Bits& r, int lane) const { return int64_t(uint64_t(lo) + (range * r.v[lane] >> 32)); }
};
struct WideIntegers : Integers {
  using Bits = TwoBlocks;
  using Integers::Integers;
  __device__ static Bits bits(uint64_t seed, uint64_t block) { return Bits::at(seed, block); }
  __device__ int64_t value(const Bits& r, int lane) const {
    const uint64_t fraction = (uint64_t(r.second.v[lane]) << 32) | r.first.v[lane];
    return int64_t(uint64_t(lo) + uint64_t((unsigned __int128)(fraction)*range >> 64));
  }
};

template <class T>
__device__ inline double widened(T x) {
  if constexpr (std::is_integral_v<T>)
    return double(x);
  else
    return double(to_float(x));
}

// What a thread draws at a time: kSize elements, which are kBlocks whole blocks and kPacks whole packs.
template <class T>
struct Chunk {
  static constexpr int kPack = Pack<T>::kSize, kSize = kPack > 4 ? kPack : 4, kBlocks = kSize / 4, kPacks = kSize / kPack;
};

// Draws dense numbers. packed: whether `out` is aligned to 16 bytes.
template <class Draw, class T>
__global__ void __launch_bounds__(kThreads) draw_kernel(T* out, int64_t n, bool packed, Stream stream, Draw draw) {
  constexpr int kPack = Chunk<T>::kPack, kSize = Chunk<T>::kSize, kBlocks = Chunk<T>::kBlocks;
  const uint64_t start = stream.start();
  const int64_t step = int64_t(gridDim.x) * blockDim.x * kSize;
  for (int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kSize; i < n; i += step) {
    Pack<T> drawn[Chunk<T>::kPacks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const typename Draw::Bits bits = Draw::bits(stream.seed, start + uint64_t(i / 4 + b));
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        T value = converted<T>(draw.value(bits, lane));
        if (draw.beyond(widened(value))) value = converted<T>(draw.lo);
        drawn[(b * 4 + lane) / kPack].v[(b * 4 + lane) % kPack] = value;
      }
    }
    if (packed && i + kSize <= n) {
#pragma unroll
      for (int p = 0; p < Chunk<T>::kPacks; ++p) reinterpret_cast<Pack<T>*>(out + i)[p] = drawn[p];
    } else {
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        if (i + k < n) out[i + k] = drawn[k / kPack].v[k % kPack];
      }
    }
  }
}

// Draws numbers of any dtype.
template <class Draw>
__global__ void __launch_bounds__(kThreads) draw_any(Operand out, int64_t n, Stream stream, Draw draw) {
  const uint64_t start = stream.start();
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t b = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; b * 4 < n; b += step) {
    const typename Draw::Bits bits = Draw::bits(stream.seed, start + uint64_t(b));
#pragma unroll 1
    for (int64_t lane = 0; lane < 4 && b * 4 + lane < n; ++lane) {
      out.store(b * 4 + lane, draw.value(bits, int(lane)));
      if (draw.beyond(out.load<double>(b * 4 + lane))) out.store(b * 4 + lane, draw.lo);
    }
  }
}

template <class T, class Draw>
void draw_as(const Queue& q, const TensorView& dst, const Stream& stream, const Draw& draw) {
  const int64_t n = dst.numel(), chunks = (n + Chunk<T>::kSize - 1) / Chunk<T>::kSize;
  launch(draw_kernel<Draw, T>, blocks_for(chunks, kThreads), kThreads, 0, q.stream, dst.as<T>(), n, aligned16(dst.data), stream,
         draw);
}

template <class Draw>
void draw_into_any(const Queue& q, const TensorView& dst, Generator::State state, const Draw& distribution) {
  const int64_t n = dst.numel();
  if (n == 0) return;
  const Stream stream{state.seed, state.offset, q.random_base};
  launch(draw_any<Draw>, blocks_for((n + 3) / 4, kThreads), kThreads, 0, q.stream, Operand(dst), n, stream, distribution);
}

template <class Draw>
void draw(const Queue& q, const TensorView& dst, Generator::State state, const Draw& distribution) {
  if (dst.numel() == 0) return;
  const Stream stream{state.seed, state.offset, q.random_base};
  if constexpr (std::is_same_v<typename Draw::C, double>) {
    if (dst.dtype == DType::f16) return draw_as<__half>(q, dst, stream, distribution);
    if (dst.dtype == DType::bf16) return draw_as<__nv_bfloat16>(q, dst, stream, distribution);
    if (dst.dtype == DType::f32) return draw_as<float>(q, dst, stream, distribution);
  } else {
    if (dst.dtype == DType::i64) return draw_as<int64_t>(q, dst, stream, distribution);
  }
  draw_into_any(q, dst, state, distribution);
}

// ---- dropout
template <class T>
__global__ void __launch_bounds__(kThreads) dropout_dense(const T* x, T* out, int64_t n, Stream stream, float p, float scale) {
  constexpr int kSize = Pack<T>::kSize;
  static_assert(kSize % 4 == 0);
  const uint64_t start = stream.start();
  const int64_t step = int64_t(gridDim.x) * blockDim.x * kSize;
  for (int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kSize; i < n; i += step) {
    Pack<T> v;
    const bool is_whole_chunk = i + kSize <= n;
    if (is_whole_chunk) {
      v = *reinterpret_cast<const Pack<T>*>(x + i);
    } else {
#pragma unroll
      for (int k = 0; k < kSize; ++k) v.v[k] = i + k < n ? x[i + k] : from_float<T>(0.0f);
    }
#pragma unroll
    for (int b = 0; b < kSize / 4; ++b) {
      const math::Random4 r = math::philox(stream.seed, start + uint64_t(i / 4 + b));
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        T& element = v.v[b * 4 + lane];
        element = from_float<T>(math::uniform(r.v[lane]) >= p ? to_float(element) * scale : 0.0f);
      }
    }
    if (is_whole_chunk) {
      *reinterpret_cast<Pack<T>*>(out + i) = v;
    } else {
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        if (i + k < n) out[i + k] = v.v[k];
      }
    }
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads) dropout_any(Operand x, Operand out, Space<2> space, Stream stream, float p, C scale) {
  const uint64_t start = stream.start();
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t b = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; b * 4 < space.numel; b += step) {
    math::Random4 r = math::philox(stream.seed, start + uint64_t(b));
#pragma unroll 1
    for (int64_t i = b * 4; i < b * 4 + 4 && i < space.numel; ++i) {
      int64_t at[2];
      space.offsets(i, at);
      out.store(at[0], math::uniform(r.v[0]) >= p ? x.load<C>(at[1]) * scale : C(0));
      r = {{r.v[1], r.v[2], r.v[3], 0}};  // moves the next one to the front; an index would put them into memory
    }
  }
}

}  // namespace

void random_uniform(const Queue& q, const TensorView& dst, Generator::State state, double lo, double hi) {
  if (dst.dtype == DType::f64) return draw_into_any(q, dst, state, WideUniform{lo, hi});
  draw(q, dst, state, Uniform{lo, hi});
}
void random_normal(const Queue& q, const TensorView& dst, Generator::State state, double mean, double stddev) {
  draw(q, dst, state, Normal{mean, stddev});
}
void random_integers(const Queue& q, const TensorView& dst, Generator::State state, int64_t lo, int64_t hi) {
  const uint64_t range = uint64_t(hi) - uint64_t(lo);
  if (range <= (uint64_t(1) << 32))
    draw(q, dst, state, Integers{lo, range});
  else
    draw(q, dst, state, WideIntegers{lo, range});
}

void dropout(const Queue& q, const TensorView& x, const TensorView& out, double p, Generator::State state) {
  const Space<2> space(out.shape, {&out.strides, &x.strides});
  if (space.numel == 0) return;
  const Stream stream{state.seed, state.offset, q.random_base};
  const unsigned blocks = blocks_for((space.numel + 3) / 4, kThreads);
  const float scale = float(1 / (1 - p));
  const auto dense = [&](auto kernel, auto* in) {
    using T = std::remove_pointer_t<decltype(in)>;
    launch(kernel, blocks_for((space.numel + Pack<T>::kSize - 1) / Pack<T>::kSize, kThreads), kThreads, 0, q.stream, in,
           out.as<T>(), space.numel, stream, float(p), scale);
  };
  const bool packed = space.dense() && x.dtype == out.dtype && aligned16(x.data) && aligned16(out.data);
  if (packed && x.dtype == DType::f32) return dense(dropout_dense<float>, x.as<float>());
  if (packed && x.dtype == DType::f16) return dense(dropout_dense<__half>, x.as<__half>());
  if (packed && x.dtype == DType::bf16) return dense(dropout_dense<__nv_bfloat16>, x.as<__nv_bfloat16>());
  if (x.dtype == DType::f64)
    launch(dropout_any<double>, blocks, kThreads, 0, q.stream, Operand(x), Operand(out), space, stream, float(p), 1 / (1 - p));
  else
    launch(dropout_any<float>, blocks, kThreads, 0, q.stream, Operand(x), Operand(out), space, stream, float(p), scale);
}

}  // namespace halfstep::cuda
