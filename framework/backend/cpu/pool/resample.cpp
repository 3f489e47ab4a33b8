// SPDX-License-Identifier: Apache-2.0
// Multiplies by a sparse matrix along one dimension: x [outer, I, inner] -> out [outer, O, inner],
//   out[a, o, b] = sum over the entries k of row o of weight[k] x[a, index[k], b]
// The gradient is the same call with the transposed matrix. With inner dimensions, whole lines are added. Along the innermost
// dimension, the elements of a row are gathered: the first entries of all outputs, then the second ones, and so on.
#include <algorithm>
#include <limits>
#include <vector>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kMostTaps = 8;  // entries per row up to which gathers along a row are vectorised

// Compute wa a, and wa a + wb b; if Add, they add that to out.
template <class C, bool Add>
HS_CLONES void add_weighted(const C* a, C wa, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = (Add ? out[i] : C(0)) + wa * a[i];
}
template <class C, bool Add>
HS_CLONES void add_weighted(const C* a, C wa, const C* b, C wb, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = (Add ? out[i] : C(0)) + (wa * a[i] + wb * b[i]);
}

// Computes out[o] = sum over t < Taps of weight[t n + o] x[index[t n + o]]. A weight of 0 means no entry.
template <class C, int Taps>
HS_CLONES void gather_row(const C* x, const int32_t* index, const C* weight, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t o = 0; o < n; ++o) {
    C sum = weight[o] * x[index[o]];
#pragma GCC unroll 8
    for (int t = 1; t < Taps; ++t) {
      const C w = weight[t * n + o], v = w * x[index[t * n + o]];
      sum += w == C(0) ? C(0) : v;
    }
    out[o] = sum;
  }
}
template <class C>
HS_CLONES void pick_row(const C* x, const int32_t* index, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t o = 0; o < n; ++o) out[o] = x[index[o]];
}

// The matrix as kernels read it.
template <class C>
struct Matrix {
  int64_t rows, taps = 0;
  const int64_t *start, *index;
  const C* weight;
  // taps x rows: all first entries, all second ones, ... Only if no row is empty or has many entries.
  std::vector<int32_t> flat_index;
  std::vector<C> flat_weight;
  bool picks = false;  // whether each row has one entry of weight 1

  Matrix(const SparseRows& m, int64_t columns, bool innermost)
      : rows(m.start.shape[0] - 1),
        start(m.start.as<const int64_t>()),
        index(m.index.as<const int64_t>()),
        weight(m.weight.as<const C>()) {
    if (!innermost || columns > std::numeric_limits<int32_t>::max()) return;
    int64_t least = kMostTaps, most = 0;
    for (int64_t o = 0; o < rows; ++o) {
      least = std::min(least, start[o + 1] - start[o]);
      most = std::max(most, start[o + 1] - start[o]);
    }
    if (least < 1 || most > kMostTaps) return;
    taps = most <= 2 ? most : most <= 4 ? 4 : kMostTaps;
    flat_index.resize(size_t(taps * rows));
    flat_weight.resize(size_t(taps * rows));
    picks = taps == 1;
    for (int64_t o = 0; o < rows; ++o) {
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t k = start[o] + t;
        const bool has_entry = k < start[o + 1];
        flat_index[size_t(t * rows + o)] = int32_t(index[has_entry ? k : start[o]]);
        flat_weight[size_t(t * rows + o)] = has_entry ? weight[k] : C(0);
        picks = picks && has_entry && weight[k] == C(1);
      }
    }
  }

  void apply(const C* x, C* out) const {
    const int32_t* const i = flat_index.data();
    const C* const w = flat_weight.data();
    if (picks) return pick_row(x, i, out, rows);
    if (taps == 1) return gather_row<C, 1>(x, i, w, out, rows);
    if (taps == 2) return gather_row<C, 2>(x, i, w, out, rows);
    if (taps == 4) return gather_row<C, 4>(x, i, w, out, rows);
    if (taps == kMostTaps) return gather_row<C, int(kMostTaps)>(x, i, w, out, rows);
    for (int64_t o = 0; o < rows; ++o) {
      C sum = 0;
      for (int64_t k = start[o]; k < start[o + 1]; ++k) sum += weight[k] * x[index[k]];
      out[o] = sum;
    }
  }
};

