// SPDX-License-Identifier: Apache-2.0
// Sorts rows. Elements become unsigned keys of the same order, each with its index, so that all are distinct, and every method is
// stable and gives the same result. A tile is sorted in shared memory (a bitonic network), and short rows share one; the tiles of
// longer rows are merged pass by pass, where each element finds its place by a search in the other run.
#include "cuda/kernels/reduce/rows.cuh"
#include "framework/backend/workspace.h"

namespace halfstep::cuda {
namespace {

// Returns the bits of a float in the order of the numbers: NaNs are equal and largest, and -0 equals 0.
template <class U>
__device__ inline uint64_t ordered_bits(U bits, U infinity) {
  const U sign = U(U(1) << (sizeof(U) * 8 - 1)), magnitude = U(bits & U(~sign));
  if (magnitude > infinity) return U(~U(0));
  if (magnitude == 0) return sign;
  return bits & sign ? U(~bits) : U(bits | sign);
}
template <class U>
__device__ inline U bits_at(const Operand& x, int64_t i) {
  return static_cast<const U*>(x.data)[i];
}
// Returns the key of element i; below 2^32 for elements of up to 32 bits.
__device__ inline uint64_t key_at(const Operand& x, int64_t i, bool descending) {
  uint64_t key = 0, mask = 0xff;  // of the key's bits
  switch (x.dtype) {
    case DType::f16: key = ordered_bits<uint16_t>(bits_at<uint16_t>(x, i), 0x7c00), mask = 0xffff; break;
    case DType::bf16: key = ordered_bits<uint16_t>(bits_at<uint16_t>(x, i), 0x7f80), mask = 0xffff; break;
    case DType::f32: key = ordered_bits<uint32_t>(bits_at<uint32_t>(x, i), 0x7f800000u), mask = 0xffffffffu; break;
    case DType::f64: key = ordered_bits<uint64_t>(bits_at<uint64_t>(x, i), 0x7ff0000000000000u), mask = ~uint64_t(0); break;
    case DType::u8:
    case DType::boolean: key = bits_at<uint8_t>(x, i); break;
    case DType::i8: key = bits_at<uint8_t>(x, i) ^ 0x80u; break;
    case DType::i16: key = bits_at<uint16_t>(x, i) ^ 0x8000u, mask = 0xffff; break;
    case DType::i32: key = bits_at<uint32_t>(x, i) ^ 0x80000000u, mask = 0xffffffffu; break;
    case DType::i64: key = bits_at<uint64_t>(x, i) ^ 0x8000000000000000u, mask = ~uint64_t(0); break;
  }
  return descending ? key ^ mask : key;
}

// A key above its index; keys of up to 32 bits share a word with a 32-bit index. `last` comes after every pair of a row.
struct Narrow {
  uint64_t word;
  __device__ static Narrow of(uint64_t key, int64_t index) { return {key << 32 | uint64_t(index)}; }
  __device__ static Narrow last() { return {~uint64_t(0)}; }
  __device__ int64_t index() const { return int64_t(word & 0xffffffffu); }
  __device__ bool operator<(const Narrow& o) const { return word < o.word; }
};
struct Full {
  uint64_t key;
  int64_t at;  // the index
  __device__ static Full of(uint64_t key, int64_t index) { return {key, index}; }
  __device__ static Full last() { return {~uint64_t(0), INT64_MAX}; }
  __device__ int64_t index() const { return at; }
  __device__ bool operator<(const Full& o) const { return key != o.key ? key < o.key : at < o.at; }
};

// Pairs in a tile: 16 KiB of shared memory.
template <class P>
inline constexpr int kTile = 16384 / int(sizeof(P));

struct Rows {
  Operand x, values, indices;
  Space<3> rows;  // offsets in x, values and indices
  int64_t length, k;  // elements that are sorted, and the first of them that are written
  int64_t x_step, value_step, index_step;
  bool descending;
  int element_bytes;

