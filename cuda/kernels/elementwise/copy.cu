// SPDX-License-Identifier: Apache-2.0
// Copies between dtypes and layouts, of many tensors at once, and constant and evenly spaced values.
#include <utility>
#include <vector>

#include "cuda/kernels/elementwise/elementwise.cuh"
#include "cuda/kernels/tensor_lists.cuh"

namespace halfstep::cuda {
namespace {

// Copies within a dtype; bits do not change, including NaN payloads. T has the size of an element, or of several neighbours.
template <class T>
__global__ void __launch_bounds__(kThreads) move_kernel(const T* from, T* to, Space<2> space) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel; i += step) {
    int64_t at[2];
    space.offsets(i, at);
    to[at[1]] = from[at[0]];
  }
}

constexpr int kRowElements = 8;      // elements of a row per thread of rows_kernel
constexpr int kTransposeTile = 32;   // rows and columns of a tile
constexpr int kLeastTransposed = 8;  // rows and columns from which tiles are faster

// Copies dense rows whose pitches no wider element divides: a block copies a part of a row, which avoids a division per element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const T* from, T* to, int64_t rows, int64_t columns, int64_t from_pitch, int64_t to_pitch) {
  constexpr int kPart = kThreads * kRowElements;
  const int64_t parts = (columns + kPart - 1) / kPart;
  for (int64_t task = blockIdx.x; task < rows * parts; task += gridDim.x) {
    const int64_t row = task / parts, first = (task - row * parts) * kPart + threadIdx.x;
    const T* const in = from + row * from_pitch;
    T* const out = to + row * to_pitch;
    T held[kRowElements];
#pragma unroll
    for (int j = 0; j < kRowElements; ++j)
      if (const int64_t c = first + j * kThreads; c < columns) held[j] = in[c];
#pragma unroll
    for (int j = 0; j < kRowElements; ++j)
      if (const int64_t c = first + j * kThreads; c < columns) out[c] = held[j];
  }
}

// to[b][r][c] = from[b][c][r], with dense rows in both. Copies through tiles, so that reads and writes run along rows.
struct Transpose {
  int64_t batch, rows, columns;                    // of `to`
  int64_t from_batch, from_row, to_batch, to_row;  // strides
};
template <class T>
__global__ void __launch_bounds__(kThreads) transpose_kernel(const T* from, T* to, Transpose t) {
  constexpr int kTile = kTransposeTile, kStep = kThreads / kTile;
  SHARED(T, tile, [kTile][kTile + 1]);
  const int x = int(threadIdx.x) % kTile, y = int(threadIdx.x) / kTile;
  const int64_t down = (t.rows + kTile - 1) / kTile, across = (t.columns + kTile - 1) / kTile;
  for (int64_t task = blockIdx.x; task < t.batch * down * across; task += gridDim.x) {
    const int64_t b = task / (down * across), r0 = task / across % down * kTile, c0 = task % across * kTile;
    __syncthreads();  // waits until the last tile was read
#pragma unroll
    for (int j = 0; j < kTile / kStep; ++j) {
      const int k = y + j * kStep;
      if (r0 + x < t.rows && c0 + k < t.columns) tile[k][x] = from[b * t.from_batch + (c0 + k) * t.from_row + r0 + x];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTile / kStep; ++j) {
      const int k = y + j * kStep;
      if (r0 + k < t.rows && c0 + x < t.columns) to[b * t.to_batch + (r0 + k) * t.to_row + c0 + x] = tile[x][k];
    }
  }
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads) cast_kernel(const From* from, To* to, int64_t n) {
  constexpr int kSize = kPackOf < From >> kPackOf<To> ? kPackOf<From> : kPackOf<To>;
  const int64_t packs = n / kSize, first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, step = int64_t(gridDim.x) * blockDim.x;
#pragma unroll 2
  for (int64_t p = first; p < packs; p += step) {
    float x[kSize];
    load_pack<Cached::no>(from + p * kSize, x);
    store_pack(to + p * kSize, x);
  }
  for (int64_t i = packs * kSize + first; i < n; i += step) to[i] = from_float<To>(to_float(from[i]));
}

__global__ void __launch_bounds__(kThreads) fill_kernel(Operand out, Space<1> space, double value) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel; i += step) out.store(space.offset(i), value);
}

__global__ void __launch_bounds__(kThreads) arange_kernel(Operand out, int64_t stride, int64_t n, double start, double by) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    out.store(i * stride, multiply_add(start, double(i), by));
}

// The bytes of a tensor that is dense in memory.
struct Bytes {
  const char* from;
  char* to;
};
using BytesList = List<Bytes, 16384>;  // 16384 bytes per block

