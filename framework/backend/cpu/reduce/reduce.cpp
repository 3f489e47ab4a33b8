// SPDX-License-Identifier: Apache-2.0
// Reductions over any dimensions. The reduced elements of an output are cut into segments by shape alone, each segment is reduced
// by one thread, and segments are joined in order: the result is the same for any number of threads.
#include <algorithm>
#include <limits>
#include <vector>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/reduce/reduce_kernels.h"
#include "framework/backend/cpu/reduce/reduce_split.h"
#include "framework/backend/cpu/reduce/rows.h"
#include "framework/math/scalar.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kSegment = 32 * kBlock;    // elements of a row that a thread reduces at once
constexpr int64_t kColumns = 1024;           // columns kept side by side
constexpr int64_t kRows = 64;                // rows added in float before the sum goes to double
constexpr int64_t kSegmentRows = 8 * kRows;  // rows of a column block that a thread reduces at once

// Writes a result; a mean of integers is a float.
template <class W>
void write(Reduce op, W value, int64_t count, const TensorView& out, int64_t offset) {
  if (op == Reduce::mean) {
    store_one<double>(out.dtype, count == 0 ? std::numeric_limits<double>::quiet_NaN() : double(value) / double(count),
                      at(out, offset));
  } else {
    store_one<W>(out.dtype, value, at(out, offset));
  }
}

bool is_sum(Reduce op) { return op == Reduce::sum || op == Reduce::mean; }
bool adds_terms(Reduce op) { return is_sum(op) || op == Reduce::sum_squares || op == Reduce::sum_abs; }

// Returns the terms to add up; `buffer` may be x.
template <class C>
HS_CLONES const C* terms_of(Reduce op, const C* x, C* buffer, int64_t n) {
  if (op == Reduce::sum_squares) {
    HS_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) buffer[i] = m::mul(x[i], x[i]);
    return buffer;
  }
  if (op == Reduce::sum_abs) {
    HS_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) buffer[i] = x[i] < C(0) ? m::neg(x[i]) : x[i];
    return buffer;
  }
  return x;
}

// Rows [begin, end) of dense floats, or of bf16 that are added up as stored.
struct DenseRows {
  int64_t begin, end, length, x_step, out_step;
};
// Reduces short rows in as few steps as possible, because the steps take as long as a row itself.
void reduce_dense_rows(Reduce op, const TensorView& x, const TensorView& out, const DenseRows& rows, bool as_stored) {
  for (int64_t o = rows.begin; o < rows.end; ++o) {
    double value = 0;
    for (int64_t i = 0; i < rows.length; i += kBlock) {
      const int64_t n = std::min(kBlock, rows.length - i), from = o * rows.x_step + i;
      const double block =
          as_stored ? sum_row(op, x.as<const bf16>() + from, n) : reduce_row<float>(op, x.as<const float>() + from, n);
      value = i == 0 ? block : reduce_join(op, value, block);
    }
    if (out.dtype == DType::f32)
      out.as<float>()[o * rows.out_step] = float(op == Reduce::mean ? value / double(rows.length) : value);
    else
      write(op, value, rows.length, out, o * rows.out_step);
  }
}