  // Writes element `place` of the sorted row: the one at `index`.
  __device__ void write(int64_t row, int64_t place, int64_t index) const {
    int64_t at[3];
    rows.offsets(row, at);
    static_cast<int64_t*>(indices.data)[at[2] + place * index_step] = index;
    const int64_t from = at[0] + index * x_step, to = at[1] + place * value_step;
    switch (element_bytes) {
      case 1: static_cast<uint8_t*>(values.data)[to] = bits_at<uint8_t>(x, from); break;
      case 2: static_cast<uint16_t*>(values.data)[to] = bits_at<uint16_t>(x, from); break;
      case 4: static_cast<uint32_t*>(values.data)[to] = bits_at<uint32_t>(x, from); break;
      default: static_cast<uint64_t*>(values.data)[to] = bits_at<uint64_t>(x, from); break;
    }
  }
};

// Sorts tiles of pieces, each a whole row or a tile's part of a longer one. part: the places of a tile for one piece, a power of
// two. runs: null if each row is one piece, whose result is written; else the sorted pieces are stored there, [rows, length].
template <class P>
__global__ void __launch_bounds__(kThreads) sort_tiles(Rows r, int part, P* runs) {
  SHARED(P, tile, [kTile<P>]);
  const int64_t pieces = (r.length + part - 1) / part, pieces_in_all = r.rows.numel * pieces, per_tile = kTile<P> / part;
  for (int64_t first = int64_t(blockIdx.x) * per_tile; first < pieces_in_all; first += int64_t(gridDim.x) * per_tile) {
    // No barrier: the thread that fills a place has itself read the last tile's element there.
    for (int i = int(threadIdx.x); i < kTile<P>; i += kThreads) {
      const int64_t piece = first + i / part, at = piece % pieces * part + i % part;
      tile[i] = P::last();
      if (piece < pieces_in_all && at < r.length) {
        int64_t offset[3];
        r.rows.offsets(piece / pieces, offset);
        tile[i] = P::of(key_at(r.x, offset[0] + at * r.x_step, r.descending), at);
      }
    }
    for (int size = 2; size <= part; size *= 2) {
      for (int step = size / 2; step > 0; step /= 2) {
        __syncthreads();
        for (int t = int(threadIdx.x); t < kTile<P> / 2; t += kThreads) {
          const int i = 2 * t - (t & (step - 1)), j = i + step;
          const P a = tile[i], b = tile[j];
          // The last round of each part leaves it ascending.
          const bool ascending = (i & (part - 1) & size) == 0;
          if ((b < a) == ascending) {
            tile[i] = b;
            tile[j] = a;
          }
        }
      }
    }
    __syncthreads();
    for (int i = int(threadIdx.x); i < kTile<P>; i += kThreads) {
      const int64_t piece = first + i / part, at = piece % pieces * part + i % part;
      if (piece >= pieces_in_all || at >= r.length) continue;
      if (runs)
        runs[piece / pieces * r.length + at] = tile[i];
      else if (at < r.k)
        r.write(piece, at, tile[i].index());
    }
  }
}

// Merges pairs of runs of `run` elements of each row.
template <class P>
__global__ void __launch_bounds__(kThreads) merge_runs(const P* from, P* to, int64_t rows, int64_t length, int64_t run) {
  const int64_t threads = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * length; i += threads) {
    const int64_t row = i / length, at = i % length, first = at / (2 * run) * (2 * run);
    const bool second = at - first >= run;
    const int64_t other = second ? first : first + run, most = length - other < run ? length - other : run;
    const P* const search = from + row * length + other;
    const P pair = from[i];
    int64_t below = 0;  // how many elements of the other run come before
    for (int64_t left = most > 0 ? most : 0; left > 0;) {
      const int64_t half = left / 2;
      const bool up = search[below + half] < pair;
      below = up ? below + half + 1 : below;
      left = up ? left - half - 1 : half;
    }
    to[row * length + first + (at - first - (second ? run : 0)) + below] = pair;
  }
}

template <class P>
__global__ void __launch_bounds__(kThreads) write_rows(Rows r, const P* sorted) {
  const int64_t threads = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < r.rows.numel * r.k; i += threads) {
    const int64_t row = i / r.k, place = i % r.k;
    r.write(row, place, sorted[row * r.length + place].index());
  }
}

template <class P>
void sort_as(const Queue& q, const Rows& r) {
  int part = 2;
  while (part < kTile<P> && part < r.length) part *= 2;
  const int64_t pieces = r.rows.numel * ((r.length + part - 1) / part);
  const unsigned blocks = blocks_for(pieces, kTile<P> / part);
  if (r.length <= part) return launch(sort_tiles<P>, blocks, kThreads, 0, q.stream, r, part, nullptr);
  const int64_t elements = r.rows.numel * r.length;
  const Workspace space(Device::cuda, size_t(2 * elements) * sizeof(P));
  P *from = reinterpret_cast<P*>(space.data()), *to = from + elements;
  launch(sort_tiles<P>, blocks, kThreads, 0, q.stream, r, part, from);
  for (int64_t run = part; run < r.length; run *= 2) {
    launch(merge_runs<P>, blocks_for(elements, kThreads), kThreads, 0, q.stream, from, to, r.rows.numel, r.length, run);
    P* const merged = to;
    to = from;
    from = merged;
  }
  launch(write_rows<P>, blocks_for(r.rows.numel * r.k, kThreads), kThreads, 0, q.stream, r, from);
}

}  // namespace

void sort(const Queue& q, const TensorView& x, int dim, bool descending, int64_t k, const TensorView& values,
          const TensorView& indices) {
  if (indices.numel() == 0) return;
  const Rows rows{.x = x,
                  .values = values,
                  .indices = indices,
                  .rows = Space<3>(without(x.shape, dim), {&x.strides, &values.strides, &indices.strides}),
                  .length = row_length(x, dim),
                  .k = k,
                  .x_step = row_stride(x, dim),
                  .value_step = row_stride(values, dim),
                  .index_step = row_stride(indices, dim),
                  .descending = descending,
                  .element_bytes = int(size_of(x.dtype))};
  size_of(x.dtype) <= 4 && rows.length < INT64_C(0xffffffff) ? sort_as<Narrow>(q, rows) : sort_as<Full>(q, rows);
}

}  // namespace halfstep::cuda
