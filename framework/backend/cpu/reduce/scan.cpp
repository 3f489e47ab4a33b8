// SPDX-License-Identifier: Apache-2.0
// Running sums and products along one dimension: out[i] = x[0] op ... op x[i], reverse: x[i] op ... op x[n - 1]. Floats are
// carried in double. Rows side by side are carried together, element by element. Rows that are dense in memory are cut into
// segments by their length alone, so that the result is the same for any number of threads.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/reduce/reduce_kernels.h"
#include "framework/backend/cpu/reduce/rows.h"
#include "framework/math/scalar.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kSegment = 64 * kBlock;  // elements of a long row that a thread takes at once
constexpr int64_t kColumns = 512;          // columns kept side by side

struct Add {
  static constexpr int kIdentity = 0;
  template <class W>
  static W join(W a, W b) {
    return m::add(a, b);
  }
};
struct Multiply {
  static constexpr int kIdentity = 1;
  template <class W>
  static W join(W a, W b) {
    return m::mul(a, b);
  }
};

// Computes out[i] = carry = carry op x[i], one after the other.
template <class Op, class C, class W>
W scan_serial(const C* x, W carry, C* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = C(carry = Op::join(carry, W(x[i])));
  return carry;
}

// Computes the same sums in runs of four, by adding each run to itself shifted by one and by two places: only the carry between
// runs depends on earlier results.
template <class C>
HS_CLONES double sum_in_runs(const C* x, double carry, C* out, int64_t n) {
  typedef double Run __attribute__((vector_size(32)));
  typedef C Values __attribute__((vector_size(4 * sizeof(C))));
  const Run zero = {};
  Run before = zero + carry;
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    Values v;
    std::memcpy(&v, x + i, sizeof v);
    Run sums = __builtin_convertvector(v, Run);
    sums += __builtin_shufflevector(sums, zero, 4, 0, 1, 2);
    sums += __builtin_shufflevector(sums, zero, 4, 4, 0, 1);
    v = __builtin_convertvector(sums + before, Values);
    before += __builtin_shufflevector(sums, sums, 3, 3, 3, 3);
    std::memcpy(out + i, &v, sizeof v);
  }
  return scan_serial<Add>(x + i, before[0], out + i, n - i);
}

// Scans a block. Does not split products, because the product of a part may leave the range of the whole.
template <class Op, class C, class W>
W scan_block(const C* x, W carry, C* out, int64_t n) {
  if constexpr (std::is_same_v<Op, Add> && std::is_same_v<W, double>) { return sum_in_runs(x, carry, out, n); }
  return scan_serial<Op>(x, carry, out, n);
}

// A line of elements that are `step` apart in an operand.
struct Line {
  const TensorView& view;
  int64_t step;

  template <class C>
  const C* read(int64_t offset, int64_t n, C* buffer) const {
    return read_row<C>(view, offset, step, n, buffer);
  }
  // Returns where to put the values for `offset`: there, or in the buffer, which write stores.
  template <class C>
  C* target(int64_t offset, C* buffer) const {
    return view.dtype == dtype_of<C> && step == 1 ? view.as<C>() + offset : buffer;
  }
  template <class C>
  void write(int64_t offset, const C* from, int64_t n, const C* buffer) const {
    if (from == buffer) store<C>(view.dtype, buffer, at(view, offset), step, n);
  }
};