template <class C>
void resample_rows(const TensorView& x, const Matrix<C>& m, int64_t count, int64_t columns, const TensorView& out) {
  const bool direct_in = x.dtype == dtype_of<C>, direct_out = out.dtype == dtype_of<C>;
  parallel_for(count, 1, count * std::max(m.rows, columns) * 2, [&](int64_t begin, int64_t end) {
    std::vector<C> source(direct_in ? 0 : size_t(columns)), target(direct_out ? 0 : size_t(m.rows));
    for (int64_t r = begin; r < end; ++r) {
      if (!direct_in) load<C>(x.dtype, at(x, r * columns), 1, source.data(), columns);
      const C* const from = direct_in ? x.as<const C>() + r * columns : source.data();
      C* const to = direct_out ? out.as<C>() + r * m.rows : target.data();
      m.apply(from, to);
      if (!direct_out) store<C>(out.dtype, to, at(out, r * m.rows), 1, m.rows);
    }
  });
}

// Pieces of lines as C: in place, or the last few converted.
template <class C>
class Lines {
 public:
  explicit Lines(const TensorView& x) : view_(x), memory_(x.dtype == dtype_of<C> ? 0 : kSlots * kBlock) { forget(); }
  void forget() { std::fill_n(loaded_lines_, kSlots, -1); }
  // Returns n elements from `offset`, the piece of line i.
  const C* piece(int64_t i, int64_t offset, int64_t n) {
    if (memory_.empty()) return view_.as<const C>() + offset;
    const int64_t slot = i % kSlots;
    C* const buffer = memory_.data() + slot * kBlock;
    if (loaded_lines_[slot] != i) load<C>(view_.dtype, at(view_, offset), 1, buffer, n);
    loaded_lines_[slot] = i;
    return buffer;
  }

 private:
  static constexpr int64_t kSlots = 8;
  const TensorView& view_;
  std::vector<C> memory_;
  int64_t loaded_lines_[kSlots];
};

template <class C>
void resample_lines(const TensorView& x, const Matrix<C>& m, int64_t outer, int64_t columns, int64_t inner, const TensorView& out) {
  const int64_t pieces = (inner + kBlock - 1) / kBlock;
  const bool direct = out.dtype == dtype_of<C>;
  parallel_for(outer * pieces, 1, outer * inner * std::max(m.rows, columns), [&](int64_t begin, int64_t end) {
    Lines<C> lines(x);
    C block[kBlock];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t a = task / pieces, from = task % pieces * kBlock, n = std::min(kBlock, inner - from);
      const auto line = [&](int64_t i) { return lines.piece(i, (a * columns + i) * inner + from, n); };
      lines.forget();
      for (int64_t o = 0; o < m.rows; ++o) {
        const int64_t to = (a * m.rows + o) * inner + from, first = m.start[o], last = m.start[o + 1];
        C* const sum = direct ? out.as<C>() + to : block;
        if (first == last) std::fill_n(sum, n, C(0));
        for (int64_t k = first; k < last; ++k) {
          const int64_t i = m.index[k];
          const C w = m.weight[k];
          if (k + 1 < last && m.index[k + 1] == i + 1) {  // nearly always neighbours
            const C *const p = line(i), *const next = line(i + 1);
            k == first ? add_weighted<C, false>(p, w, next, m.weight[k + 1], sum, n)
                       : add_weighted<C, true>(p, w, next, m.weight[k + 1], sum, n);
            ++k;
          } else {
            k == first ? add_weighted<C, false>(line(i), w, sum, n) : add_weighted<C, true>(line(i), w, sum, n);
          }
        }
        if (!direct) store<C>(out.dtype, sum, at(out, to), 1, n);
      }
    }
  });
}

template <class C>
void resample_in(const TensorView& x, int dim, const SparseRows& matrix, const TensorView& out) {
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < dim; ++d) outer *= x.shape[d];
  for (int d = dim + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  const int64_t columns = x.shape[dim];
  const Matrix<C> m(matrix, columns, inner == 1);
  inner == 1 ? resample_rows<C>(x, m, outer, columns, out) : resample_lines<C>(x, m, outer, columns, inner, out);
}

}  // namespace

void resample(const TensorView& x, int dim, const SparseRows& matrix, const TensorView& out) {
  if (out.numel() == 0) return;
  matrix.weight.dtype == DType::f64 ? resample_in<double>(x, dim, matrix, out) : resample_in<float>(x, dim, matrix, out);
}

}  // namespace halfstep::cpu
