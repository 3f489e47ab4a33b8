// Reductions over any dimensions. The reduced elements of an output are cut into segments by shape alone, each segment is reduced
// by one thread, and segments are joined in order: the result is the same for any number of threads.
#include <algorithm>
#include <limits>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/loops.h"
#include "framework/backend/cpu/reduce_kernels.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kSegment = 32 * kBlock;    // elements of a row a thread reduces at once
constexpr int64_t kColumns = 512;            // columns kept side by side
constexpr int64_t kRows = 64;                // rows added in float before they go to double
constexpr int64_t kSegmentRows = 8 * kRows;  // rows of a column block a thread reduces at once

// The dimensions of x apart: those that stay (strides of out and of x) and those that go (strides of x), largest stride first.
struct Split {
  Shape kept, reduced;
  Strides kept_out, kept_in, reduced_in;

  Split(const TensorView& x, const TensorView& out) {
    int order[kMaxDims], count = 0;
    for (int d = 0; d < x.shape.size(); ++d) {
      if (x.shape[d] != 1) order[count++] = d;
    }
    std::stable_sort(order, order + count, [&](int a, int b) { return std::abs(x.strides[a]) > std::abs(x.strides[b]); });
    for (int i = 0; i < count; ++i) {
      const int d = order[i];
      if (out.shape[d] == 1) {
        reduced.push_back(x.shape[d]);
        reduced_in.push_back(x.strides[d]);
      } else {
        kept.push_back(x.shape[d]);
        kept_out.push_back(out.strides[d]);
        kept_in.push_back(x.strides[d]);
      }
    }
  }
  // Kept elements lie closer together in memory than reduced ones, and there are enough of them to fill vectors.
  bool by_columns() const {
    if (kept.empty() || reduced.empty() || kept.back() < 8 || numel(reduced) == 0) return false;
    return std::abs(kept_in.back()) < std::abs(reduced_in.back());
  }
};

// A mean of integers is a float.
template <class W>
void write(Reduce op, W value, int64_t count, const TensorView& out, int64_t offset) {
  if (op == Reduce::mean) {
    store_one<double>(out.dtype, count == 0 ? std::numeric_limits<double>::quiet_NaN() : double(value) / double(count),
                      at(out, offset));
  } else {
    store_one<W>(out.dtype, value, at(out, offset));
  }
}

template <class C>
void by_rows(Reduce op, const TensorView& x, const TensorView& out, const Split& split) {
  using W = Wide<C>;
  const Space kept(split.kept, {&split.kept_out, &split.kept_in}), reduced(split.reduced, {&split.reduced_in});
  const int64_t segments = std::max<int64_t>(1, (reduced.numel + kSegment - 1) / kSegment);
  std::vector<W> partial(segments > 1 ? size_t(kept.numel * segments) : 0);
  const int64_t work = kept.numel * std::max<int64_t>(reduced.numel, 8);
  const int64_t grain = std::max<int64_t>(1, kParallel / 4 / std::max<int64_t>(std::min(reduced.numel, kSegment), 8));

  parallel_for(kept.numel * segments, grain, work < kParallel, [&](int64_t begin, int64_t end) {
    alignas(64) C buffer[kBlock];
    TensorView row = x;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t o = task / segments, first = task % segments * kSegment, last = std::min(reduced.numel, first + kSegment);
      row.data = at(x, Cursor(kept, 1, o).offset());
      W value = reduce_identity<W>(op);
      for (int64_t i = first; i < last; i += kBlock) {
        const int64_t n = std::min(kBlock, last - i);
        const W block = reduce_row<C>(op, fetch<C>(reduced, 0, row, i, n, buffer), n);
        value = i == first ? block : reduce_join(op, value, block);
      }
      if (segments > 1)
        partial[size_t(task)] = value;
      else
        write(op, value, reduced.numel, out, Cursor(kept, 0, o).offset());
    }
  });
  if (segments == 1) return;
  for (int64_t o = 0; o < kept.numel; ++o) {
    W value = partial[size_t(o * segments)];
    for (int64_t s = 1; s < segments; ++s) value = reduce_join(op, value, partial[size_t(o * segments + s)]);
    write(op, value, reduced.numel, out, Cursor(kept, 0, o).offset());
  }
}

