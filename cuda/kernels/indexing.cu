// SPDX-License-Identifier: Apache-2.0
// Gathers out[a, i, b] = x[a, index[a, i, b], b], scatters out[a, index[a, i, b], b] += or = src[a, i, b], and checks indices and
// targets. `index` has the shape of the output (gather) or of the source (scatter), or is one-dimensional and then chooses whole
// slices. Bad indices are skipped.
#include "cuda/kernels/indexing.cuh"

namespace halfstep::cuda {
namespace {

// ---- checks
// Allows values in [0, size) and, if `ignores`, the value `ignore`.
struct Limits {
  int32_t kind;  // of IndexFault
  int64_t size, ignore;
  bool ignores;
  __device__ bool is_bad(int64_t v) const { return (v < 0 || v >= size) && !(ignores && v == ignore); }
};

constexpr int64_t kNoPosition = INT64_MAX;
constexpr int64_t kOneBlock = 4096;  // elements that one block checks

struct Earlier {
  __device__ static int64_t join(int64_t a, int64_t b) { return a < b ? a : b; }
};

// Writes the fault unless there is one already.
__device__ inline void write_fault(IndexFault* fault, const Limits& limits, int64_t position, int64_t value) {
  if (fault->kind != IndexFault::kNone) return;
  fault->position = position;
  fault->value = value;
  fault->size = limits.size;
  fault->kind = limits.kind;
}

// Finds the first bad position of each block; with one block only, writes it directly to the fault.
__global__ void __launch_bounds__(kThreads)
    find_bad(const int64_t* values, Space<1> space, Limits limits, int64_t* firsts, IndexFault* fault) {
  SHARED(int64_t, shared, [kBlockWarps]);
  int64_t first = kNoPosition;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel && first == kNoPosition; i += step) {
    if (limits.is_bad(values[space.offset(i)])) first = i;
  }
  first = block_join<Earlier>(first, &shared[0]);
  if (threadIdx.x != 0) return;
  if (gridDim.x > 1)
    firsts[blockIdx.x] = first;
  else if (first != kNoPosition)
    write_fault(fault, limits, first, values[space.offset(first)]);
}

// Finds the first of all blocks, in one block.
__global__ void __launch_bounds__(kThreads)
    first_bad(const int64_t* values, Space<1> space, Limits limits, const int64_t* firsts, int count, IndexFault* fault) {
  SHARED(int64_t, shared, [kBlockWarps]);
  int64_t first = kNoPosition;
  for (int b = int(threadIdx.x); b < count; b += kThreads) first = Earlier::join(first, firsts[b]);
  first = block_join<Earlier>(first, &shared[0]);
  if (threadIdx.x == 0 && first != kNoPosition) write_fault(fault, limits, first, values[space.offset(first)]);
}

void check_values(const Queue& q, const TensorView& v, const Limits& limits, IndexFault* fault) {
  const Space<1> space(v.shape, {&v.strides});
  if (space.numel == 0) return;
  const int64_t* values = v.as<const int64_t>();
  int64_t* firsts = reinterpret_cast<int64_t*>(q.scratch);
  const unsigned blocks = space.numel <= kOneBlock ? 1 : blocks_for(space.numel, kThreads);
  launch(find_bad, blocks, kThreads, 0, q.stream, values, space, limits, firsts, fault);
  if (blocks > 1) launch(first_bad, 1, kThreads, 0, q.stream, values, space, limits, firsts, int(blocks), fault);
}

// ---- gather
struct alignas(16) Bytes16 {
  uint64_t v[2];
};

// Gathers one element per thread. space: offsets in out, in index, and in x but for the dimension of the index.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const T* x, int64_t size, int64_t x_step, const int64_t* index, T* out, Space<3> space) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel; i += step) {
    int64_t at[3];
    space.offsets(i, at);
    const int64_t chosen = index[at[1]];
    if (chosen >= 0 && chosen < size) out[at[0]] = x[at[2] + chosen * x_step];
  }
}

template <class T>
void gather_bits(const Queue& q, const TensorView& x, int dim, const TensorView& index, const TensorView& out,
                 const Space<3>& space, int64_t x_step) {
  launch(gather_kernel<T>, blocks_for(space.numel, kThreads), kThreads, 0, q.stream, x.as<const T>(), row_length(x, dim), x_step,
         index.as<const int64_t>(), out.as<T>(), space);
}