// Copies one block's part in units of T, and the bytes after the last whole unit.
template <class T>
__device__ inline void copy_part(const Bytes& bytes, int64_t begin, int64_t end) {
  const T* const from = reinterpret_cast<const T*>(bytes.from);
  T* const to = reinterpret_cast<T*>(bytes.to);
  const int64_t units = end / int64_t(sizeof(T));
  for (int64_t i = begin / int64_t(sizeof(T)) + threadIdx.x; i < units; i += kThreads) to[i] = from[i];
  for (int64_t i = units * int64_t(sizeof(T)) + threadIdx.x; i < end; i += kThreads) bytes.to[i] = bytes.from[i];
}

__global__ void __launch_bounds__(kThreads) copy_list(BytesList list, const float* flag) {
  if (flag && *flag == 0) return;
  const BytesList::Part part = list.part();
  const Bytes bytes = list.entry[part.tensor];
  const uintptr_t places = reinterpret_cast<uintptr_t>(bytes.from) | reinterpret_cast<uintptr_t>(bytes.to);
  if (places % sizeof(uint4) == 0)
    copy_part<uint4>(bytes, part.begin, part.end);
  else
    copy_part<char>(bytes, part.begin, part.end);
}

// Copies elements of `size` bytes with any strides.
__global__ void __launch_bounds__(kThreads) copy_strided(Bytes bytes, int64_t size, Space<2> space, const float* flag) {
  if (flag && *flag == 0) return;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < space.numel; i += int64_t(gridDim.x) * kThreads) {
    int64_t at[2];
    space.offsets(i, at);
    for (int64_t b = 0; b < size; ++b) bytes.to[at[1] * size + b] = bytes.from[at[0] * size + b];
  }
}

struct Same {
  template <class C>
  __device__ C operator()(C x) const {
    return x;
  }
};

template <class T>
void move(const Queue& q, const TensorView& src, const TensorView& dst, const Space<2>& space) {
  if (space.rank == 2 && space.shape[1] >= kThreads && space.strides[0][1] == 1 && space.strides[1][1] == 1) {
    const int64_t parts = space.shape[0] * ((space.shape[1] + kRowElements * kThreads - 1) / (kRowElements * kThreads));
    return launch(rows_kernel<T>, blocks_for(parts, 1), kThreads, 0, q.stream, src.as<const T>(), dst.as<T>(), space.shape[0],
                  space.shape[1], space.strides[0][0], space.strides[1][0]);
  }
  launch(move_kernel<T>, blocks_for(space.numel, kThreads), kThreads, 0, q.stream, src.as<const T>(), dst.as<T>(), space);
}

// Widens the elements of the space up to 16 bytes, if rows are dense and everything is a multiple of them. Returns their size.
size_t widen_elements(Space<2>& space, size_t size, const void* from, const void* to) {
  const int last = space.rank - 1;
  if (last < 0 || space.strides[0][last] != 1 || space.strides[1][last] != 1) return size;
  const auto fits = [&](int64_t k) {
    const uintptr_t bytes = uintptr_t(k) * size;
    bool fit = space.shape[last] % k == 0 && reinterpret_cast<uintptr_t>(from) % bytes == 0 &&
               reinterpret_cast<uintptr_t>(to) % bytes == 0;
    for (int d = 0; d < last; ++d) fit = fit && space.strides[0][d] % k == 0 && space.strides[1][d] % k == 0;
    return fit;
  };
  int64_t k = int64_t(16 / size);
  while (!fits(k)) k /= 2;
  space.numel /= k;
  space.shape[last] /= k;
  for (int d = 0; d < last; ++d) {
    space.strides[0][d] /= k;
    space.strides[1][d] /= k;
  }
  return size * size_t(k);
}

// Copies by transposing tiles; returns false unless the dimensions are [batch,] rows, columns, dense along rows in src and along
// columns in dst.
bool transpose(const Queue& q, const TensorView& src, const TensorView& dst, const Space<2>& space) {
  const size_t size = size_of(src.dtype);
  const int r = space.rank - 2, c = space.rank - 1;
  if (space.rank < 2 || space.rank > 3 || (size != 2 && size != 4) || space.strides[0][r] != 1 || space.strides[1][c] != 1 ||
      space.shape[r] < kLeastTransposed || space.shape[c] < kLeastTransposed)
    return false;
  const bool batched = r > 0;
  const Transpose t{
      batched ? space.shape[0] : 1,      space.shape[r],     space.shape[c], batched ? space.strides[0][0] : 0, space.strides[0][c],
      batched ? space.strides[1][0] : 0, space.strides[1][r]};
  const auto tiles = [](int64_t n) { return (n + kTransposeTile - 1) / kTransposeTile; };
  const unsigned blocks = blocks_for(t.batch * tiles(t.rows) * tiles(t.columns), 1);
  if (size == 2)
    launch(transpose_kernel<uint16_t>, blocks, kThreads, 0, q.stream, src.as<const uint16_t>(), dst.as<uint16_t>(), t);
  else
    launch(transpose_kernel<uint32_t>, blocks, kThreads, 0, q.stream, src.as<const uint32_t>(), dst.as<uint32_t>(), t);
  return true;
}

