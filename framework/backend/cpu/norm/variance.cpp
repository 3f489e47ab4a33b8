// SPDX-License-Identifier: Apache-2.0
// Mean and variance of the n reduced elements of each output: mean = sum x / n, var = sum (x - mean)^2 / max(0, n - correction). A
// part is read twice, the second time from the cache, about its own mean. Parts 1 and 2 are joined in double, in an order that
// depends only on the shape: with d = mean2 - mean1 and n = n1 + n2, mean = mean1 + d n2 / n, squares = squares1 + squares2 + d^2
// n1 n2 / n.
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/lanes.h"
#include "framework/backend/cpu/norm/moments.h"
#include "framework/backend/cpu/reduce/reduce_kernels.h"
#include "framework/backend/cpu/reduce/reduce_split.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kSegment = 32 * kBlock;     // elements of a row that a thread takes at once
constexpr int64_t kColumns = 256;             // columns kept side by side
constexpr int64_t kRows = 32;                 // rows of a part
constexpr int64_t kSegmentRows = 16 * kRows;  // rows of a column block that a thread takes at once

// Writes the mean and variance of an output.
struct MomentsWriter {
  const TensorView &mean, &var;
  double correction;

  void write(const Moments& m, int64_t mean_at, int64_t var_at) const {
    const double divisor = std::max(0.0, double(m.count) - correction);
    if (mean) store_one<double>(mean.dtype, m.count ? m.mean : std::numeric_limits<double>::quiet_NaN(), at(mean, mean_at));
    store_one<double>(var.dtype, m.squares / divisor, at(var, var_at));
  }
};

// Reduces dense rows. T is C, or bfloat16 if x is.
template <class C, class T>
void variance_by_rows(const TensorView& x, const MomentsWriter& out, const Space& kept, const Space& reduced) {
  const int64_t segments = std::max<int64_t>(1, (reduced.numel + kSegment - 1) / kSegment);
  std::vector<Moments> partial(segments > 1 ? size_t(kept.numel * segments) : 0);
  const int64_t work = kept.numel * std::max<int64_t>(reduced.numel, 8);
  const int64_t grain = std::max<int64_t>(1, 8 * kBlock / std::max<int64_t>(std::min(reduced.numel, kSegment), 8));
  const auto write = [&](int64_t o, const Moments& m) { out.write(m, Cursor(kept, 2, o).offset(), Cursor(kept, 0, o).offset()); };
  parallel_for(kept.numel * segments, grain, work, [&](int64_t begin, int64_t end) {
    alignas(64) T buffer[kBlock];
    TensorView row = x;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t o = task / segments, first = task % segments * kSegment, last = std::min(reduced.numel, first + kSegment);
      row.data = at(x, Cursor(kept, 1, o).offset());
      Moments m;
      for (int64_t i = first; i < last; i += kBlock) {
        const int64_t n = std::min(kBlock, last - i);
        m.join(moments_of<C>(fetch<T>(reduced, 0, row, i, n, buffer), n));
      }
      if (segments > 1)
        partial[size_t(task)] = m;
      else
        write(o, m);
    }
  });
  if (segments == 1) return;
  for (int64_t o = 0; o < kept.numel; ++o) {
    Moments m;
    for (int64_t s = 0; s < segments; ++s) m.join(partial[size_t(o * segments + s)]);
    write(o, m);
  }
}

// Moments of columns side by side, over `count` elements each.
struct ColumnMoments {
  double *mean, *squares;

  // Joins columns with `more` elements each.
  HS_CLONES void join(int64_t count, const double* means, const double* more_squares, int64_t more, int64_t n) const {
    if (count == 0) {
      std::copy_n(means, n, mean);
      std::copy_n(more_squares, n, squares);
      return;
    }
    const double share = double(more) / double(count + more), weight = double(count) * share;
    HS_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const double d = means[i] - mean[i];
      mean[i] += d * share;
      squares[i] += more_squares[i] + d * d * weight;
    }
  }
};

// Columns of at most kRows rows: first their mean, then the sums of x - mean and of its square, several rows at a time.
template <class C>
struct ColumnBlock {
  alignas(64) C center[kColumns], sum[kColumns], squares[kColumns];

  // Calls f(i, values) for Rows more rows, with a vector of values from column i on, or with one.
  template <int Rows, int bytes, class T, class F>
  [[gnu::always_inline]] static inline void each(const T* const* rows, int64_t n, const F& f) {
    using V = Lanes<C, bytes>;
    constexpr int kWidth = kLanes / int(sizeof(C));
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      V v[Rows];
      for (int k = 0; k < Rows; ++k) load_lanes(rows[k] + i, v[k]);
      f(i, v);
    }
    for (; i < n; ++i) {
      C v[Rows];
      for (int k = 0; k < Rows; ++k) v[k] = cast<C>(rows[k][i]);
      f(i, v);
    }
  }
  template <int Rows, int bytes, class T>
  [[gnu::always_inline]] inline void add_to_center(const T* const* rows, int64_t n) {
    each<Rows, bytes>(rows, n, [&](int64_t i, const auto& v) HS_INLINE {
      auto total = v[0];
      for (int k = 1; k < Rows; ++k) total += v[k];
      auto old = total;
      load_lanes(center + i, old);
      total += old;
      store_lanes(total, center + i);
    });
  }
  template <int Rows, int bytes, class T>
  [[gnu::always_inline]] inline void add_distances(const T* const* rows, int64_t n) {
    each<Rows, bytes>(rows, n, [&](int64_t i, const auto& v) HS_INLINE {
      auto middle = v[0], s = v[0], q = v[0];
      load_lanes(center + i, middle);
      load_lanes(sum + i, s);
      load_lanes(squares + i, q);
      for (int k = 0; k < Rows; ++k) {
        const auto d = v[k] - middle;
        s += d;
        q += d * d;
      }
      store_lanes(s, sum + i);
      store_lanes(q, squares + i);
    });
  }
  template <class T>
  void add_up(const T* const* rows, int64_t count, int64_t n) {
    std::fill_n(center, n, C(0));
    std::fill_n(sum, n, C(0));
    std::fill_n(squares, n, C(0));
    with_lanes([=, this](auto bytes) HS_INLINE {
      int64_t r = 0;
      for (; r + 8 <= count; r += 8) add_to_center<8, bytes>(rows + r, n);
      for (; r < count; ++r) add_to_center<1, bytes>(rows + r, n);
      for (int64_t i = 0; i < n; ++i) center[i] /= C(count);
      for (r = 0; r + 8 <= count; r += 8) add_distances<8, bytes>(rows + r, n);
      for (; r < count; ++r) add_distances<1, bytes>(rows + r, n);
    });
  }
  // Writes the means, and the sums of squares about them, of the `count` values of each column.
  HS_CLONES void write_moments(int64_t count, int64_t n, double* means, double* squares_about_mean) const {
    HS_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const double s = double(sum[i]), rest = double(squares[i]) - s * s / double(count);
      means[i] = double(center[i]) + s / double(count);
      squares_about_mean[i] = rest < 0 ? 0 : rest;  // NaN stays
    }
  }
};

