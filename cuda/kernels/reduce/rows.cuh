// SPDX-License-Identifier: Apache-2.0
// Rows for groups of threads: one warp for short rows (eight rows per block), the whole block for long ones. The order of sums
// depends only on the shape.
#pragma once

#include "cuda/kernels/elementwise/elementwise.cuh"
#include "framework/math/combine.h"

namespace halfstep::cuda {

inline constexpr int64_t kWarpRow = 1024;  // longest row for one warp
inline constexpr int kBlockWarps = kThreads / 32;
inline constexpr int64_t kPeeledRow = 128;                         // least length of unaligned rows that are read in packs
inline constexpr int kHeldPacks = int(kWarpRow / (32 * kRun));     // packs of a row that a thread keeps in registers
inline constexpr int64_t kHeldRow = kHeldPacks * kThreads * kRun;  // longest row that a block keeps in registers

// Rows side by side in memory: with at least this number of them, or at most this length, each is taken by one thread.
inline constexpr int64_t kManyColumns = 4096, kShortColumn = 128;

using math::MaxJoin;
using math::MinJoin;
using math::ProductJoin;
using math::SumJoin;

template <class Join, class W>
__device__ inline W warp_join(W v) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) v = Join::join(v, W(__shfl_xor_sync(kFullMask, v, bits)));
  return v;
}

// Joins v over the block. All threads must call it, and all get the result. `shared` holds kBlockWarps values.
template <class Join, class W>
__device__ inline W block_join(W v, W* shared) {
  v = warp_join<Join>(v);
  __syncthreads();  // waits until the values of an earlier call were read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  v = shared[0];
#pragma unroll
  for (int w = 1; w < kBlockWarps; ++w) v = Join::join(v, shared[w]);
  return v;
}

// A block of kThreads threads, divided into groups of Warps warps (1 or kBlockWarps), each with its own rows.
template <int Warps>
struct RowGroup {
  static constexpr int kSize = 32 * Warps, kPerBlock = kBlockWarps / Warps;

  __device__ static int rank() { return int(threadIdx.x) % kSize; }
  __device__ static int in_block() { return int(threadIdx.x) / kSize; }  // index of the group in the block
  __device__ static int64_t first_row() { return int64_t(blockIdx.x) * kPerBlock + in_block(); }
  __device__ static int64_t row_step() { return int64_t(gridDim.x) * kPerBlock; }

  template <class Join, class W>
  __device__ static W join(W v, W* shared) {
    if constexpr (Warps == 1)
      return warp_join<Join>(v);
    else
      return block_join<Join>(v, shared);
  }

  // Calls f(i, size) for this thread's parts of [begin, end): `Pack` elements from i, and those after the last whole pack one by
  // one. head: where the first whole pack is; begin must be `head` plus a multiple of Pack. Unroll: how many reads may be in
  // progress at a time, if f does not write. There is no branch between them, because the compiler moves no read up across one.
  template <int Pack, int Unroll = 1, class F>
  __device__ static void each(int64_t begin, int64_t end, const F& f, int64_t head = 0) {
    constexpr int kStep = kSize * Pack;
    int64_t i = begin + int64_t(rank()) * Pack;
    if constexpr (Unroll > 1) {
      for (; i + (Unroll - 1) * kStep + Pack <= end; i += Unroll * kStep) {
#pragma unroll
        for (int k = 0; k < Unroll; ++k) f(i + k * kStep, std::integral_constant<int, Pack>());
      }
    }
    for (; i + Pack <= end; i += kStep) f(i, std::integral_constant<int, Pack>());
    if constexpr (Pack > 1) {
      i = head + (end - head) / Pack * Pack + rank();
      if (i < end) f(i, std::integral_constant<int, 1>());
    }
  }
  // Does the same for the n elements of the row at offset `row`, in packs if Rows has them.
  template <class Rows, class F>
  __device__ static void each_of(int64_t row, int64_t n, const F& f) {
    if constexpr (Rows::kPeels) {
      const int64_t head = Rows::head(row, n);
      if (rank() < head) f(int64_t(rank()), std::integral_constant<int, 1>());
      each<Rows::kPack>(head, n, f, head);
    } else {
      each<Rows::kPack>(0, n, f);
    }
  }
};

inline unsigned row_blocks(int64_t rows, int64_t length) {
  return length <= kWarpRow ? blocks_for(rows, kBlockWarps) : blocks_for(rows, 1);
}

// Dense rows of T, aligned to 16 bytes. load and store: elements from i on of the row at offset `row`.
template <class T>
struct PackedRows {
  using Compute = float;
  static constexpr int kPack = kPackOf<T>;
  T* data;

