// SPDX-License-Identifier: Apache-2.0
// Accesses neighbouring elements 16 bytes at a time, or all at once if they are fewer. The memory must be aligned to that.
// Streaming: these bytes will not be needed soon, so they need not displace others in the cache.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "cuda/kernels/elementwise/operand.cuh"

namespace halfstep::cuda {

template <int Bytes>
struct WordOf {
  using type = uint4;
};
template <>
struct WordOf<8> {
  using type = uint2;
};
template <>
struct WordOf<4> {
  using type = unsigned int;
};
template <>
struct WordOf<2> {
  using type = unsigned short;
};

enum class Cached : bool { no, yes };

// Loads x[j] = p[j], converted to the compute type.
template <Cached cached = Cached::yes, class T, class C, int N>
__device__ inline void load_pack(const T* p, C (&x)[N]) {
  using Word = typename WordOf<N* int(sizeof(T))>::type;
  constexpr int kWords = N * int(sizeof(T)) / int(sizeof(Word));
  Word words[kWords];
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const Word* from = reinterpret_cast<const Word*>(p) + k;
    words[k] = cached == Cached::yes ? *from : __ldcs(from);
  }
  T v[N];
  memcpy(static_cast<void*>(v), words, sizeof v);
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = C(to_float(v[j]));
}

// Stores p[j] = x[j], rounded to T.
template <Cached cached = Cached::yes, class T, class C, int N>
__device__ inline void store_pack(T* p, const C (&x)[N]) {
  using Word = typename WordOf<N* int(sizeof(T))>::type;
  constexpr int kWords = N * int(sizeof(T)) / int(sizeof(Word));
  T v[N];
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = from_float<T>(x[j]);
  Word words[kWords];
  memcpy(static_cast<void*>(words), v, sizeof v);
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    Word* to = reinterpret_cast<Word*>(p) + k;
    if constexpr (cached == Cached::yes)
      store_word(to, words[k]);
    else
      __stcs(to, words[k]);
  }
}

// ---- Packs of eight elements of f16, bf16 or f32, in any mixture: the dtype is looked up at run time. Also of bool in kernels
// with Booleans; the others are smaller without it.
inline constexpr int kRun = 8;

// A pack in stored form. Keeping several costs only the registers of their bytes, and their reads overlap if all are made before
// the first is converted.
struct RawPack {
  uint4 words[2];
};

// Loads elements i to i + kRun; i must be a multiple of kRun.
template <bool Booleans = false>
__device__ inline void load_raw(const Operand& o, int64_t i, RawPack& pack) {
  if (Booleans && o.dtype == DType::boolean) {
    const uint2 bytes = *reinterpret_cast<const uint2*>(static_cast<const uint8_t*>(o.data) + i);
    pack.words[0].x = bytes.x;
    pack.words[0].y = bytes.y;
    return;
  }
  const bool two_words = o.dtype == DType::f32;
  const uint4* const from = static_cast<const uint4*>(o.data) + (two_words ? i / 4 : i / 8);
  pack.words[0] = *from;
  if (two_words) pack.words[1] = from[1];
}
// Loads one element as a pack of copies of it.
template <bool Booleans = false>
__device__ inline void load_one(const Operand& o, int64_t i, RawPack& pack) {
  if (o.dtype == DType::f32)
    pack.words[0].x = static_cast<const uint32_t*>(o.data)[i];
  else if (Booleans && o.dtype == DType::boolean)
    pack.words[0].x = static_cast<const uint8_t*>(o.data)[i];
  else
    pack.words[0].x = static_cast<const uint16_t*>(o.data)[i];
}

template <class T, int N>
__device__ inline void unpack_as(const RawPack& pack, float (&x)[N]) {
  T v[N];
  memcpy(static_cast<void*>(v), pack.words, sizeof v);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if constexpr (std::is_integral_v<T>)
      x[j] = float(v[j]);
    else
      x[j] = to_float(v[j]);
  }
}
// Converts the first N elements of a pack.
template <bool Booleans = false, int N>
__device__ inline void unpack(const RawPack& pack, DType t, float (&x)[N]) {
  if (t == DType::f16)
    unpack_as<__half>(pack, x);
  else if (t == DType::bf16)
    unpack_as<__nv_bfloat16>(pack, x);
  else if (!Booleans || t == DType::f32)
    unpack_as<float>(pack, x);
  else
    unpack_as<uint8_t>(pack, x);
}

template <bool Booleans = false>
__device__ inline void store_run(const Operand& o, int64_t i, const float (&x)[kRun]) {
  if (o.dtype == DType::f16) return store_pack(static_cast<__half*>(o.data) + i, x);
  if (o.dtype == DType::bf16) return store_pack(static_cast<__nv_bfloat16*>(o.data) + i, x);
  if constexpr (Booleans) {
    if (o.dtype == DType::boolean) {
      uint8_t v[kRun];
#pragma unroll
      for (int j = 0; j < kRun; ++j) v[j] = x[j] != 0;
      return store_pack(static_cast<uint8_t*>(o.data) + i, v);
    }
  }
  store_pack(static_cast<float*>(o.data) + i, x);
}