template <class C>
void by_columns(Reduce op, const TensorView& x, const TensorView& out, const Split& split) {
  using W = Wide<C>;
  const Space kept(split.kept, {&split.kept_out, &split.kept_in}), reduced(split.reduced, {&split.reduced_in});
  const int64_t width = kept.shape[kept.rank - 1], stride = kept.strides[1][kept.rank - 1];
  const int64_t outer = kept.numel / width, blocks = (width + kColumns - 1) / kColumns;
  const int64_t segments = (reduced.numel + kSegmentRows - 1) / kSegmentRows;
  std::vector<W> partial(size_t(segments * kept.numel));

  parallel_tasks(outer * blocks * segments, kept.numel * reduced.numel < kParallel, [&](int64_t task) {
    const int64_t segment = task % segments, block = task / segments % blocks, o = task / segments / blocks;
    const int64_t c0 = block * kColumns, n = std::min(kColumns, width - c0);
    const int64_t r0 = segment * kSegmentRows, r1 = std::min(reduced.numel, r0 + kSegmentRows);
    alignas(64) C sums[kColumns], buffer[kColumns];
    W* total = partial.data() + segment * kept.numel + o * width + c0;
    const int64_t base = Cursor(kept, 1, o * width + c0).offset();
    Cursor cursor(reduced, 0, r0);
    for (int64_t r = r0; r < r1; r += kRows) {
      const int64_t rows = std::min(kRows, r1 - r);
      for (int64_t k = 0; k < rows; ++k) {
        const char* at_row = at(x, base + cursor.offset());
        const bool direct = stride == 1 && x.dtype == dtype_of<C>;
        if (!direct) load<C>(x.dtype, at_row, stride, k == 0 ? sums : buffer, n);
        if (direct && k == 0) std::copy_n(reinterpret_cast<const C*>(at_row), n, sums);
        if (k > 0) reduce_columns<C>(op, sums, direct ? reinterpret_cast<const C*>(at_row) : buffer, n);
        cursor.advance(1);
      }
      if (r == r0)
        std::copy_n(sums, n, total);
      else
        for (int64_t c = 0; c < n; ++c) total[c] = reduce_join(op, total[c], W(sums[c]));
    }
  });
  // One element alone was never compared with anything.
  const bool truth = op == Reduce::any || op == Reduce::all;
  parallel_for(outer, 1, kept.numel < kParallel, [&](int64_t begin, int64_t end) {
    std::vector<double> means(op == Reduce::mean ? size_t(width) : 0);
    for (int64_t o = begin; o < end; ++o) {
      W* total = partial.data() + o * width;
      for (int64_t s = 1; s < segments; ++s) {
        for (int64_t c = 0; c < width; ++c) total[c] = reduce_join(op, total[c], total[s * kept.numel + c]);
      }
      for (int64_t c = 0; c < width && truth; ++c) total[c] = W(total[c] != W(0));
      char* to = at(out, Cursor(kept, 0, o * width).offset());
      if (op == Reduce::mean) {
        for (int64_t c = 0; c < width; ++c) means[size_t(c)] = double(total[c]) / double(reduced.numel);
        store<double>(out.dtype, means.data(), to, kept.strides[0][kept.rank - 1], width);
      } else {
        store<W>(out.dtype, total, to, kept.strides[0][kept.rank - 1], width);
      }
    }
  });
}

}  // namespace

void reduce(Reduce op, const TensorView& x, const TensorView& out) {
  if (out.numel() == 0) return;
  const Split split(x, out);
  Compute c = compute_of(x.dtype);
  // A product leaves float's range on the way to a result inside it.
  if (op == Reduce::prod && c == Compute::single) c = Compute::wide;
  with_compute(c, [&](auto tag) {
    using C = decltype(tag);
    if (split.by_columns())
      by_columns<C>(op, x, out, split);
    else
      by_rows<C>(op, x, out, split);
  });
}

void arg_reduce(bool largest, const TensorView& x, int dim, const TensorView& values, const TensorView& indices) {
  if (indices.numel() == 0) return;
  // Rank 0 counts as one dimension of one element.
  const int64_t length = x.shape.empty() ? 1 : x.shape[dim], step = x.shape.empty() ? 1 : x.strides[dim];
  Shape kept = x.shape;
  if (!kept.empty()) kept[dim] = 1;
  const Strides& value_strides = values ? values.strides : indices.strides;
  const Space s(kept, {&x.strides, &indices.strides, &value_strides});
  with_compute(compute_of(x.dtype), [&](auto tag) {
    using C = decltype(tag);
    parallel_for(s.numel, 16, s.numel * length < kParallel, [&](int64_t begin, int64_t end) {
      std::vector<C> row(static_cast<size_t>(length));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t from = Cursor(s, 0, i).offset();
        load<C>(x.dtype, at(x, from), step, row.data(), length);
        int64_t best = 0;
        for (int64_t k = 1; k < length && row[size_t(best)] == row[size_t(best)]; ++k) {
          const C v = row[size_t(k)], b = row[size_t(best)];
          if ((largest ? v > b : v < b) || v != v) best = k;
        }
        store_one<int64_t>(indices.dtype, best, at(indices, Cursor(s, 1, i).offset()));
        if (values) store_one<C>(values.dtype, row[size_t(best)], at(values, Cursor(s, 2, i).offset()));
      }
    });
  });
}

}  // namespace halfstep::cpu