template <class From, class To>
void cast(const Queue& q, const TensorView& src, const TensorView& dst, int64_t n) {
  const int64_t packs = n / 8 + 1;
  launch(cast_kernel<From, To>, blocks_for(packs, kThreads), kThreads, 0, q.stream, src.as<const From>(), dst.as<To>(), n);
}

}  // namespace

void copy(const Queue& q, const TensorView& given_src, const TensorView& given_dst) {
  // Follows the memory of dst, whatever the order of its dimensions.
  TensorView src = given_src, dst = given_dst;
  for (int i = 1; i < dst.shape.size(); ++i) {
    for (int d = i; d > 0 && dst.strides[d - 1] < dst.strides[d]; --d) {
      for (TensorView* v : {&src, &dst}) {
        std::swap(v->shape[d - 1], v->shape[d]);
        std::swap(v->strides[d - 1], v->strides[d]);
      }
    }
  }
  Space<2> space(dst.shape, {&src.strides, &dst.strides});
  if (space.numel == 0) return;
  if (src.dtype == dst.dtype) {
    if (space.dense()) {
      if (launch_watcher) launch_watcher->uses_fixed(src.data), launch_watcher->uses_fixed(dst.data);
      return check_launch(
          cudaMemcpyAsync(dst.data, src.data, size_t(space.numel) * size_of(dst.dtype), cudaMemcpyDeviceToDevice, q.stream));
    }
    if (transpose(q, src, dst, space)) return;
    switch (widen_elements(space, size_of(src.dtype), src.data, dst.data)) {
      case 1: return move<uint8_t>(q, src, dst, space);
      case 2: return move<uint16_t>(q, src, dst, space);
      case 4: return move<uint32_t>(q, src, dst, space);
      case 8: return move<uint64_t>(q, src, dst, space);
      default: return move<uint4>(q, src, dst, space);
    }
  }
  bool was_cast = false;
  if (space.dense() && aligned16(src.data) && aligned16(dst.data)) {  // between master weights, activations and their 16-bit copies
    for_packed_type(src.dtype, [&](auto from) {
      was_cast = for_packed_type(dst.dtype, [&](auto to) {
        using From = decltype(from);
        using To = decltype(to);
        if constexpr (!std::is_same_v<From, To>) cast<From, To>(q, src, dst, space.numel);
      });
    });
  }
  if (!was_cast) run_elementwise<1>(q, packs_kernel<Same, 1>, AnyKernels<1>::any<Same>(), compute_of(src.dtype), {&dst, &src});
}

void copy_all(const Queue& q, std::span<const TensorView> from, std::span<const TensorView> to, const float* flag) {
  const auto bytes_of = [&](size_t i) { return Bytes{from[i].as<const char>(), to[i].as<char>()}; };
  std::vector<size_t> dense;
  for (size_t i = 0; i < to.size(); ++i) {
    const Space<2> space(to[i].shape, {&from[i].strides, &to[i].strides});
    if (space.numel == 0) continue;
    if (space.dense()) {
      dense.push_back(i);
      continue;
    }
    launch(copy_strided, blocks_for(space.numel, kThreads), kThreads, 0, q.stream, bytes_of(i), int64_t(size_of(to[i].dtype)),
           space, flag);
  }
  const auto add = [&](BytesList& list, size_t i) {
    list.add(bytes_of(i), to[i].numel() * int64_t(size_of(to[i].dtype)));
    return true;
  };
  for_lists<BytesList>(dense, add,
                       [&](const BytesList& list) { launch(copy_list, list.blocks(), kThreads, 0, q.stream, list, flag); });
}

void fill(const Queue& q, const TensorView& dst, double value) {
  const Space<1> space(dst.shape, {&dst.strides});
  if (space.numel == 0) return;
  if (space.dense() && value == 0 && !signbit(value)) {  // all bits are 0 in every dtype
    if (launch_watcher) launch_watcher->uses_fixed(dst.data);
    return check_launch(cudaMemsetAsync(dst.data, 0, size_t(space.numel) * size_of(dst.dtype), q.stream));
  }
  launch(fill_kernel, blocks_for(space.numel, kThreads), kThreads, 0, q.stream, Operand(dst), space, value);
}

void arange(const Queue& q, const TensorView& dst, double start, double step) {
  const int64_t n = dst.numel(), stride = dst.shape.empty() ? 1 : dst.strides[0];
  if (n == 0) return;
  launch(arange_kernel, blocks_for(n, kThreads), kThreads, 0, q.stream, Operand(dst), stride, n, start, step);
}

}  // namespace halfstep::cuda
