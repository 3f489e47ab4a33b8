// SPDX-License-Identifier: Apache-2.0
// Scatters by a sorted index: entries for one place are adjacent, in the order of the source, so that the first of them can add
// all, or the last one wins. Bad indices are skipped.
#include "cuda/kernels/indexing.cuh"
#include "framework/backend/workspace.h"

namespace halfstep::cuda {
namespace {

// An index sorted along `dim`: entry k of a line has its target in `index`, and in `order` its place along the source's line.
struct SortedIndex {
  Workspace memory;
  TensorView index, order;

  SortedIndex(const Queue& q, const TensorView& given, const Shape& shape, int dim)
      : memory(Device::cuda, bytes(given, shape, dim)) {
    TensorView from = given;
    from.shape = unrepeated_shape(given, shape, dim);
    from.strides = spread(given, shape, dim);
    if (from.shape.empty()) from.shape = from.strides = Dims{1};
    index = order = TensorView{memory.data(), DType::i64, from.shape, contiguous_strides(from.shape)};
    order.data = index.as<int64_t>() + index.numel();
    sort(q, from, dim, false, from.shape[dim], index, order);
  }
  // Returns strides for `shape`, which may repeat lines.
  Strides strides(const Shape& shape, int dim) const {
    Strides s = index.strides;
    for (int d = 0; d < shape.size(); ++d) {
      if (d != dim && index.shape[d] == 1) s[d] = 0;
    }
    return shape.empty() ? Strides{} : s;
  }

 private:
  // Returns the shape without the dimensions along which the index repeats.
  static Shape unrepeated_shape(const TensorView& given, Shape shape, int dim) {
    const Strides s = spread(given, shape, dim);
    for (int d = 0; d < shape.size(); ++d) {
      if (d != dim && s[d] == 0) shape[d] = 1;
    }
    return shape;
  }
  static size_t bytes(const TensorView& given, const Shape& shape, int dim) {
    return size_t(2 * numel(unrepeated_shape(given, shape, dim))) * sizeof(int64_t);
  }
};

constexpr int kBatch = 4;  // entries of a run that are read at once

// One thread per entry and unit of lines: the thread of a run's first entry adds the run.
template <class View>
__global__ void __launch_bounds__(kThreads) add_runs(View view, Lines lines, const int64_t* order) {
  using C = typename View::C;
  constexpr int kWidth = View::kWidth;
  const int64_t step = int64_t(gridDim.x) * blockDim.x, n = lines.space.numel * lines.length;
  for (int64_t t = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; t < n; t += step) {
    const int64_t k = t / lines.space.numel;
    int64_t at[3];
    lines.space.offsets(t - k * lines.space.numel, at);
    const int64_t* const index = lines.index + at[1];
    const int64_t target = index[k * lines.index_step];
    if (target < 0 || target >= lines.size || (k > 0 && index[(k - 1) * lines.index_step] == target)) continue;
    const int64_t to = at[0] + target * lines.out_step;
    C sum[kWidth];
    view.load_out(to, sum);
    bool more = true;
    for (int64_t j = k; more; j += kBatch) {
      C values[kBatch][kWidth];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        more = more && j + b < lines.length && index[(j + b) * lines.index_step] == target;
#pragma unroll
        for (int w = 0; w < kWidth; ++w) values[b][w] = C(-0.0);  // adds nothing
        if (more) view.load_src(at[2] + order[at[1] + (j + b) * lines.index_step] * lines.src_step, values[b]);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
#pragma unroll
        for (int w = 0; w < kWidth; ++w) sum[w] = m::add(sum[w], values[b][w]);
      }
    }
    view.store_out(to, sum);
  }
}

template <class View>
void launch_add(const Queue& q, const View& view, const Lines& lines, const SortedIndex& sorted) {
  launch(add_runs<View>, blocks_for(lines.space.numel * lines.length, kThreads), kThreads, 0, q.stream, view, lines,
         sorted.order.as<const int64_t>());
}

struct alignas(16) Bytes16 {
  uint64_t v[2];
};

// Copies a T, one or more elements, for the last entry of each run. Offsets are in elements of `element_bytes`.
template <class T>
__global__ void __launch_bounds__(kThreads)
    place_runs(char* out, const char* src, int64_t element_bytes, Lines lines, const int64_t* order) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x, n = lines.space.numel * lines.length;
  for (int64_t t = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; t < n; t += step) {
    const int64_t k = t / lines.space.numel;
    int64_t at[3];
    lines.space.offsets(t - k * lines.space.numel, at);
    const int64_t here = at[1] + k * lines.index_step, target = lines.index[here];
    if (target < 0 || target >= lines.size || (k + 1 < lines.length && lines.index[here + lines.index_step] == target)) continue;
    const int64_t to = at[0] + target * lines.out_step, from = at[2] + order[here] * lines.src_step;
    *reinterpret_cast<T*>(out + to * element_bytes) = *reinterpret_cast<const T*>(src + from * element_bytes);
  }
}

