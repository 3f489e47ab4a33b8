// SPDX-License-Identifier: Apache-2.0
// Lines along the dimension of an index, for kernels that scatter.
#pragma once

#include "cuda/kernels/reduce/rows.cuh"

namespace halfstep::cuda {

inline constexpr int64_t kSortedLine = 512;  // from this length on, a line is sorted instead of searched

// Returns the index's strides along the dimensions of `shape`.
inline Strides spread(const TensorView& index, const Shape& shape, int dim) {
  if (index.shape.size() == shape.size()) return index.strides;
  Strides strides = Strides::filled(shape.size(), 0);
  if (!shape.empty() && !index.shape.empty()) strides[dim] = index.strides[0];
  return strides;
}

// Lines along the dimension of the index. space: offsets of their starts in out, index and src; length: of a line of src; size: of
// a line of out, below which indices must be; steps: along the dimension.
struct Lines {
  Space<3> space;
  const int64_t* index;
  int64_t length, size, out_step, index_step, src_step;

  Lines(const TensorView& out, int dim, const int64_t* indices, const Strides& chosen, const TensorView& src)
      : space(without(src.shape, dim), {&out.strides, &chosen, &src.strides}),
        index(indices),
        length(row_length(src, dim)),
        size(row_length(out, dim)),
        out_step(along(out.strides, dim)),
        index_step(along(chosen, dim)),
        src_step(along(src.strides, dim)) {}

 private:
  static int64_t along(const Strides& s, int dim) { return s.empty() ? 0 : s[dim]; }
};

// How a thread accesses lines: one element of any dtype, or four neighbours of one packed dtype.
template <class Number>
struct OneLine {
  using C = Number;
  static constexpr int kWidth = 1;
  Operand out, src;

  __device__ void load_src(int64_t i, C* x) const { x[0] = src.load<C>(i); }
  __device__ void load_out(int64_t i, C* x) const { x[0] = out.load<C>(i); }
  __device__ void store_out(int64_t i, const C* x) const { out.store(i, x[0]); }
};
template <class T>
struct PackedLines {
  using C = float;
  static constexpr int kUnits = 1, kWidth = 4;
  struct alignas(4 * sizeof(T)) Four {
    T v[4];
  };
  T* out;
  const T* src;

  __device__ static void load(const T* from, C* x) {
    const Four f = *reinterpret_cast<const Four*>(from);
#pragma unroll
    for (int w = 0; w < 4; ++w) x[w] = to_float(f.v[w]);
  }
  __device__ void load_src(int64_t i, C* x) const { load(src + i, x); }
  __device__ void load_out(int64_t i, C* x) const { load(out + i, x); }
  __device__ void store_out(int64_t i, const C* x) const {
    Four f;
#pragma unroll
    for (int w = 0; w < 4; ++w) f.v[w] = from_float<T>(x[w]);
    *reinterpret_cast<Four*>(out + i) = f;
  }
};

// Counts the space in packs of `width` lines if those are side by side and can be read at once; width divides 16 bytes or is 4.
inline bool pack_lines(const TensorView& out, const TensorView& src, int64_t width, Lines& lines) {
  Space<3>& space = lines.space;
  const int last = space.rank - 1;
  const auto aligned = [&](const TensorView& v) {
    return reinterpret_cast<uintptr_t>(v.data) % (size_t(width) * size_of(v.dtype)) == 0;
  };
  if (last < 0 || out.dtype != src.dtype || !aligned(out) || !aligned(src)) return false;
  if (space.strides[0][last] != 1 || space.strides[1][last] != 0 || space.strides[2][last] != 1) return false;
  if (space.shape[last] % width != 0 || lines.out_step % width != 0 || lines.src_step % width != 0) return false;
  for (int d = 0; d < last; ++d) {
    if (space.strides[0][d] % width != 0 || space.strides[2][d] % width != 0) return false;
  }
  space.strides[0][last] = space.strides[2][last] = width;
  space.shape[last] /= width;
  space.numel /= width;
  return true;
}

// Implements scatter_add by sorted lines: the time grows with their length, not with its square.
void scatter_add_sorted(const Queue& q, const TensorView& out, int dim, const TensorView& index, const TensorView& src);

}  // namespace halfstep::cuda
