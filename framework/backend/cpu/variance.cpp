// Mean and variance: a part at a time about a mean of its own, which is in the cache when it is read again; parts are joined
// in double, in an order that the shape alone fixes.
#include <algorithm>
#include <limits>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/moments.h"
#include "framework/backend/cpu/reduce_kernels.h"
#include "framework/backend/cpu/reduce_split.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kSegment = 32 * kBlock;     // elements of a row a thread takes at once
constexpr int64_t kColumns = 256;             // columns kept side by side
constexpr int64_t kRows = 32;                 // rows of a part
constexpr int64_t kSegmentRows = 16 * kRows;  // rows of a column block a thread takes at once

// From sums of x - about and (x - about)^2.
Moments about(double center, double sum, double squares, int64_t n) {
  const double rest = squares - sum * sum / double(n);
  return {center + sum / double(n), rest < 0 ? 0 : rest, n};  // a NaN stays
}

struct Out {
  const TensorView &mean, &var;
  double correction;

  void write(const Moments& m, int64_t mean_at, int64_t var_at) const {
    const double divisor = std::max(0.0, double(m.count) - correction);
    if (mean) store_one<double>(mean.dtype, m.count ? m.mean : std::numeric_limits<double>::quiet_NaN(), at(mean, mean_at));
    store_one<double>(var.dtype, m.squares / divisor, at(var, var_at));
  }
};

template <class C>
void by_rows(const TensorView& x, const Out& out, const Space& kept, const Space& reduced) {
  const int64_t segments = std::max<int64_t>(1, (reduced.numel + kSegment - 1) / kSegment);
  std::vector<Moments> partial(segments > 1 ? size_t(kept.numel * segments) : 0);
  const int64_t work = kept.numel * std::max<int64_t>(reduced.numel, 8);
  const int64_t grain = std::max<int64_t>(1, 8 * kBlock / std::max<int64_t>(std::min(reduced.numel, kSegment), 8));
  const auto write = [&](int64_t o, const Moments& m) { out.write(m, Cursor(kept, 2, o).offset(), Cursor(kept, 0, o).offset()); };
  parallel_for(kept.numel * segments, grain, work, [&](int64_t begin, int64_t end) {
    alignas(64) C buffer[kBlock];
    TensorView row = x;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t o = task / segments, first = task % segments * kSegment, last = std::min(reduced.numel, first + kSegment);
      row.data = at(x, Cursor(kept, 1, o).offset());
      Moments m;
      for (int64_t i = first; i < last; i += kBlock) {
        const int64_t n = std::min(kBlock, last - i);
        m.join(moments_of<C>(fetch<C>(reduced, 0, row, i, n, buffer), n));
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

// One row of a column block more: sum += x - center, squares += (x - center)^2.
template <class C>
HS_CLONES void add_row(const C* x, const C* center, C* sum, C* squares, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const C d = x[i] - center[i];
    sum[i] += d;
    squares[i] += d * d;
  }
}

template <class C>
void by_columns(const TensorView& x, const Out& out, const Space& kept, const Space& reduced) {
  const int64_t width = kept.shape[kept.rank - 1], stride = kept.strides[1][kept.rank - 1];
  const int64_t outer = kept.numel / width, blocks = (width + kColumns - 1) / kColumns;
  const int64_t segments = (reduced.numel + kSegmentRows - 1) / kSegmentRows;
  const bool direct = stride == 1 && x.dtype == dtype_of<C>;
  std::vector<Moments> partial(size_t(segments * kept.numel));
  parallel_tasks(outer * blocks * segments, kept.numel * reduced.numel, [&](int64_t task) {
    const int64_t segment = task % segments, block = task / segments % blocks, o = task / segments / blocks;
    const int64_t c0 = block * kColumns, n = std::min(kColumns, width - c0);
    const int64_t r0 = segment * kSegmentRows, r1 = std::min(reduced.numel, r0 + kSegmentRows);
    std::vector<C> copies(direct ? 0 : size_t(kRows * kColumns));
    alignas(64) C center[kColumns], sum[kColumns], squares[kColumns];
    const C* part[kRows];
    Moments* total = partial.data() + segment * kept.numel + o * width + c0;
    const int64_t base = Cursor(kept, 1, o * width + c0).offset();
    Cursor cursor(reduced, 0, r0);
    for (int64_t r = r0; r < r1; r += kRows) {
      const int64_t rows = std::min(kRows, r1 - r);
      std::fill_n(center, n, C(0));
      for (int64_t k = 0; k < rows; ++k) {
        const char* from = at(x, base + cursor.offset());
        if (!direct) load<C>(x.dtype, from, stride, copies.data() + k * kColumns, n);
        part[k] = direct ? reinterpret_cast<const C*>(from) : copies.data() + k * kColumns;
        reduce_columns<C>(Reduce::sum, center, part[k], n);
        cursor.advance(1);
      }
      for (int64_t c = 0; c < n; ++c) {
        center[c] /= C(rows);
        sum[c] = squares[c] = 0;
      }
      for (int64_t k = 0; k < rows; ++k) add_row(part[k], center, sum, squares, n);
      for (int64_t c = 0; c < n; ++c) total[c].join(about(double(center[c]), double(sum[c]), double(squares[c]), rows));
    }
  });
  parallel_for(kept.numel, 64, kept.numel * 8, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      Moments m;
      for (int64_t s = 0; s < segments; ++s) m.join(partial[size_t(s * kept.numel + o)]);
      out.write(m, Cursor(kept, 2, o).offset(), Cursor(kept, 0, o).offset());
    }
  });
}

}  // namespace

void variance(const TensorView& x, double correction, const TensorView& mean, const TensorView& var) {
  if (var.numel() == 0) return;
  const Split split(x, var);
  const Strides mean_out = mean ? Split(x, mean).kept_out : split.kept_out;
  const Space kept(split.kept, {&split.kept_out, &split.kept_in, &mean_out}), reduced(split.reduced, {&split.reduced_in});
  const Out out{mean, var, correction};
  const auto run = [&](auto tag) {
    using C = decltype(tag);
    if (split.by_columns())
      by_columns<C>(x, out, kept, reduced);
    else
      by_rows<C>(x, out, kept, reduced);
  };
  x.dtype == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace halfstep::cpu