// Reduces columns that are side by side.
template <class C>
void variance_by_columns(const TensorView& x, const MomentsWriter& out, const Space& kept, const Space& reduced) {
  const int64_t width = kept.shape[kept.rank - 1], stride = kept.strides[1][kept.rank - 1];
  const int64_t outer = kept.numel / width, blocks = (width + kColumns - 1) / kColumns;
  const int64_t segments = (reduced.numel + kSegmentRows - 1) / kSegmentRows;
  const bool as_bf16 = stride == 1 && std::is_same_v<C, float> && x.dtype == DType::bf16;
  const bool direct = as_bf16 || (stride == 1 && x.dtype == dtype_of<C>);
  std::vector<double> means(size_t(segments * kept.numel)), squares(means.size());
  const auto partial = [&](int64_t segment, int64_t o) {
    return ColumnMoments{means.data() + segment * kept.numel + o, squares.data() + segment * kept.numel + o};
  };
  parallel_tasks(outer * blocks * segments, kept.numel * reduced.numel, [&](int64_t task) {
    const int64_t segment = task % segments, block = task / segments % blocks, o = task / segments / blocks;
    const int64_t first_column = block * kColumns, n = std::min(kColumns, width - first_column);
    const int64_t first_row = segment * kSegmentRows, last_row = std::min(reduced.numel, first_row + kSegmentRows);
    std::vector<C> copies(direct ? 0 : size_t(kRows * kColumns));
    ColumnBlock<C> part;
    const void* rows_of[kRows];
    double mean[kColumns], squares_about_mean[kColumns];
    const ColumnMoments total = partial(segment, o * width + first_column);
    const int64_t base = Cursor(kept, 1, o * width + first_column).offset();
    Cursor cursor(reduced, 0, first_row);
    for (int64_t r = first_row; r < last_row; r += kRows) {
      const int64_t rows = std::min(kRows, last_row - r);
      for (int64_t k = 0; k < rows; ++k) {
        const char* from = at(x, base + cursor.offset());
        C* copy = copies.data() + (direct ? 0 : k * kColumns);
        if (!direct) load<C>(x.dtype, from, stride, copy, n);
        rows_of[k] = direct ? static_cast<const void*>(from) : copy;
        cursor.advance(1);
      }
      const auto add_up = [&](auto stored) {
        const decltype(stored)* typed[kRows];
        for (int64_t k = 0; k < rows; ++k) typed[k] = static_cast<const decltype(stored)*>(rows_of[k]);
        part.add_up(typed, rows, n);
      };
      if constexpr (std::is_same_v<C, float>) {
        as_bf16 ? add_up(bf16{}) : add_up(C{});
      } else {
        add_up(C{});
      }
      part.write_moments(rows, n, mean, squares_about_mean);
      total.join(r - first_row, mean, squares_about_mean, rows, n);
    }
  });
  parallel_for(kept.numel, kColumns, kept.numel * segments, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    const ColumnMoments all = partial(0, begin);
    for (int64_t s = 1; s < segments; ++s) {
      const ColumnMoments next = partial(s, begin);
      all.join(s * kSegmentRows, next.mean, next.squares, std::min(kSegmentRows, reduced.numel - s * kSegmentRows), n);
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t o = begin + i;
      out.write({all.mean[i], all.squares[i], reduced.numel}, Cursor(kept, 2, o).offset(), Cursor(kept, 0, o).offset());
    }
  });
}

}  // namespace

void variance(const TensorView& x, double correction, const TensorView& mean, const TensorView& var) {
  if (var.numel() == 0) return;
  const ReduceSplit split(x, var);
  const Strides mean_out = mean ? ReduceSplit(x, mean).kept_out : split.kept_out;
  const Space kept(split.kept, {&split.kept_out, &split.kept_in, &mean_out}), reduced(split.reduced, {&split.reduced_in});
  const MomentsWriter out{mean, var, correction};
  if (split.by_columns())
    return x.dtype == DType::f64 ? variance_by_columns<double>(x, out, kept, reduced)
                                 : variance_by_columns<float>(x, out, kept, reduced);
  if (x.dtype == DType::f64) return variance_by_rows<double, double>(x, out, kept, reduced);
  x.dtype == DType::bf16 ? variance_by_rows<float, bf16>(x, out, kept, reduced)
                         : variance_by_rows<float, float>(x, out, kept, reduced);
}

}  // namespace halfstep::cpu
