// SPDX-License-Identifier: Apache-2.0
// Maxima (see pool.cpp) of windows that overlap, for example 3 x 3 with a stride of 2: first the maximum of each column over the
// rows of the windows, then over the columns of each window. This takes fewer comparisons than one by one, and all of them run
// along memory in whole vectors. Of equal elements, and of several NaN, the one with the lowest index wins.
#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <vector>

#include "framework/backend/cpu/lanes.h"
#include "framework/backend/cpu/parallel.h"
#include "framework/backend/cpu/pool/pool.h"

namespace halfstep::cpu::pooling {
namespace {

constexpr int64_t kVector = 16;  // loops over multiples of this have no remainder
constexpr int64_t round_up(int64_t n) { return (n + kVector - 1) / kVector * kVector; }

// Finds the largest element, or the first NaN, of each column of one to three rows, and the start of its row; unless `Begin`, among
// the earlier rows too.
template <class C, class I, int Rows, bool Begin>
HS_CLONES void take_rows(const C* const* rows, const I* firsts, C* best, I* where, int64_t n) {
  const C *const a = rows[0], *const b = rows[Rows > 1], *const c = rows[Rows - 1];
  const I at_a = firsts[0], at_b = firsts[Rows > 1], at_c = firsts[Rows - 1];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    // Uses masks, which GCC vectorises; it would compile conditions to jumps.
    I most = std::bit_cast<I>(Begin ? a[i] : best[i]), at = Begin ? at_a : where[i];
    const auto take = [&](C v, I first) HS_INLINE {
      const C old = std::bit_cast<C>(most);
      const I mask = -I(!(v <= old) & (old == old));
      most = (std::bit_cast<I>(v) & mask) | (most & ~mask);
      at = (first & mask) | (at & ~mask);
    };
    if constexpr (!Begin) take(a[i], at_a);
    if constexpr (Rows > 1) take(b[i], at_b);
    if constexpr (Rows > 2) take(c[i], at_c);
    best[i] = std::bit_cast<C>(most);
    where[i] = at;
  }
}
template <class C, class I, bool Begin>
void take_rows(int count, const C* const* rows, const I* firsts, C* best, I* where, int64_t n) {
  if (count == 1) return take_rows<C, I, 1, Begin>(rows, firsts, best, where, n);
  if (count == 2) return take_rows<C, I, 2, Begin>(rows, firsts, best, where, n);
  take_rows<C, I, 3, Begin>(rows, firsts, best, where, n);
}
// Joins one column of each window to its maximum so far; of equal numbers, and of NaNs, the lowest index wins.
template <class C, class I>
HS_CLONES void take_columns(const C* x, const I* rows, const I* columns, C* best, I* where, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const C v = x[i], old = best[i];
    const I index = rows[i] + columns[i], best_index = where[i];
    const bool equal = (v == old) | ((v != v) & (old != old));
    const bool takes = (!(v <= old) & (old == old)) | (equal & (index < best_index));
    best[i] = takes ? v : old;
    where[i] = takes ? index : best_index;
  }
}
// Copies every `step`-th element.
template <class T>
HS_CLONES void take_every(const T* x, int64_t step, T* out, int64_t n) {
  if (step == 2) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[2 * i];
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i * step];
  }
}
// Begins each window with -infinity at its first element.
template <class C, class I>
HS_CLONES void begin_windows(const I* starts, I corner, C* best, I* where, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    best[i] = -std::numeric_limits<C>::infinity();
    where[i] = starts[i] + corner;
  }
}

// The maxima of the windows of some output rows. All rows go through each stage together, because reading what a stage has just
// written would be slow. C and I: float and int32_t, or double and int64_t. An index is the sum of the index of a row's first
// element and a column.
template <class C, class I>
class Maxima {
  static constexpr C kLeast = -std::numeric_limits<C>::infinity();
  struct Memory {
    std::vector<C> best;
    std::vector<I> where;

    explicit Memory(int64_t n) : best(size_t(n), kLeast), where(size_t(n), 0) {}
  };

 public:
  explicit Maxima(const Axis& x)
      : x_(x),
        per_remainder_(
            round_up(std::max(x.out + (x.size - 1) * x.dilation / x.stride, (x.padding + x.in + x.stride - 1) / x.stride))),
        rows_at_once_(std::clamp<int64_t>(kBlock / (per_remainder_ * x.stride), 1, 16)),
        columns_(rows_at_once_ * per_remainder_ * x.stride),
        sorted_(x.stride > 1 ? rows_at_once_ * per_remainder_ * x.stride : 0),
        found_(rows_at_once_ * per_remainder_),
        place_(size_t(rows_at_once_ * per_remainder_ * x.stride), std::numeric_limits<I>::max() / 2),
        starts_(starts_of<I>(x)) {
    starts_.resize(size_t(per_remainder_));
    for (int64_t r = 0; r < rows_at_once_; ++r)
      for (int64_t i = 0; i < x.in; ++i) place_[size_t(sorted(i + x.padding) + r * per_remainder_)] = I(i);
  }
  int64_t rows_at_once() const { return rows_at_once_; }  // output rows per call of find