  PackedRows(const TensorView& v, int64_t) : data(v.as<T>()) {}
  template <int N>
  __device__ void load(int64_t row, int64_t i, float (&x)[N]) const {
    load_pack(data + row + i, x);
  }
  template <int N>
  __device__ void store(int64_t row, int64_t i, const float (&x)[N]) const {
    store_pack(data + row + i, x);
  }
};

// Such rows of f16, bf16 or f32, looked up at run time: the operands of one kernel may differ.
struct RunRows {
  using Compute = float;
  using Stored = RawPack;
  static constexpr int kPack = kRun;
  static constexpr bool kPeels = false;  // every row begins with a pack
  Operand data;

  RunRows() = default;
  RunRows(const TensorView& v, int64_t) : data(v) {}
  __device__ explicit RunRows(const Operand& data) : data(data) {}
  __device__ void fetch(int64_t row, int64_t i, Stored& pack) const { load_raw(data, row + i, pack); }
  __device__ void convert(const Stored& pack, float (&x)[kRun]) const { unpack(pack, data.dtype, x); }
  template <int N>
  __device__ void load(int64_t row, int64_t i, float (&x)[N]) const {
    Stored pack;
    N == kRun ? load_raw(data, row + i, pack) : load_one(data, row + i, pack);
    unpack(pack, data.dtype, x);
  }
  __device__ void store(int64_t row, int64_t i, const float (&x)[kRun]) const { store_run(data, row + i, x); }
  __device__ void store(int64_t row, int64_t i, const float (&x)[1]) const { data.store_float(row + i, x[0]); }
};

// Such rows of any length, for example 50257: a row begins anywhere, and its elements before the first whole pack of memory
// are read one by one. Their number is the same for all operands of a kernel.
struct PeeledRows : RunRows {
  static constexpr bool kPeels = true;
  using RunRows::RunRows;
  __device__ static int64_t head(int64_t row, int64_t n) {
    const int64_t before = -row & (kRun - 1);
    return before < n ? before : n;
  }
};

// Rows of any floating dtype and stride, computed in C.
template <class C>
struct AnyRows {
  using Compute = C;
  using Stored = C;
  static constexpr int kPack = 1;
  static constexpr bool kPeels = false;
  Operand data;
  int64_t step;

  AnyRows() = default;
  AnyRows(const TensorView& v, int64_t step) : data(v), step(step) {}
  __device__ void fetch(int64_t row, int64_t i, Stored& x) const { x = data.load_floating<C>(row + i * step); }
  __device__ void convert(const Stored& stored, C (&x)[1]) const { x[0] = stored; }

  __device__ void load(int64_t row, int64_t i, C (&x)[1]) const { x[0] = data.load_floating<C>(row + i * step); }
  __device__ void store(int64_t row, int64_t i, const C (&x)[1]) const { data.store_floating(row + i * step, x[0]); }
};

// A thread's part of `Count` rows of one length that are read more than once. The first packs (all of a warp's rows, and the first
// 8192 elements of a block's) are read at once and stay in registers in stored form. The rest is read every time; because the
// registers leave room for few blocks at a time, it is still in the cache. So are all rows that are not in packs.
template <class Rows, class Group, int Count>
class HeldRows {
 public:
  static constexpr int kPack = Rows::kPack, kHeld = kPack == 1 ? 0 : kHeldPacks;
  using C = typename Rows::Compute;

  __device__ HeldRows(const Rows (&rows)[Count], const int64_t (&at)[Count], int64_t n) : n_(n) {
    if constexpr (Rows::kPeels) head_ = Rows::head(at[0], n);
#pragma unroll
    for (int r = 0; r < Count; ++r) {
      rows_[r] = rows[r];
      at_[r] = at[r];
    }
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (head() + pack_offset(k) + kPack > n_) continue;
#pragma unroll
      for (int r = 0; r < Count; ++r) rows_[r].fetch(at_[r], head() + pack_offset(k), held_[k][r]);
    }
  }
  // Calls f(k, i, x) for the held packs: x[r] are the elements of row r from i, this thread's k-th pack.
  template <class F>
  __device__ void each_held(const F& f) const {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (head() + pack_offset(k) + kPack > n_) continue;
      C x[Count][kPack];
#pragma unroll
      for (int r = 0; r < Count; ++r) rows_[r].convert(held_[k][r], x[r]);
      f(k, head() + pack_offset(k), x);
    }
  }
  // Calls f(i, x) for all elements: as many as a pack has, or one.
  template <class F>
  __device__ void each(const F& f) const {
    const auto read = [&](int64_t i, auto size) {
      C x[Count][size.value];
#pragma unroll
      for (int r = 0; r < Count; ++r) rows_[r].load(at_[r], i, x[r]);
      f(i, x);
    };
    if constexpr (Rows::kPeels) {
      if (Group::rank() < head()) read(int64_t(Group::rank()), std::integral_constant<int, 1>());
    }
    each_held([&](int, int64_t i, auto& x) { f(i, x); });
    Group::template each<kPack>(head() + Group::kSize * kPack * kHeld, n_, read, head());
  }

  // Returns where this thread's k-th pack begins, after the elements before the first one.
  __device__ static int64_t pack_offset(int k) { return (Group::rank() + int64_t(k) * Group::kSize) * kPack; }

 private:
  __device__ int64_t head() const { return Rows::kPeels ? head_ : 0; }

  Rows rows_[Count];
  int64_t at_[Count];
  int64_t n_, head_ = 0;
  typename Rows::Stored held_[kHeld > 0 ? kHeld : 1][Count];
};