// Converts the space and the step to units of 16 bytes if whole rows are chosen by one index and everything is aligned.
bool pack_rows(const TensorView& x, const TensorView& out, Space<3>& space, int64_t& x_step) {
  const int64_t pack = 16 / int64_t(size_of(x.dtype));
  const int last = space.rank - 1;
  if (last < 0 || space.strides[0][last] != 1 || space.strides[1][last] != 0 || space.strides[2][last] != 1) return false;
  if (space.shape[last] % pack != 0 || x_step % pack != 0 || !aligned16(x.data) || !aligned16(out.data)) return false;
  for (int d = 0; d < last; ++d) {
    if (space.strides[0][d] % pack != 0 || space.strides[2][d] % pack != 0) return false;
  }
  for (int d = 0; d < last; ++d) {
    space.strides[0][d] /= pack;
    space.strides[2][d] /= pack;
  }
  space.shape[last] /= pack;
  space.numel /= pack;
  x_step /= pack;
  return true;
}

// ---- scatter_add. Among the entries of a line (along the dimension) with equal index, the first adds them all, in order: no two
// threads write one element, the sum is rounded once, and the bits equal the CPU's. Each entry searches its line for equal ones;
// long lines are sorted instead (index_runs.cu).
template <class T>
struct TypedSource {
  const T* data;
  TypedSource(const TensorView& v) : data(v.as<const T>()) {}
  template <class C>
  __device__ C load(int64_t i) const {
    return to_float(data[i]);
  }
};

// One thread per entry.
template <class C, class Source>
__global__ void __launch_bounds__(kThreads) scatter_each(Operand out, Source src, Lines lines) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x, n = lines.space.numel * lines.length;
  for (int64_t t = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; t < n; t += step) {
    const int64_t k = t / lines.space.numel;
    int64_t at[3];
    lines.space.offsets(t - k * lines.space.numel, at);
    const int64_t* const index = lines.index + at[1];
    const int64_t target = index[k * lines.index_step];
    bool adds = target >= 0 && target < lines.size;
    for (int64_t j = 0; j < k && adds; ++j) adds = index[j * lines.index_step] != target;
    if (!adds) continue;
    const int64_t to = at[0] + target * lines.out_step;
    C sum = out.load<C>(to);
    for (int64_t j = k; j < lines.length; ++j) {
      if (index[j * lines.index_step] == target) sum = m::add(sum, src.template load<C>(at[2] + j * lines.src_step));
    }
    out.store(to, sum);
  }
}

// How a warp reads the lines: a lane has kUnits units, 32 apart, of kWidth lines side by side.
template <class Number, class Source>
struct LooseLines {
  using C = Number;
  static constexpr int kUnits = 4, kWidth = 1;
  Operand out;
  Source src;

  __device__ void load_src(int64_t i, C* x) const { x[0] = src.template load<C>(i); }
  __device__ void load_out(int64_t i, C* x) const { x[0] = out.load<C>(i); }
  __device__ void store_out(int64_t i, const C* x) const { out.store(i, x[0]); }
};
constexpr int kScan = 4;  // number of warp widths of indices compared together

// Returns whether entry k is the first with index `target`. A whole warp calls it and compares kScan warp widths of indices at
// once.
__device__ inline bool is_first_entry(const Lines& lines, int64_t k, int64_t target, int lane) {
  bool first = true;
  for (int64_t base = 0; base < k && first; base += 32 * kScan) {
    bool found = false;
#pragma unroll
    for (int s = 0; s < kScan; ++s) {
      const int64_t j = base + s * 32 + lane;
      found = found || (j < k && lines.index[j * lines.index_step] == target);
    }
    first = !__any_sync(kFullMask, found);
  }
  return first;
}

