// SPDX-License-Identifier: Apache-2.0
// Maxima (see pool.cpp) of the most common windows: 2 x 2 with a stride of 2, all inside. One call computes a plane, because rows
// of small images are short. 16-bit elements are compared as integers and copied unchanged.
#include <cstring>
#include <limits>
#include <type_traits>

#include "framework/backend/cpu/lanes.h"
#include "framework/backend/cpu/pool/pool.h"

namespace halfstep::cpu::pooling {
namespace {

bool are_pairs(const Axis& a) {
  return !a.adaptive && a.size == 2 && a.stride == 2 && a.padding == 0 && a.dilation == 1 && 2 * a.out <= a.in;
}

template <class T, int N>
struct VectorOf {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};

// The key by which a window is compared: float32 and float64 themselves; for 16 bits, an integer in the same order. NaN is
// largest.
template <class T>
constexpr bool kIs16 = sizeof(T) == 2;
template <class T>
using Key = std::conditional_t<kIs16<T>, int32_t, T>;
template <class T>
using Word = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

// Loads the numbers at even and odd places of 2N as vectors of N; 16-bit ones into the low half of a word.
template <class T, int N>
HS_INLINE inline void load_pairs(const T* x, typename VectorOf<Key<T>, N>::type& left, typename VectorOf<Key<T>, N>::type& right) {
  if constexpr (kIs16<T>) {
    typename VectorOf<uint32_t, N>::type words;
    std::memcpy(&words, x, sizeof words);
    left = typename VectorOf<Key<T>, N>::type(words & 0xffff);
    right = typename VectorOf<Key<T>, N>::type(words >> 16);
  } else if constexpr (N == 1) {
    left[0] = x[0], right[0] = x[1];
  } else {
    typename VectorOf<T, N>::type a, b;
    std::memcpy(&a, x, sizeof a);
    std::memcpy(&b, x + N, sizeof b);
    if constexpr (N == 4) {
      left = __builtin_shufflevector(a, b, 0, 2, 4, 6);
      right = __builtin_shufflevector(a, b, 1, 3, 5, 7);
    } else {
      static_assert(N == 8);
      left = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
      right = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
    }
  }
}

// Computes keys; -0 equals 0, and all NaNs are equal.
template <class T, class V>
HS_INLINE inline void key_of(const V& v, V& key) {
  if constexpr (kIs16<T>) {
    constexpr int32_t kInfinity = std::is_same_v<T, bf16> ? 0x7f80 : 0x7c00;
    const V size = v & 0x7fff, sign = -(v >> 15);
    key = (size ^ sign) - sign;
    key = size > kInfinity ? V{} + 0x8000 : key;
  } else {
    key = v;
  }
}

// Computes N outputs. upper: the first number of the first window; row_step: distance to the next row; first: the index of
// upper[0].
template <class T, class P, bool Indices, int N>
HS_INLINE inline void square_maxima(const T* upper, int64_t row_step, Word<T> first, T* best, P* where) {
  using V = typename VectorOf<Key<T>, N>::type;
  using Marks = typename VectorOf<Word<T>, N>::type;
  V most, v[4];
  load_pairs<T, N>(upper, v[0], v[1]);
  load_pairs<T, N>(upper + row_step, v[2], v[3]);
  Marks at, place;
  for (int i = 0; i < N; ++i) at[i] = Word<T>(2 * i);
  at += first;
  most = v[0], place = at;
  V most_key, key;
  key_of<T>(most, most_key);
  for (int k = 1; k < 4; ++k) {
    key_of<T>(v[k], key);
    Marks takes;
    if constexpr (kIs16<T>)
      takes = key > most_key;
    else
      takes = (key > most_key) | ((key != key) & (most_key == most_key));
    most = takes ? v[k] : most;
    most_key = takes ? key : most_key;
    if constexpr (Indices) place = takes ? Marks(at + Word<T>((k & 1) + (k >> 1) * row_step)) : place;
  }
  if constexpr (kIs16<T>) {
    const auto bits = __builtin_convertvector(most, typename VectorOf<uint16_t, N>::type);
    std::memcpy(static_cast<void*>(best), &bits, sizeof bits);
  } else {
    std::memcpy(best, &most, sizeof most);
  }
  if constexpr (Indices) {
    const auto stored = __builtin_convertvector(place, typename VectorOf<P, N>::type);
    std::memcpy(where, &stored, sizeof stored);
  }
}

// Computes a row of n outputs, N at a time; the last vectors overlap.
template <class T, class P, bool Indices, int N>
HS_INLINE inline void maxima_of_row(const T* upper, int64_t row_step, Word<T> first, T* best, P* where, int64_t n) {
  for (int64_t step = 0; step < n; step += N) {
    const int64_t i = step + N <= n ? step : n - N;
    square_maxima<T, P, Indices, N>(upper + 2 * i, row_step, Word<T>(first + 2 * i), best + i, Indices ? where + i : nullptr);
  }
}

template <class T, class P, bool Indices>
HS_CLONES void maxima_of_plane(const T* x, int64_t width, T* best, P* where, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* const upper = x + 2 * r * width;
    const auto first = Word<T>(2 * r * width);
    T* const out = best + r * n;
    P* const to = Indices ? where + r * n : nullptr;
    if (n >= 8)
      maxima_of_row<T, P, Indices, 8>(upper, width, first, out, to, n);
    else if (n >= 4)
      maxima_of_row<T, P, Indices, 4>(upper, width, first, out, to, n);
    else
      maxima_of_row<T, P, Indices, 1>(upper, width, first, out, to, n);
  }
}

template <class T>
void all_planes(const TensorView& x, const Pooling& p, const TensorView& out, const TensorView& indices) {
  const int64_t in = p.in_plane(), n = p.y.out * p.x.out;
  parallel_for(p.planes, 1, out.numel() * 2, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const T* const from = x.as<const T>() + plane * in;
      T* const to = out.as<T>() + plane * n;
      if (indices)
        with_index_type(indices, [&]<class P>(P) {
          maxima_of_plane<T, P, true>(from, p.x.in, to, indices.as<P>() + plane * n, p.y.out, p.x.out);
        });
      else
        maxima_of_plane<T, int64_t, false>(from, p.x.in, to, nullptr, p.y.out, p.x.out);
    }
  });
}

}  // namespace

bool max_pool_squares(const TensorView& x, const Pooling& p, const TensorView& out, const TensorView& indices) {
  const bool fits = p.lanes == 1 && p.z.in == 1 && p.z.out == 1 && are_pairs(p.y) && are_pairs(p.x) && x.dtype == out.dtype;
  if (!fits || p.in_plane() > std::numeric_limits<int32_t>::max()) return false;
  switch (x.dtype) {
    case DType::f16: all_planes<f16>(x, p, out, indices); return true;
    case DType::bf16: all_planes<bf16>(x, p, out, indices); return true;
    case DType::f32: all_planes<float>(x, p, out, indices); return true;
    case DType::f64: all_planes<double>(x, p, out, indices); return true;
    default: return false;
  }
}

}  // namespace halfstep::cpu::pooling
