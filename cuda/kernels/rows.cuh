// A row for a group of threads: one warp for short rows (eight rows a block), the whole block for long ones. Sums are taken in
// an order that the shape alone fixes.
#pragma once

#include "cuda/kernels/elementwise.cuh"

namespace halfstep::cuda {

inline constexpr int64_t kWarpRow = 1024;  // longest row for one warp
inline constexpr int kBlockWarps = kThreads / 32;

// NaN wins over everything.
struct MaxJoin {
  template <class W>
  __device__ static W join(W a, W b) {
    return b > a || b != b ? b : a;
  }
};
struct MinJoin {
  template <class W>
  __device__ static W join(W a, W b) {
    return b < a || b != b ? b : a;
  }
};
struct SumJoin {
  template <class W>
  __device__ static W join(W a, W b) {
    return a + b;
  }
};
struct ProductJoin {
  template <class W>
  __device__ static W join(W a, W b) {
    return a * b;
  }
};

template <class Join, class W>
__device__ inline W warp_join(W v) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) v = Join::join(v, W(__shfl_xor_sync(kFullMask, v, bits)));
  return v;
}

// All threads of the block call it; all get the result. `shared` holds kBlockWarps values.
template <class Join, class W>
__device__ inline W block_join(W v, W* shared) {
  v = warp_join<Join>(v);
  __syncthreads();  // the values of an earlier call have been read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  v = shared[0];
#pragma unroll
  for (int w = 1; w < kBlockWarps; ++w) v = Join::join(v, shared[w]);
  return v;
}

// A block of kThreads threads seen as groups of Warps warps (1 or kBlockWarps), each with rows of its own.
template <int Warps>
struct RowGroup {
  static constexpr int kSize = 32 * Warps, kPerBlock = kBlockWarps / Warps;

  __device__ static int rank() { return int(threadIdx.x) % kSize; }
  __device__ static int64_t first_row() { return int64_t(blockIdx.x) * kPerBlock + int(threadIdx.x) / kSize; }
  __device__ static int64_t row_step() { return int64_t(gridDim.x) * kPerBlock; }

  template <class Join, class W>
  __device__ static W join(W v, W* shared) {
    if constexpr (Warps == 1)
      return warp_join<Join>(v);
    else
      return block_join<Join>(v, shared);
  }
};

inline unsigned row_blocks(int64_t rows, int64_t length) {
  return length <= kWarpRow ? blocks_for(rows, kBlockWarps) : blocks_for(rows, 1);
}

// Index of the rows of a tensor along `dim`: its shape with that dimension 1. Rank 0 counts as one row of one element.
inline Shape without(Shape shape, int dim) {
  if (!shape.empty()) shape[dim] = 1;
  return shape;
}
inline int64_t row_length(const TensorView& v, int dim) { return v.shape.empty() ? 1 : v.shape[dim]; }
inline int64_t row_stride(const TensorView& v, int dim) { return v.shape.empty() ? 1 : v.strides[dim]; }

}  // namespace halfstep::cuda
