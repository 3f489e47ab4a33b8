// SPDX-License-Identifier: Apache-2.0
// Sorting of rows. Elements become unsigned keys of the same order, each with its index, so that all are distinct and every method
// is stable. A few of many are found by keeping the best so far; long rows are sorted by digits (radix), short ones by comparison.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/reduce/rows.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kRadix = 64;   // rows shorter than this are sorted by comparison
constexpr int64_t kGather = 64;  // elements processed between two checks of the remaining room

// Returns the bits of a float in the order of the numbers: NaNs are equal and largest, and -0 equals 0.
template <class U>
constexpr U ordered_bits(U bits, U infinity) {
  constexpr U kSign = U(1) << (sizeof(U) * 8 - 1);
  const U magnitude = U(bits & ~kSign);
  if (magnitude > infinity) return std::numeric_limits<U>::max();
  if (magnitude == 0) return kSign;
  return bits & kSign ? U(~bits) : U(bits | kSign);
}

template <class T>
constexpr auto key_of(T x) {
  if constexpr (std::is_same_v<T, f16>)
    return ordered_bits<uint16_t>(x.bits, 0x7c00);
  else if constexpr (std::is_same_v<T, bf16>)
    return ordered_bits<uint16_t>(x.bits, 0x7f80);
  else if constexpr (std::is_same_v<T, float>)
    return ordered_bits<uint32_t>(std::bit_cast<uint32_t>(x), 0x7f800000u);
  else if constexpr (std::is_same_v<T, double>)
    return ordered_bits<uint64_t>(std::bit_cast<uint64_t>(x), 0x7ff0000000000000u);
  else if constexpr (std::is_signed_v<T>)
    return std::make_unsigned_t<T>(std::make_unsigned_t<T>(x) ^ std::make_unsigned_t<T>(std::numeric_limits<T>::min()));
  else if constexpr (std::is_same_v<T, bool>)
    return uint8_t(x);
  else
    return x;
}

// A key above its index. Keys of up to 32 bits share a word with a 32-bit index.
struct Narrow {
  uint64_t word;
  static Narrow of(uint64_t key, int64_t index) { return {key << 32 | uint64_t(index)}; }
  uint64_t key() const { return word >> 32; }
  int64_t index() const { return int64_t(word & 0xffffffffu); }
  bool operator<(const Narrow& o) const { return word < o.word; }
};
struct Full {
  uint64_t word;
  int64_t element;
  static Full of(uint64_t key, int64_t index) { return {key, index}; }
  uint64_t key() const { return word; }
  int64_t index() const { return element; }
  bool operator<(const Full& o) const { return word != o.word ? word < o.word : element < o.element; }
};

// Sorts n elements by digits of 8 bits, lowest first; skips digits that all keys share. `spare` has room for n.
template <class P>
void radix_sort(P* x, P* spare, int64_t n, int digits) {
  std::array<std::array<int64_t, 256>, 8> counts;
  for (int d = 0; d < digits; ++d) counts[size_t(d)].fill(0);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = x[i].key();
    for (int d = 0; d < digits; ++d) ++counts[size_t(d)][key >> (8 * d) & 0xff];
  }
  P *from = x, *to = spare;
  for (int d = 0; d < digits; ++d) {
    auto& count = counts[size_t(d)];
    if (count[from[0].key() >> (8 * d) & 0xff] == n) continue;
    int64_t start = 0;
    for (int64_t& c : count) start += std::exchange(c, start);
    for (int64_t i = 0; i < n; ++i) to[count[from[i].key() >> (8 * d) & 0xff]++] = from[i];
    std::swap(from, to);
  }
  if (from != x) std::copy_n(from, n, x);
}

template <class P>
void sort_all(std::vector<P>& x, std::vector<P>& spare, int64_t n, int digits) {
  if (n < kRadix) return std::sort(x.begin(), x.begin() + n);
  if (int64_t(spare.size()) < n) spare.resize(size_t(n));
  radix_sort(x.data(), spare.data(), n, digits);
}

// Collects the k smallest of n elements, pair(0) to pair(n - 1), in `out`, which has room for more; returns k. `limit`: above all.
// Discards elements that are not below the k-th smallest so far, and collects the others until the room is full.
template <class P, class F>
int64_t collect_smallest(std::vector<P>& out, int64_t n, int64_t k, P limit, const F& pair) {
  const int64_t capacity = std::ssize(out);
  P* const to = out.data();
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += kGather) {
    const int64_t last = std::min(n, first + kGather);
    for (int64_t i = first; i < last; ++i) {
      to[count] = pair(i);
      count += to[count] < limit;
    }
    if (count > k && (count + kGather > capacity || last == n)) {
      std::nth_element(to, to + k - 1, to + count);
      limit = to[k - 1];
      count = k;
    }
  }
  if (k < kRadix) return k;
  // Collects them once more, by their indices: sorting by digits keeps equal keys in order.
  count = 0;
  for (int64_t i = 0; count < k; ++i) {
    to[count] = pair(i);
    count += !(limit < to[count]);
  }
  return count;
}

template <class T, class P>
void sort_rows(const TensorView& x, int dim, bool descending, int64_t k, const TensorView& values, const TensorView& indices) {
  constexpr int kDigits = int(sizeof(T));
  using Key = decltype(key_of(T{}));
  const int64_t n = row_length(x, dim), step = row_stride(x, dim);
  const int64_t value_step = row_stride(values, dim), index_step = row_stride(indices, dim);
  const Space rows(without(x.shape, dim), {&x.strides, &values.strides, &indices.strides});
  const Key flip = descending ? std::numeric_limits<Key>::max() : Key(0);
  const bool collects = k < n / 2;
  const int64_t capacity = collects ? std::min(n, 4 * k + kGather) + kGather : n;
  parallel_for(rows.numel, 1, rows.numel * n * 16, [&](int64_t begin, int64_t end) {
    std::vector<P> best(static_cast<size_t>(capacity)), spare;
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x.as<const T>() + Cursor(rows, 0, r).offset();
      const auto pair = [&](int64_t i) { return P::of(uint64_t(Key(key_of(in[i * step]) ^ flip)), i); };
      int64_t count = n;
      if (collects)
        count = collect_smallest(best, n, k, P::of(std::numeric_limits<Key>::max(), n), pair);
      else
        for (int64_t i = 0; i < n; ++i) best[size_t(i)] = pair(i);
      sort_all(best, spare, count, kDigits);
      T* value = values.as<T>() + Cursor(rows, 1, r).offset();
      int64_t* index = indices.as<int64_t>() + Cursor(rows, 2, r).offset();
      for (int64_t i = 0; i < k; ++i) {
        const int64_t at_i = best[size_t(i)].index();
        index[i * index_step] = at_i;
        value[i * value_step] = in[at_i * step];
      }
    }
  });
}

}  // namespace

void sort(const TensorView& x, int dim, bool descending, int64_t k, const TensorView& values, const TensorView& indices) {
  if (indices.numel() == 0) return;
  dispatch(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto run = sizeof(T) <= 4 && row_length(x, dim) < (int64_t(1) << 32) ? sort_rows<T, Narrow> : sort_rows<T, Full>;
    run(x, dim, descending, k, values, indices);
  });
}

}  // namespace halfstep::cpu