// Returns whether packs can be read: by dtype and by alignment.
inline bool packs_of_any(const TensorView& v) {
  if (v.dtype == DType::boolean) return reinterpret_cast<uintptr_t>(v.data) % kRun == 0;
  return is_floating(v.dtype) && v.dtype != DType::f64 && aligned16(v.data);
}
// Returns whether a step of `step` elements keeps the alignment.
inline bool keeps_packs(const TensorView& v, int64_t step) {
  return step % (v.dtype == DType::boolean ? kRun : 16 / int64_t(size_of(v.dtype))) == 0;
}

// The operands of a kernel that covers its space in packs; the output first. Along the innermost dimension, an input is
// dense, one element for all, or a number without memory.
template <int N>
struct PackOperands {
  Operand v[N];
  float number[N] = {};
  unsigned numbers = 0, repeated = 0;  // bit k: of v[k]

  // Load M elements of input k from offset `at`, in two steps.
  template <bool Booleans, int M>
  __device__ void load(int k, int64_t at, RawPack& pack) const {
    if (numbers >> k & 1) return;
    if (M == 1 || (repeated >> k & 1))
      load_one<Booleans>(v[k], at, pack);
    else
      load_raw<Booleans>(v[k], at, pack);
  }
  template <bool Booleans, int M>
  __device__ void convert(int k, const RawPack& pack, float (&x)[M]) const {
    if (M > 1 && !((numbers | repeated) >> k & 1)) return unpack<Booleans>(pack, v[k].dtype, x);
    float one[1] = {number[k]};
    if (!(numbers >> k & 1)) unpack<Booleans>(pack, v[k].dtype, one);
#pragma unroll
    for (int j = 0; j < M; ++j) x[j] = one[0];
  }
};

// Returns whether a kernel in float can read the views in packs; then fills `o`. views: the output first.
template <int N>
bool packs_fit(const Space<N>& space, const TensorView* const (&views)[N], PackOperands<N>& o, bool booleans = false) {
  const int last = space.rank - 1;
  if (space.rank > 1 && space.shape[last] % kRun != 0) return false;
  for (int k = 0; k < N; ++k) {
    const TensorView& v = *views[k];
    if (v.number) {
      o.numbers |= 1u << k;
      o.number[k] = number_of<float>(v);
      continue;
    }
    if (v.dtype == DType::boolean && !booleans) return false;
    o.v[k] = v;
    const int64_t step = space.rank == 0 ? 1 : space.strides[k][last];
    const bool repeats = k > 0 && step == 0;
    if (repeats) o.repeated |= 1u << k;
    const bool readable = v.dtype == DType::boolean || (is_floating(v.dtype) && v.dtype != DType::f64);
    bool fits = repeats ? readable : step == 1 && packs_of_any(v);
    for (int d = 0; d < last && !repeats; ++d) fits = fits && keeps_packs(v, space.strides[k][d]);
    if (!fits) return false;
  }
  return true;
}

// Computes out = f(in[0], ..., in[Inputs - 1]), pack by pack. Ignores later operands. Flat: the space has one dimension.
template <int Inputs, bool Booleans = false, bool Flat = false, int N, class F>
__device__ inline void for_packs(const PackOperands<N>& o, const Space<N>& space, const F& f) {
  const auto compute = [&](int64_t i, auto size) {
    constexpr int M = decltype(size)::value;
    int64_t at[N];
    if constexpr (Flat || M == 1) {  // one by one, for the rest of one dimension
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] = i * space.strides[k][0];
    } else {
      space.short_offsets(i, at);
    }
    RawPack packs[Inputs];
#pragma unroll
    for (int k = 0; k < Inputs; ++k) o.template load<Booleans, M>(k + 1, at[k + 1], packs[k]);
    float in[Inputs][M], out[M];
#pragma unroll
    for (int k = 0; k < Inputs; ++k) o.template convert<Booleans>(k + 1, packs[k], in[k]);
#pragma unroll
    for (int j = 0; j < M; ++j) {
      float x[Inputs];
#pragma unroll
      for (int k = 0; k < Inputs; ++k) x[k] = in[k][j];
      out[j] = f(x);
    }
    if constexpr (M == 1)
      o.v[0].store_float(at[0], out[0]);
    else
      store_run<Booleans>(o.v[0], at[0], out);
  };
  const int64_t packs = space.numel / kRun, first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t p = first; p < packs; p += step) compute(p * kRun, std::integral_constant<int, kRun>());
  if (packs * kRun + first < space.numel) compute(packs * kRun + first, std::integral_constant<int, 1>());
}

// Number of elements of T in 16 bytes.
template <class T>
inline constexpr int kPackOf = 16 / int(sizeof(T));

// Calls f(type) with a float, __half or __nv_bfloat16; returns false for other dtypes.
template <class F>
bool for_packed_type(DType t, const F& f) {
  switch (t) {
    case DType::f32: f(float{}); return true;
    case DType::f16: f(__half{}); return true;
    case DType::bf16: f(__nv_bfloat16{}); return true;
    default: return false;
  }
}

}  // namespace halfstep::cuda