// Scans each row by itself. Long sums are cut into segments: first their totals, in parallel, then each from the total before it.
template <class Op, class C>
void scan_rows(const Space& rows, const Line& from, const Line& to, int64_t length) {
  using W = Wide<C>;
  const bool cuts = std::is_same_v<Op, Add> && length >= 2 * kSegment;
  const int64_t segment = cuts ? kSegment : length, segments = (length + segment - 1) / segment;
  std::vector<W> before(size_t(rows.numel * segments), W(Op::kIdentity));
  const int64_t work = rows.numel * length * 4;
  const int64_t grain = std::max<int64_t>(1, kBlock / length);
  if (cuts) {
    parallel_for(rows.numel * segments, 1, work, [&](int64_t begin, int64_t end) {
      alignas(64) C buffer[kBlock];
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % segments * segment, last = std::min(length, first + segment);
        const int64_t at_row = Cursor(rows, 0, task / segments).offset();
        for (int64_t i = first; i < last; i += kBlock) {
          const int64_t n = std::min(kBlock, last - i);
          W& sum = before[size_t(task)];
          sum = m::add(sum, reduce_row<C>(Reduce::sum, from.read(at_row + i * from.step, n, buffer), n));
        }
      }
    });
    for (int64_t r = 0; r < rows.numel; ++r) {
      W carry = 0;
      for (int64_t s = 0; s < segments; ++s) carry = m::add(carry, std::exchange(before[size_t(r * segments + s)], carry));
    }
  }
  parallel_for(rows.numel * segments, grain, work, [&](int64_t begin, int64_t end) {
    alignas(64) C buffer[kBlock], results[kBlock];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % segments * segment, last = std::min(length, first + segment);
      const int64_t x_row = Cursor(rows, 0, task / segments).offset(), out_row = Cursor(rows, 1, task / segments).offset();
      W carry = before[size_t(task)];
      for (int64_t i = first; i < last; i += kBlock) {
        const int64_t n = std::min(kBlock, last - i), o = out_row + i * to.step;
        C* result = to.target(o, results);
        carry = scan_block<Op>(from.read(x_row + i * from.step, n, buffer), carry, result, n);
        to.write(o, result, n, results);
      }
    }
  });
}

// Joins a line to the carries of its columns.
template <class Op, class C, class W>
HS_CLONES void join_line(const C* x, W* carry, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = C(carry[i] = Op::join(carry[i], W(x[i])));
}

// Scans lines along the innermost dimension of `rows`, which is not the scan's: columns do not depend on each other.
template <class Op, class C>
void scan_columns(const Space& rows, const Line& from, const Line& to, int64_t length) {
  using W = Wide<C>;
  const int64_t inner = rows.rank - 1, width = rows.shape[inner];
  const Line x_line{from.view, rows.strides[0][inner]}, out_line{to.view, rows.strides[1][inner]};
  parallel_for(rows.numel, 16, rows.numel * length * 4, [&](int64_t begin, int64_t end) {
    alignas(64) C buffer[kColumns], results[kColumns];
    alignas(64) W carry[kColumns];
    for (int64_t c = begin; c < end;) {
      const int64_t n = std::min({end - c, width - c % width, kColumns});
      const int64_t x_at = Cursor(rows, 0, c).offset(), out_at = Cursor(rows, 1, c).offset();
      std::fill_n(carry, n, W(Op::kIdentity));
      for (int64_t i = 0; i < length; ++i) {
        const int64_t o = out_at + i * to.step;
        C* result = out_line.target(o, results);
        join_line<Op>(x_line.read(x_at + i * from.step, n, buffer), carry, result, n);
        out_line.write(o, result, n, results);
      }
      c += n;
    }
  });
}

// Returns a view of the same elements from last to first along dim.
TensorView backwards(TensorView v, int dim) {
  v.data = at(v, (v.shape[dim] - 1) * v.strides[dim]);
  v.strides[dim] = -v.strides[dim];
  return v;
}

}  // namespace

void scan(Scan op, const TensorView& x, int dim, bool reverse, const TensorView& out) {
  if (out.numel() == 0) return;
  if (reverse && !x.shape.empty()) return scan(op, backwards(x, dim), dim, false, backwards(out, dim));
  const int64_t length = row_length(x, dim);
  const Space rows(without(x.shape, dim), {&x.strides, &out.strides});
  const Line from{x, row_stride(x, dim)}, to{out, row_stride(out, dim)};
  const int64_t inner = rows.rank - 1;
  const bool columns = rows.shape[inner] >= 8 && std::abs(rows.strides[0][inner]) < std::abs(from.step);
  with_compute(compute_of(x.dtype), [&](auto tag) {
    using C = decltype(tag);
    const auto run = columns ? (op == Scan::sum ? scan_columns<Add, C> : scan_columns<Multiply, C>)
                             : (op == Scan::sum ? scan_rows<Add, C> : scan_rows<Multiply, C>);
    run(rows, from, to, length);
  });
}

}  // namespace halfstep::cpu