// One index for all lines: one warp per entry and 32 kUnits units, in which lines.space counts. Batch: entries added at a time, so
// that their loads overlap.
template <class View, int Batch>
__global__ void __launch_bounds__(kThreads) scatter_slices(View view, Lines lines) {
  using C = typename View::C;
  constexpr int kUnits = View::kUnits, kWidth = View::kWidth;
  const int lane = int(threadIdx.x) % 32;
  const int64_t units = lines.space.numel, groups = (units + 32 * kUnits - 1) / (32 * kUnits), tasks = groups * lines.length;
  for (int64_t task = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32; task < tasks;
       task += int64_t(gridDim.x) * kBlockWarps) {
    const int64_t k = task / groups, unit = task % groups * 32 * kUnits + lane;
    const int64_t target = lines.index[k * lines.index_step];
    if (target < 0 || target >= lines.size || !is_first_entry(lines, k, target, lane)) continue;  // skips the whole warp
    int64_t to[kUnits] = {}, from[kUnits] = {};
    C sum[kUnits][kWidth] = {};
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (unit + u * 32 >= units) continue;
      int64_t at[3];
      lines.space.offsets(unit + u * 32, at);
      to[u] = at[0] + target * lines.out_step;
      from[u] = at[2];
      view.load_out(to[u], sum[u]);
    }
    for (int64_t base = k; base < lines.length; base += 32) {
      const int64_t j = base + lane;
      unsigned same = __ballot_sync(kFullMask, j < lines.length && lines.index[j * lines.index_step] == target);
      while (same != 0) {
        C values[Batch][kUnits][kWidth];
#pragma unroll
        for (int b = 0; b < Batch; ++b) {
          const int64_t entry = same != 0 ? base + __ffs(int(same)) - 1 : -1;
          same &= same - 1;  // 0 stays 0
#pragma unroll
          for (int u = 0; u < kUnits; ++u) {
#pragma unroll
            for (int w = 0; w < kWidth; ++w) values[b][u][w] = C(-0.0);  // adds nothing
            if (entry >= 0 && unit + u * 32 < units) view.load_src(from[u] + entry * lines.src_step, values[b][u]);
          }
        }
#pragma unroll
        for (int b = 0; b < Batch; ++b) {
#pragma unroll
          for (int u = 0; u < kUnits; ++u) {
#pragma unroll
            for (int w = 0; w < kWidth; ++w) sum[u][w] = m::add(sum[u][w], values[b][u][w]);
          }
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (unit + u * 32 < units) view.store_out(to[u], sum[u]);
    }
  }
}

template <int Batch, class View>
void scatter_units(const Queue& q, const View& view, const Lines& lines) {
  const int64_t groups = (lines.space.numel + 32 * View::kUnits - 1) / (32 * View::kUnits);
  launch(scatter_slices<View, Batch>, blocks_for(groups * lines.length, kBlockWarps), kThreads, 0, q.stream, view, lines);
}

template <class C, class Source, int Batch>
void add_searching(const Queue& q, const TensorView& out, const TensorView& src, Lines lines) {
  bool shared = lines.length > 1;
  for (int d = 0; d < lines.space.rank; ++d) shared = shared && lines.space.strides[1][d] == 0;
  if (!shared) {
    return launch(scatter_each<C, Source>, blocks_for(lines.space.numel * lines.length, kThreads), kThreads, 0, q.stream,
                  Operand(out), Source(src), lines);
  }
  if constexpr (!std::is_same_v<Source, Operand>) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(Source::data)>>;
    if (pack_lines(out, src, 4, lines)) return scatter_units<Batch>(q, PackedLines<T>{out.as<T>(), src.as<const T>()}, lines);
  }
  scatter_units<Batch>(q, LooseLines<C, Source>{out, src}, lines);
}

}  // namespace

void check_targets(const Queue& q, const TensorView& target, int64_t classes, int64_t ignore_index, IndexFault* fault) {
  check_values(q, target, {IndexFault::kTarget, classes, ignore_index, true}, fault);
}
void check_indices(const Queue& q, const TensorView& index, int64_t size, IndexFault* fault) {
  check_values(q, index, {IndexFault::kIndex, size, 0, false}, fault);
}

void gather(const Queue& q, const TensorView& x, int dim, const TensorView& index, const TensorView& out) {
  const Strides chosen = spread(index, out.shape, dim);
  Strides others = x.strides;
  if (!others.empty()) others[dim] = 0;
  Space<3> space(out.shape, {&out.strides, &chosen, &others});
  if (space.numel == 0) return;
  int64_t step = x.shape.empty() ? 0 : x.strides[dim];
  if (pack_rows(x, out, space, step)) return gather_bits<Bytes16>(q, x, dim, index, out, space, step);
  switch (size_of(x.dtype)) {
    case 1: return gather_bits<uint8_t>(q, x, dim, index, out, space, step);
    case 2: return gather_bits<uint16_t>(q, x, dim, index, out, space, step);
    case 4: return gather_bits<uint32_t>(q, x, dim, index, out, space, step);
    default: return gather_bits<uint64_t>(q, x, dim, index, out, space, step);
  }
}

void scatter_add(const Queue& q, const TensorView& out, int dim, const TensorView& index, const TensorView& src) {
  if (src.numel() == 0) return;
  if (row_length(src, dim) >= kSortedLine) return scatter_add_sorted(q, out, dim, index, src);
  const Lines lines(out, dim, index.as<const int64_t>(), spread(index, src.shape, dim), src);
  switch (compute_of(out.dtype)) {
    case Compute::wide: return add_searching<double, Operand, 1>(q, out, src, lines);
    case Compute::integer: return add_searching<int64_t, Operand, 1>(q, out, src, lines);
    case Compute::single: break;
  }
  switch (src.dtype) {
    case DType::f32: return add_searching<float, TypedSource<float>, 4>(q, out, src, lines);
    case DType::f16: return add_searching<float, TypedSource<__half>, 4>(q, out, src, lines);
    case DType::bf16: return add_searching<float, TypedSource<__nv_bfloat16>, 4>(q, out, src, lines);
    default: return add_searching<float, Operand, 1>(q, out, src, lines);
  }
}

}  // namespace halfstep::cuda