  // Adds the rows under the windows of output row r. firsts: the indices of their first elements.
  void add(int64_t r, std::span<const C* const> rows, std::span<const I> firsts) {
    C* const best = best_of(r);
    I* const where = where_of(r);
    for (size_t k = 0; k < rows.size(); k += 3) {
      const int count = int(std::min<size_t>(rows.size() - k, 3));
      if (k == 0)
        take_rows<C, I, true>(count, rows.data(), firsts.data(), best, where, x_.in);
      else
        take_rows<C, I, false>(count, rows.data() + k, firsts.data() + k, best, where, x_.in);
    }
    begin_windows(starts_.data(), firsts[0], found_.best.data() + r * per_remainder_, found_.where.data() + r * per_remainder_,
                  per_remainder_);
  }
  // Finds the maxima of the windows of the first `rows` output rows.
  void find(int64_t rows) {
    for (int64_t k = 0; k < x_.stride && x_.stride > 1; ++k) {
      take_every(columns_.best.data() + k, x_.stride, sorted_.best.data() + sorted(k), rows * per_remainder_);
      take_every(columns_.where.data() + k, x_.stride, sorted_.where.data() + sorted(k), rows * per_remainder_);
    }
    const Memory& from = x_.stride > 1 ? sorted_ : columns_;
    for (int64_t k = 0; k < x_.size; ++k) {
      const int64_t at = sorted(k * x_.dilation), shift = k * x_.dilation / x_.stride;  // offset beyond the end of the last row
      take_columns(from.best.data() + at, from.where.data() + at, place_.data() + at, found_.best.data(), found_.where.data(),
                   rows * per_remainder_ - shift);
    }
  }
  const C* values(int64_t r) const { return found_.best.data() + r * per_remainder_; }
  const I* indices(int64_t r) const { return found_.where.data() + r * per_remainder_; }

 private:
  C* best_of(int64_t r) { return columns_.best.data() + r * per_remainder_ * x_.stride + x_.padding; }
  I* where_of(int64_t r) { return columns_.where.data() + r * per_remainder_ * x_.stride + x_.padding; }
  // Returns the place of a column of the first row after sorting by the remainder modulo the stride, which makes the columns of a
  // tap neighbours.
  int64_t sorted(int64_t column) const { return column % x_.stride * rows_at_once_ * per_remainder_ + column / x_.stride; }

  const Axis& x_;
  int64_t per_remainder_, rows_at_once_;  // columns per remainder in a row; rows
  Memory columns_, sorted_, found_;
  std::vector<I> place_, starts_;  // the sorted columns; the first column of each window
};

template <class C, class I>
void max_pool_rows(const TensorView& x, const Pooling& p, const TensorView& out, const TensorView& indices) {
  parallel_for(p.rows(), 1, out.numel() * 4, [&](int64_t begin, int64_t end) {
    Rows<C> source(x, p);
    Maxima<C, I> maxima(p.x);
    std::vector<const C*> under;  // rows under the windows of one output row
    std::vector<I> firsts;
    for (int64_t from = begin; from < end; from += maxima.rows_at_once()) {
      const int64_t rows = std::min(maxima.rows_at_once(), end - from);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t oy = (from + r) % p.y.out, oz = (from + r) / p.y.out % p.z.out, plane = (from + r) / p.y.out / p.z.out;
        const int64_t z0 = p.z.begin(oz), y0 = p.y.begin(oy);
        under.clear();
        firsts.clear();
        for (int64_t iz = z0; iz < p.z.end(oz); iz += p.z.dilation) {
          for (int64_t iy = y0; iy < p.y.end(oy); iy += p.y.dilation) {
            under.push_back(source.row(plane, iz, iy));
            firsts.push_back(I((iz * p.y.in + iy) * p.x.in));
          }
        }
        maxima.add(r, under, firsts);
      }
      maxima.find(rows);
      for (int64_t r = 0; r < rows; ++r) {
        if (indices) put_positions(maxima.indices(r), p.x.out, indices, (from + r) * p.x.out);
        store<C>(out.dtype, maxima.values(r), at(out, (from + r) * p.x.out), 1, p.x.out);
      }
    }
  });
}

}  // namespace

bool max_pool_overlapping(const TensorView& x, const Pooling& p, const TensorView& out, const TensorView& indices) {
  const auto inside = [](const Axis& a) {
    return !a.adaptive && a.padding < a.size && a.begin(a.out - 1) < a.in && a.begin(0) < a.in;
  };
  if (p.lanes > 1 || p.x.size <= p.x.stride || p.z.size * p.y.size == 1 || !(inside(p.x) && inside(p.y) && inside(p.z)))
    return false;
  if (x.dtype == DType::f64 || p.in_plane() > std::numeric_limits<int32_t>::max() / 2)
    max_pool_rows<double, int64_t>(x, p, out, indices);
  else
    max_pool_rows<float, int32_t>(x, p, out, indices);
  return true;
}

}  // namespace halfstep::cpu::pooling