// Reduces each row by itself.
template <class C>
void reduce_by_rows(Reduce op, const TensorView& x, const TensorView& out, const ReduceSplit& split) {
  using W = Wide<C>;
  const Space kept(split.kept, {&split.kept_out, &split.kept_in}), reduced(split.reduced, {&split.reduced_in});
  const int64_t segments = std::max<int64_t>(1, (reduced.numel + kSegment - 1) / kSegment);
  std::vector<W> partial(segments > 1 ? size_t(kept.numel * segments) : 0);
  const int64_t work = kept.numel * std::max<int64_t>(reduced.numel, 8);
  const int64_t grain = std::max<int64_t>(1, 8 * kBlock / std::max<int64_t>(std::min(reduced.numel, kSegment), 8));
  const bool as_stored = x.dtype == DType::bf16 && adds_terms(op) && reduced.dense(0);

  const bool dense = std::is_floating_point_v<C> && x.dtype == dtype_of<C> && reduced.dense(0);
  if constexpr (std::is_same_v<C, float>) {
    if ((dense || as_stored) && segments == 1 && kept.rank == 1 && reduced.numel > 0) {
      return parallel_for(kept.numel, grain, work, [&](int64_t begin, int64_t end) {
        reduce_dense_rows(op, x, out, {begin, end, reduced.numel, kept.strides[1][0], kept.strides[0][0]}, as_stored);
      });
    }
  }

  parallel_for(kept.numel * segments, grain, work, [&](int64_t begin, int64_t end) {
    alignas(64) C buffer[kBlock];
    TensorView row = x;
    Cursor from(kept, 1, begin / segments);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t o = task / segments, first = task % segments * kSegment, last = std::min(reduced.numel, first + kSegment);
      row.data = at(x, from.offset());
      if (first + kSegment >= reduced.numel) from.advance(1);
      W value = reduce_identity<W>(op);
      for (int64_t i = first; i < last; i += kBlock) {
        const int64_t n = std::min(kBlock, last - i);
        W block;
        if (as_stored)
          block = W(sum_row(op, row.as<const bf16>() + i, n));
        else if constexpr (std::is_floating_point_v<C>)
          block = reduce_row<C>(op, fetch<C>(reduced, 0, row, i, n, buffer), n);
        else
          block = reduce_row<C>(op, terms_of(op, fetch<C>(reduced, 0, row, i, n, buffer), buffer, n), n);
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

// Joins the results of `segments` parts of each column, [segments, kept.numel], into out.
template <class W>
void join_columns(Reduce op, std::vector<W>& partial, int64_t segments, const Space& kept, int64_t length, const TensorView& out) {
  // A single element was never compared with anything.
  const bool truth = op == Reduce::any || op == Reduce::all;
  const int64_t width = kept.shape[kept.rank - 1], out_step = kept.strides[0][kept.rank - 1];
  parallel_for(kept.numel / width, 1, kept.numel, [&](int64_t begin, int64_t end) {
    std::vector<double> means(op == Reduce::mean ? size_t(width) : 0);
    for (int64_t o = begin; o < end; ++o) {
      W* total = partial.data() + o * width;
      for (int64_t s = 1; s < segments; ++s) {
        for (int64_t c = 0; c < width; ++c) total[c] = reduce_join(op, total[c], total[s * kept.numel + c]);
      }
      for (int64_t c = 0; c < width && truth; ++c) total[c] = W(total[c] != W(0));
      char* to = at(out, Cursor(kept, 0, o * width).offset());
      if (op == Reduce::mean) {
        for (int64_t c = 0; c < width; ++c) means[size_t(c)] = double(total[c]) / double(length);
        store<double>(out.dtype, means.data(), to, out_step, width);
      } else {
        store<W>(out.dtype, total, to, out_step, width);
      }
    }
  });
}

// Reduces columns that are side by side.
template <class C>
void reduce_by_columns(Reduce op, const TensorView& x, const TensorView& out, const ReduceSplit& split) {
  using W = Wide<C>;
  const Space kept(split.kept, {&split.kept_out, &split.kept_in}), reduced(split.reduced, {&split.reduced_in});
  const int64_t width = kept.shape[kept.rank - 1], stride = kept.strides[1][kept.rank - 1];
  const int64_t outer = kept.numel / width, blocks = (width + kColumns - 1) / kColumns;
  const int64_t segments = (reduced.numel + kSegmentRows - 1) / kSegmentRows;
  std::vector<W> partial(size_t(segments * kept.numel));

  parallel_tasks(outer * blocks * segments, kept.numel * reduced.numel, [&](int64_t task) {
    const int64_t segment = task % segments, block = task / segments % blocks, o = task / segments / blocks;
    const int64_t first_column = block * kColumns, n = std::min(kColumns, width - first_column);
    const int64_t first_row = segment * kSegmentRows, last_row = std::min(reduced.numel, first_row + kSegmentRows);
    alignas(64) C sums[kColumns], buffer[kColumns];
    W* total = partial.data() + segment * kept.numel + o * width + first_column;
    const int64_t base = Cursor(kept, 1, o * width + first_column).offset();
    Cursor cursor(reduced, 0, first_row);
    const bool adds_floats = std::is_same_v<C, float> && is_sum(op) && stride == 1 && reduced.rank == 1 &&
                             (x.dtype == DType::f32 || x.dtype == DType::bf16);
    for (int64_t r = first_row; r < last_row; r += kRows) {
      const int64_t rows = std::min(kRows, last_row - r);
      if constexpr (std::is_same_v<C, float>) {
        if (adds_floats) {
          const char* first = at(x, base + cursor.offset());
          const int64_t step = reduced.strides[0][0];
          std::fill_n(sums, n, 0.0f);
          if (x.dtype == DType::f32)
            sum_columns(sums, reinterpret_cast<const float*>(first), step, rows, n);
          else
            sum_columns(sums, reinterpret_cast<const bf16*>(first), step, rows, n);
          cursor.advance(rows);
        }
      }
      for (int64_t k = 0; k < rows && !adds_floats; ++k) {
        const char* at_row = at(x, base + cursor.offset());
        const bool direct = stride == 1 && x.dtype == dtype_of<C>;
        if (!direct) load<C>(x.dtype, at_row, stride, k == 0 ? sums : buffer, n);
        const C* values = direct ? reinterpret_cast<const C*>(at_row) : k == 0 ? sums : buffer;
        values = terms_of(op, values, k == 0 ? sums : buffer, n);
        if (k == 0 && values != sums) std::copy_n(values, n, sums);
        if (k > 0) reduce_columns<C>(op, sums, values, n);
        cursor.advance(1);
      }
      if (r == first_row)
        std::copy_n(sums, n, total);
      else
        for (int64_t c = 0; c < n; ++c) total[c] = reduce_join(op, total[c], W(sums[c]));
    }
  });
  join_columns<W>(op, partial, segments, kept, reduced.numel, out);
}

// Returns whether some x is `value` or NaN.
template <class C>
HS_CLONES bool contains_or_nan(const C* x, C value, int64_t n) {
  uint32_t hit = 0;
  for (int64_t i = 0; i < n; ++i) hit |= uint32_t(x[i] == value) | uint32_t(x[i] != x[i]);
  return hit != 0;
}
// Returns the first place of the extreme, where NaN counts as extreme: first finds the block, then the element.
template <class C>
int64_t first_extreme(bool largest, const C* x, int64_t n) {
  const C top = C(reduce_row<C>(largest ? Reduce::max : Reduce::min, x, n));
  int64_t i = 0;
  constexpr int64_t kSearchBlock = 128;
  while (i + kSearchBlock < n && !contains_or_nan(x + i, top, kSearchBlock)) i += kSearchBlock;
  while (i + 1 < n && x[i] != top && x[i] == x[i]) ++i;
  return i;
}

// Compares the rows of a column block one after the other, and keeps the best and its place.
template <class C, bool Largest>
HS_CLONES void keep_better(const C* x, C* best, C* where, C row, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const C v = x[i], b = best[i];
    const bool take = (Largest ? v > b : v < b) | ((v != v) & (b == b));
    best[i] = take ? v : b;
    where[i] = take ? row : where[i];
  }
}

// The rows of arg_reduce.
struct ArgRows {
  const TensorView &x, &values, &indices;
  Space rows;  // offsets in x, indices and values
  int64_t length, step;
  bool largest;

  template <class C>
  void write(int64_t row, int64_t index, C value) const {
    store_one<int64_t>(indices.dtype, index, at(indices, Cursor(rows, 1, row).offset()));
    if (values) store_one<C>(values.dtype, value, at(values, Cursor(rows, 2, row).offset()));
  }
  template <class C>
  void find_in_rows() const {
    parallel_for(rows.numel, 16, rows.numel * length, [&](int64_t begin, int64_t end) {
      std::vector<C> buffer(static_cast<size_t>(length));
      for (int64_t r = begin; r < end; ++r) {
        const C* row = read_row<C>(x, Cursor(rows, 0, r).offset(), step, length, buffer.data());
        const int64_t best = first_extreme(largest, row, length);
        write(r, best, row[best]);
      }
    });
  }
  // Stores indices as C, which holds them exactly.
  template <class C>
  void find_in_columns() const {
    const int64_t inner = rows.rank - 1, width = rows.shape[inner], stride = rows.strides[0][inner];
    parallel_for(rows.numel, 64, rows.numel * length, [&](int64_t begin, int64_t end) {
      alignas(64) C buffer[kColumns], best[kColumns], where[kColumns];
      for (int64_t c = begin; c < end;) {
        const int64_t n = std::min({end - c, width - c % width, kColumns}), from = Cursor(rows, 0, c).offset();
        load<C>(x.dtype, at(x, from), stride, best, n);
        std::fill_n(where, n, C(0));
        for (int64_t i = 1; i < length; ++i) {
          const C* row = read_row<C>(x, from + i * step, stride, n, buffer);
          largest ? keep_better<C, true>(row, best, where, C(i), n) : keep_better<C, false>(row, best, where, C(i), n);
        }
        for (int64_t k = 0; k < n; ++k) write(c + k, int64_t(where[k]), best[k]);
        c += n;
      }
    });
  }
};

}  // namespace

void reduce(Reduce op, const TensorView& x, const TensorView& out) {
  if (out.numel() == 0) return;
  const ReduceSplit split(x, out);
  Compute c = compute_of(x.dtype);
  // A product may leave float's range on the way to a result inside it.
  if (op == Reduce::prod && c == Compute::single && split.by_columns()) c = Compute::wide;
  with_compute(c, [&](auto tag) {
    using C = decltype(tag);
    if (split.by_columns())
      reduce_by_columns<C>(op, x, out, split);
    else
      reduce_by_rows<C>(op, x, out, split);
  });
}

void arg_reduce(bool largest, const TensorView& x, int dim, const TensorView& values, const TensorView& indices) {
  if (indices.numel() == 0) return;
  const Strides& value_strides = values ? values.strides : indices.strides;
  const ArgRows rows{x,
                     values,
                     indices,
                     Space(without(x.shape, dim), {&x.strides, &indices.strides, &value_strides}),
                     row_length(x, dim),
                     row_stride(x, dim),
                     largest};
  const int64_t inner = rows.rows.rank - 1;
  const bool rows_are_side_by_side = rows.rows.shape[inner] >= 8 && std::abs(rows.rows.strides[0][inner]) < std::abs(rows.step);
  with_compute(compute_of(x.dtype), [&](auto tag) {
    using C = decltype(tag);
    constexpr int64_t kExactFloats = int64_t(1) << 24;  // indices below it are exact as floats
    if (rows_are_side_by_side && rows.length < kExactFloats)
      rows.find_in_columns<C>();
    else
      rows.find_in_rows<C>();
  });
}

}  // namespace halfstep::cpu
