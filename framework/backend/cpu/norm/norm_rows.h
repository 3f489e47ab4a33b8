// SPDX-License-Identifier: Apache-2.0
// Normalisation of a row in the cache. The mean and the scale of a row are one number, or one for each element.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "framework/backend/cpu/lanes.h"
#include "framework/backend/cpu/norm/moments.h"
#include "framework/backend/cpu/reduce/rows.h"
#include "framework/math/functors.h"

namespace halfstep::cpu {

inline constexpr int64_t kShortRun = 64;  // pixels per channel below which parameters are repeated for each pixel

// Returns the values of a parameter, each `repeat` times; `otherwise` if it is empty. count: without repetition.
template <class C>
std::vector<C> parameter(const TensorView& v, int64_t count, int64_t repeat, C otherwise) {
  std::vector<C> values(size_t(count * repeat), otherwise);
  if (!v) return values;
  if (repeat == 1) {
    load<C>(v.dtype, v.data, 1, values.data(), count);
  } else {
    for (int64_t i = 0; i < count; ++i) std::fill_n(values.data() + i * repeat, repeat, load_one<C>(v.dtype, at(v, i)));
  }
  return values;
}

// Calls f(C{}, T{}): C is the type of the computation; T is the type in which loops access the tensors: bfloat16 if all are
// (widened and rounded in registers), else C.
template <class F>
void with_types(std::initializer_list<const TensorView*> views, const F& f) {
  const auto all = [&](DType t) { return std::all_of(views.begin(), views.end(), [&](auto* v) { return !*v || v->dtype == t; }); };
  if (all(DType::bf16)) return f(float{}, bf16{});
  (*views.begin())->dtype == DType::f64 ? f(double{}, double{}) : f(float{}, float{});
}

// Return where to compute n results from element `from` on (in place, or in a buffer), and store the buffer.
template <class T>
T* begin_row(const TensorView& out, int64_t from, T* buffer) {
  return out.dtype == dtype_of<T> ? out.as<T>() + from : buffer;
}
template <class T>
void end_row(const TensorView& out, int64_t from, const T* values, int64_t n) {
  if (out.dtype != dtype_of<T>) store<T>(out.dtype, values, at(out, from), 1, n);
}

// A ReLU behind map_run with this scale and bias: g counts as 0 where the result is at most `zero` (stored_as_zero).
template <class C>
struct RunRelu {
  C scale{}, bias{}, zero{};
};
// Computes sum g and sum g (x - mean) rstd of a block in the cache; if Weighted, of g w.
template <bool Weighted, class C, class T, bool Relu = false>
void gradient_sums(const T* g, const T* x, const C* w, C mean, C rstd, int64_t n, double& first, double& second,
                   RunRelu<C> relu = {}) {
  const std::pair<C, C> sums = with_lanes([=](auto bytes) HS_INLINE {
    constexpr int kWidth = kLanes / int(sizeof(C));
    Lanes<C, bytes> g_sums = {}, gx_sums = {}, g_values, x_values, w_values;
    const auto add = [&]() HS_INLINE {
      if constexpr (Weighted) g_values *= w_values;
      if constexpr (Relu) zero_where_at_most(g_values, (x_values - mean) * relu.scale + relu.bias, relu.zero);
      g_sums += g_values;
      gx_sums += g_values * ((x_values - mean) * rstd);
    };
    const int64_t whole = n / kWidth * kWidth, rest = n - whole;
    for (int64_t i = 0; i < whole; i += kWidth) {
      load_lanes(g + i, g_values);
      load_lanes(x + i, x_values);
      if constexpr (Weighted) load_lanes(w + i, w_values);
      add();
    }
    if (rest > 0) {  // missing elements have no gradient
      load_last(g, n, rest, g_values);
      load_last(x, n, rest, x_values);
      if constexpr (Weighted) load_last(w, n, rest, w_values);
      add();
    }
    C lanes[2][kWidth];
    store_lanes(g_sums, lanes[0]);
    store_lanes(gx_sums, lanes[1]);
    return std::pair(sum_lanes(lanes[0]), sum_lanes(lanes[1]));
  });
  first = double(sums.first);
  second = double(sums.second);
}

// Returns max(v, 0); NaN stays.
template <bool Relu, class C>
[[gnu::always_inline]] inline C rectified(C v) {
  return Relu && v <= C(0) ? C(0) : v;
}

// Computes out = (x - mean) scale + bias
template <bool Relu = false, class C, class T>
HS_CLONES void map_run(const T* x, C mean, C scale, C bias, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(rectified<Relu>((C(x[i]) - mean) * scale + bias));
}

// Computes out = max(a + b, 0). out may be a.
template <class C, class T>
HS_CLONES void add_relu_run(const T* a, const T* b, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(functor::add_relu{}(C(a[i]), C(b[i])));
}
// Ends a row as end_row does, with add_relu of it, as it would be stored, and the residual. n is at most kBlock.
template <class C, class T>
void end_row_add_relu(const TensorView& out, const TensorView& residual, int64_t from, T* values, int64_t n) {
  alignas(64) T buffer[kBlock], residual_buffer[kBlock];
  end_row(out, from, values, n);
  add_relu_run<C>(read_row<T>(out, from, 1, n, buffer), read_row<T>(residual, from, 1, n, residual_buffer), values, n);
  end_row(out, from, values, n);
}

// Adds up rows [0, count) of `rows`, each `n` wide, column by column in order, and passes the sums to take.
template <class C, class F>
void join_rows(const std::vector<C>& rows, int64_t count, int64_t n, const F& take) {
  parallel_for(n, kBlock, n * count, [&](int64_t begin, int64_t end) {
    double sums[kBlock];
    for (int64_t from = begin; from < end; from += kBlock) {
      const int64_t width = std::min(kBlock, end - from);
      std::fill_n(sums, width, 0.0);
      for (int64_t r = 0; r < count; ++r) {
        const C* row = rows.data() + r * n + from;
        for (int64_t i = 0; i < width; ++i) sums[i] += double(row[i]);
      }
      for (int64_t i = 0; i < width; ++i) take(from + i, sums[i]);
    }
  });
}

// Decides how columns are added up: many rows in parts that are joined; few wide rows by blocks of columns over all rows. Depends
// on the shape alone, so that sums do not depend on the threads.
inline bool are_wide_rows(int64_t rows, int64_t columns) { return rows < kBlock && columns >= 4 * kBlock; }
inline int64_t rows_at_once(int64_t rows) { return std::clamp<int64_t>(rows / 64, 16, 256); }

// Adds up columns. add(row, column, n, into): adds n elements of a wide row from `column` on to the two sums of each column,
// into[0] and into[1]. add_whole(row, into): the same for a whole row. take(column, sum, sum): called once for each column.
template <class C, class Add, class AddWhole, class Take>
void sum_columns(int64_t rows, int64_t columns, int64_t work, const Add& add, const AddWhole& add_whole, const Take& take) {
  if (are_wide_rows(rows, columns)) {
    return parallel_tasks((columns + kBlock - 1) / kBlock, work, [&](int64_t block) {
      const int64_t from = block * kBlock, n = std::min(kBlock, columns - from);
      alignas(64) C sums[2][kBlock] = {};
      C* const into[2] = {sums[0], sums[1]};
      for (int64_t r = 0; r < rows; ++r) add(r, from, n, into);
      for (int64_t i = 0; i < n; ++i) take(from + i, double(sums[0][i]), double(sums[1][i]));
    });
  }
  const int64_t part = rows_at_once(rows), parts = (rows + part - 1) / part;
  std::vector<C> sums(size_t(2 * parts * columns));
  parallel_tasks(parts, work, [&](int64_t p) {
    C* const into[2] = {sums.data() + p * 2 * columns, sums.data() + (p * 2 + 1) * columns};
    for (int64_t r = p * part; r < std::min(rows, (p + 1) * part); ++r) add_whole(r, into);
  });
  std::vector<double> joined(static_cast<size_t>(2 * columns));
  join_rows(sums, parts, 2 * columns, [&](int64_t i, double v) { joined[size_t(i)] = v; });
  for (int64_t i = 0; i < columns; ++i) take(i, joined[size_t(i)], joined[size_t(columns + i)]);
}

}  // namespace halfstep::cpu