template <class C, int N>
__device__ constexpr int length_of(const C (&)[N]) {
  return N;
}

// Returns the shape that indexes the rows of a tensor along `dim`: its shape with that dimension 1. Rank 0 counts as one row of
// one element.
inline Shape without(Shape shape, int dim) {
  if (!shape.empty()) shape[dim] = 1;
  return shape;
}
inline int64_t row_length(const TensorView& v, int dim) { return v.shape.empty() ? 1 : v.shape[dim]; }
inline int64_t row_stride(const TensorView& v, int dim) { return v.shape.empty() ? 1 : v.strides[dim]; }

// Returns whether PackedRows can read the rows along `dim`.
inline bool packs(const TensorView& v, int dim) {
  const int64_t pack = 16 / int64_t(size_of(v.dtype));
  if (!is_floating(v.dtype) || v.dtype == DType::f64 || v.shape.empty() || v.strides[dim] != 1 || !aligned16(v.data)) return false;
  for (int d = 0; d < v.shape.size(); ++d) {
    if (d != dim && v.shape[d] > 1 && v.strides[d] % pack != 0) return false;
  }
  return true;
}

// Returns whether PeeledRows can read them: rows that are long enough and begin at the same place within a pack in all operands.
inline bool peels(std::initializer_list<const TensorView*> operands, int dim) {
  const TensorView& first = **operands.begin();
  for (const TensorView* v : operands) {
    if (!is_floating(v->dtype) || v->dtype == DType::f64 || v->shape.empty() || v->strides[dim] != 1 || !aligned16(v->data))
      return false;
    if (v->shape[dim] < kPeeledRow) return false;
    for (int d = 0; d < v->shape.size(); ++d) {
      if (d != dim && v->shape[d] > 1 && (v->strides[d] - first.strides[d]) % kRun != 0) return false;
    }
  }
  return true;
}

// Calls f(Rows*) with a null pointer to the kind of rows that fits all operands; f's kernels take rows made from each.
template <class F>
void for_rows(std::initializer_list<const TensorView*> operands, int dim, const F& f) {
  bool packed = true, wide = false;
  for (const TensorView* v : operands) {
    packed = packed && packs(*v, dim);
    wide = wide || v->dtype == DType::f64;
  }
  if (packed) return f(static_cast<RunRows*>(nullptr));
  if (peels(operands, dim)) return f(static_cast<PeeledRows*>(nullptr));
  wide ? f(static_cast<AnyRows<double>*>(nullptr)) : f(static_cast<AnyRows<float>*>(nullptr));
}

// The largest value so far, and the sum of e^(x - top), in one pass over a row.
template <class C>
struct Exponentials {
  C top = C(-INFINITY), sum = 0;

  template <int N>
  __device__ void add(const C (&x)[N]) {
    C most = x[0];
#pragma unroll
    for (int j = 1; j < N; ++j) most = MaxJoin::join(most, x[j]);
    most = MaxJoin::join(top, most);
    if (most == C(-INFINITY)) return;  // only -inf so far: e^(-inf - -inf) would be NaN
    if (most != top) sum *= m::exp(C(top - most));
    top = most;
#pragma unroll
    for (int j = 0; j < N; ++j) sum += m::exp(C(x[j] - most));
  }
  // Joins over the group: `top` becomes the group's, and every thread gets its sum.
  template <class Group>
  __device__ double join(C* tops, double* sums) {
    const C highest = Group::template join<MaxJoin>(top, tops);
    const C partial = top == highest ? sum : C(sum * m::exp(C(top - highest)));
    top = highest;
    return Group::template join<SumJoin>(double(partial), sums);
  }
};

}  // namespace halfstep::cuda