template <class T>
void launch_place(const Queue& q, const TensorView& out, const TensorView& src, const Lines& lines, const SortedIndex& sorted) {
  launch(place_runs<T>, blocks_for(lines.space.numel * lines.length, kThreads), kThreads, 0, q.stream, out.as<char>(),
         src.as<const char>(), int64_t(size_of(out.dtype)), lines, sorted.order.as<const int64_t>());
}

}  // namespace

void scatter_add_sorted(const Queue& q, const TensorView& out, int dim, const TensorView& index, const TensorView& src) {
  const SortedIndex sorted(q, index, src.shape, dim);
  Lines lines(out, dim, sorted.index.as<const int64_t>(), sorted.strides(src.shape, dim), src);
  const Compute compute = compute_of(out.dtype);
  if (compute == Compute::single && pack_lines(out, src, 4, lines)) {
    for_packed_type(out.dtype, [&](auto type) {
      using T = decltype(type);
      launch_add(q, PackedLines<T>{out.as<T>(), src.as<const T>()}, lines, sorted);
    });
    return;
  }
  switch (compute) {
    case Compute::single: return launch_add(q, OneLine<float>{out, src}, lines, sorted);
    case Compute::wide: return launch_add(q, OneLine<double>{out, src}, lines, sorted);
    default: return launch_add(q, OneLine<int64_t>{out, src}, lines, sorted);
  }
}

void scatter(const Queue& q, const TensorView& out, int dim, const TensorView& index, const TensorView& src) {
  if (src.numel() == 0) return;
  const SortedIndex sorted(q, index, src.shape, dim);
  Lines lines(out, dim, sorted.index.as<const int64_t>(), sorted.strides(src.shape, dim), src);
  const int64_t bytes = int64_t(size_of(out.dtype));
  if (pack_lines(out, src, 16 / bytes, lines)) return launch_place<Bytes16>(q, out, src, lines, sorted);
  switch (bytes) {
    case 1: return launch_place<uint8_t>(q, out, src, lines, sorted);
    case 2: return launch_place<uint16_t>(q, out, src, lines, sorted);
    case 4: return launch_place<uint32_t>(q, out, src, lines, sorted);
    default: return launch_place<uint64_t>(q, out, src, lines, sorted);
  }
}

void index_select(const Queue& q, const TensorView& x, int dim, const TensorView& index, const TensorView& out) {
  gather(q, x, dim, index, out);
}
void index_add(const Queue& q, const TensorView& out, int dim, const TensorView& index, const TensorView& src) {
  scatter_add(q, out, dim, index, src);
}
void index_copy(const Queue& q, const TensorView& out, int dim, const TensorView& index, const TensorView& src) {
  scatter(q, out, dim, index, src);
}

}  // namespace halfstep::cuda
