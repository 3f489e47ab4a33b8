// SPDX-License-Identifier: Apache-2.0
// Finds the first index of the extreme along a dimension: index = argmax or argmin of x[a, 0..n, b]; NaN counts as the extreme.
// Comparing is exact, so that results do not depend on how threads share a row.
#include "cuda/kernels/reduce/rows.cuh"

namespace halfstep::cuda {
namespace {

template <class C>
struct Best {
  C value;
  int64_t index;
};

// Orders NaN before every number, then the smaller index.
template <class C>
__device__ inline Best<C> better(bool largest, Best<C> a, Best<C> b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  bool take;
  if (a_nan || b_nan)
    take = b_nan && (!a_nan || b.index < a.index);
  else if (a.value == b.value)
    take = b.index < a.index;
  else
    take = (b.value > a.value) == largest;
  return take ? b : a;
}

// The rows of x, and where their results go.
template <class T>
struct Rows {
  using C = std::conditional_t<std::is_integral_v<T>, int64_t, typename ComputeOf<T>::type>;
  const T* x;
  int64_t* indices;
  Operand values;  // data may be null
  Space<3> kept;   // offsets of the rows in x, indices and values
  int64_t length, step;
  bool largest;

  __device__ C load(int64_t i) const {
    if constexpr (std::is_integral_v<T>)
      return C(x[i]);
    else
      return to_float(x[i]);
  }
  // Scans elements rank, rank + stride... of the row at `from`; its first element again if there are none.
  __device__ Best<C> scan(int64_t from, int64_t rank, int64_t stride) const {
    Best<C> best{load(from), 0};
    for (int64_t k = rank; k < length; k += stride) best = better(largest, best, Best<C>{load(from + k * step), k});
    return best;
  }
  __device__ void write(const int64_t (&at)[3], const Best<C>& best) const {
    indices[at[1]] = best.index;
    if (values.data) values.store(at[2], best.value);
  }
};

template <class T, int Warps>
__global__ void __launch_bounds__(kThreads) arg_rows(Rows<T> rows) {
  using Group = RowGroup<Warps>;
  using C = typename Rows<T>::C;
  SHARED(C, values, [kBlockWarps]);
  SHARED(int64_t, indices, [kBlockWarps]);
  for (int64_t row = Group::first_row(); row < rows.kept.numel; row += Group::row_step()) {
    int64_t at[3];
    rows.kept.offsets(row, at);
    Best<C> best = rows.scan(at[0], Group::rank(), Group::kSize);
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) {
      const Best<C> other{__shfl_xor_sync(kFullMask, best.value, bits), __shfl_xor_sync(kFullMask, best.index, bits)};
      best = better(rows.largest, best, other);
    }
    if constexpr (Warps > 1) {
      __syncthreads();  // waits until the last row's values were read
      if (threadIdx.x % 32 == 0) {
        values[threadIdx.x / 32] = best.value;
        indices[threadIdx.x / 32] = best.index;
      }
      __syncthreads();
      for (int w = 0; w < kBlockWarps; ++w) best = better(rows.largest, best, Best<C>{values[w], indices[w]});
    }
    if (Group::rank() == 0) rows.write(at, best);
  }
}

// Finds the extremes of rows that lie side by side in memory, one thread a row.
template <class T>
__global__ void __launch_bounds__(kThreads) arg_columns(Rows<T> rows) {
  const int64_t threads = int64_t(gridDim.x) * blockDim.x;
  for (int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; row < rows.kept.numel; row += threads) {
    int64_t at[3];
    rows.kept.offsets(row, at);
    rows.write(at, rows.scan(at[0], 1, 1));
  }
}

template <class T>
void arg_reduce_of(const Queue& q, bool largest, const TensorView& x, int dim, const TensorView& values,
                   const TensorView& indices) {
  const Strides& value_strides = values ? values.strides : indices.strides;
  const Rows<T> rows{x.as<const T>(),
                     indices.as<int64_t>(),
                     values,
                     Space<3>(without(x.shape, dim), {&x.strides, &indices.strides, &value_strides}),
                     row_length(x, dim),
                     row_stride(x, dim),
                     largest};
  const Space<3>& kept = rows.kept;
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v; };
  const bool beside = kept.rank > 0 && magnitude(kept.strides[0][kept.rank - 1]) < magnitude(rows.step);
  // Few long columns would use too few threads: a block takes each.
  if (rows.length == 1 || (beside && (kept.numel >= kManyColumns || rows.length <= kShortColumn))) {
    launch(arg_columns<T>, blocks_for(kept.numel, kThreads), kThreads, 0, q.stream, rows);
  } else {
    const auto kernel = rows.length <= kWarpRow ? arg_rows<T, 1> : arg_rows<T, kBlockWarps>;
    launch(kernel, row_blocks(kept.numel, rows.length), kThreads, 0, q.stream, rows);
  }
}

}  // namespace

void arg_reduce(const Queue& q, bool largest, const TensorView& x, int dim, const TensorView& values, const TensorView& indices) {
  if (x.numel() == 0) return;
  switch (x.dtype) {
    case DType::f16: return arg_reduce_of<__half>(q, largest, x, dim, values, indices);
    case DType::bf16: return arg_reduce_of<__nv_bfloat16>(q, largest, x, dim, values, indices);
    case DType::f32: return arg_reduce_of<float>(q, largest, x, dim, values, indices);
    case DType::f64: return arg_reduce_of<double>(q, largest, x, dim, values, indices);
    case DType::u8:
    case DType::boolean: return arg_reduce_of<uint8_t>(q, largest, x, dim, values, indices);
    case DType::i8: return arg_reduce_of<int8_t>(q, largest, x, dim, values, indices);
    case DType::i16: return arg_reduce_of<int16_t>(q, largest, x, dim, values, indices);
    case DType::i32: return arg_reduce_of<int32_t>(q, largest, x, dim, values, indices);
    case DType::i64: return arg_reduce_of<int64_t>(q, largest, x, dim, values, indices);
  }
}

}  // namespace halfstep::cuda
