// Neighbouring elements in the fewest accesses: 16 bytes at a time, or all of them at once where they are fewer. The memory is
// aligned to that. Streaming: nobody wants these bytes soon again, so they need not displace others in the cache.
#pragma once

#include <type_traits>

#include "cuda/gpu.cuh"

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

// x[j] = p[j], as the type to compute in.
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
  for (int j = 0; j < N; ++j) x[j] = C(to_f(v[j]));
}

// p[j] = x[j], rounded to T.
template <Cached cached = Cached::yes, class T, class C, int N>
__device__ inline void store_pack(T* p, const C (&x)[N]) {
  using Word = typename WordOf<N* int(sizeof(T))>::type;
  constexpr int kWords = N * int(sizeof(T)) / int(sizeof(Word));
  T v[N];
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = from_f<T>(x[j]);
  Word words[kWords];
  memcpy(static_cast<void*>(words), v, sizeof v);
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    Word* to = reinterpret_cast<Word*>(p) + k;
    if constexpr (cached == Cached::yes)
      __stwb(to, words[k]);  // as *to = words[k], which the compiler may cut into smaller stores
    else
      __stcs(to, words[k]);
  }
}

// Elements of T in 16 bytes.
template <class T>
inline constexpr int kPackOf = 16 / int(sizeof(T));

// f(type) with float, __half or __nv_bfloat16 as a value; false for other dtypes.
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
