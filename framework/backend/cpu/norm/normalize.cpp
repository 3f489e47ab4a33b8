// SPDX-License-Identifier: Apache-2.0
// Layer, RMS and group normalisation of x [R, G, C, L]: R rows of G groups, C channels of L pixels each; n = C L elements share
// one mean and variance, and each (group, channel) has a weight w and a bias b.
//   forward   mean = sum x / n (RMS: 0), rstd = 1 / sqrt(sum (x - mean)^2 / n + eps), xhat = (x - mean) rstd, y = xhat w + b
//   backward  dx = rstd (g w - sum(g w) / n - xhat sum(g w xhat) / n), for RMS without the first sum
//             dw = sum g xhat, db = sum g over rows and pixels
// The statistics take two passes over a block in the cache, and the result takes one. x may be a sum that is made row by row, and
// dx may be added to a gradient that x has from elsewhere.
#include <algorithm>
#include <cmath>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/norm/moments.h"
#include "framework/backend/cpu/norm/norm_columns.h"
#include "framework/backend/cpu/norm/norm_rows.h"

namespace halfstep::cpu {
namespace {

template <class C, class T>
HS_CLONES void map_row(const T* x, C mean, C rstd, const C* w, const C* b, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>((C(x[i]) - mean) * rstd * w[i] + b[i]);
}

// Computes dx = rstd (g w - first - xhat second)
template <class C, class T>
HS_CLONES void gradient_row(const T* g, const T* x, const C* w, C mean, C rstd, C first, C second, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(rstd * (C(g[i]) * w[i] - first - (C(x[i]) - mean) * rstd * second));
}

template <class C, class T>
HS_CLONES void sum_run(const T* a, const T* b, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(C(a[i]) + C(b[i]));
}

template <class C, class T>
HS_CLONES void weighted_run(const T* g, const T* x, C w, C mean, C rstd, C first, C second, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(rstd * (C(g[i]) * w - first - (C(x[i]) - mean) * rstd * second));
}

template <class C, class T>
HS_CLONES void add_gradient(const T* g, const T* x, C mean, C rstd, C* dw, C* db, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    db[i] += C(g[i]);
    dw[i] += C(g[i]) * ((C(x[i]) - mean) * rstd);
  }
}

// The shape as the loops see it: short runs of pixels become elements with their own parameters.
struct Layout {
  int64_t slices, length;         // length: number of elements that share a mean
  int64_t groups, channels, run;  // channels of a slice, with `run` pixels each
  int64_t repeat;                 // number of columns that share a parameter

  explicit Layout(const NormArgs& a)
      : slices(a.rows * a.groups), length(a.channels * a.inner), groups(a.groups), channels(a.channels), run(a.inner), repeat(1) {
    if (run >= kShortRun) return;
    repeat = run;
    channels *= run;
    run = 1;
  }
  int64_t columns() const { return groups * channels; }
  int64_t work() const { return slices * length * 4; }
  int64_t grain() const { return std::max<int64_t>(1, kBlock / std::max<int64_t>(length, 1)); }
};

// Calls f(at, n, c) for n elements of a slice from `at` on that share the parameters of channel c; the block begins at `from`.
template <class F>
void each_run(const Layout& s, int64_t from, int64_t n, const F& f) {
  for (int64_t i = 0; i < n;) {
    const int64_t c = (from + i) / s.run, width = std::min(n - i, (c + 1) * s.run - from - i);
    f(i, width, c);
    i += width;
  }
}

// Computes the statistics of x[from, from + n). `buffer` then holds its last block.
template <class C, class T>
void statistics(const NormArgs& a, const TensorView& x, int64_t from, int64_t n, T* buffer, C& mean, C& rstd) {
  Moments m;
  double squares = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t width = std::min(kBlock, n - i);
    const T* p = read_row<T>(x, from + i, 1, width, buffer);
    if (a.centered) {
      m.join(moments_of<C>(p, width));
    } else {
      double sum, part;
      sums_about(p, C(0), width, sum, part);
      squares += part;
    }
  }
  mean = C(m.mean);
  rstd = C(1 / std::sqrt((a.centered ? m.squares : squares) / double(n) + a.eps));
}

// Tensors whose sum is normalised; empty: the sum is given.
struct Terms {
  TensorView a, b;

  // Computes sum[from, from + n).
  template <class C, class T>
  void add_up(const TensorView& sum, int64_t from, int64_t n) const {
    alignas(64) T a_buffer[kBlock], b_buffer[kBlock], made[kBlock];
    for (int64_t i = from; i < from + n; i += kBlock) {
      const int64_t width = std::min(kBlock, from + n - i);
      T* to = begin_row(sum, i, made);
      sum_run<C>(read_row<T>(a, i, 1, width, a_buffer), read_row<T>(b, i, 1, width, b_buffer), to, width);
      end_row(sum, i, to, width);
    }
  }
};

template <class C, class T>
void forward(const NormArgs& a, const Terms& terms, const TensorView& x, const TensorView& weight, const TensorView& bias,
             const TensorView& out, const TensorView& mean_out, const TensorView& rstd_out) {
  const Layout s(a);
  const std::vector<C> w = parameter<C>(weight, a.groups * a.channels, s.repeat, C(1)),
                       b = parameter<C>(bias, a.groups * a.channels, s.repeat, C(0));
  parallel_for(s.slices, s.grain(), s.work(), [&](int64_t begin, int64_t end) {
    alignas(64) T buffer[kBlock], made[kBlock];
    for (int64_t k = begin; k < end; ++k) {
      C mean, rstd;
      if (terms.a) terms.add_up<C, T>(x, k * s.length, s.length);
      statistics(a, x, k * s.length, s.length, buffer, mean, rstd);
      if (mean_out) store_one(mean_out.dtype, mean, at(mean_out, k));
      store_one(rstd_out.dtype, rstd, at(rstd_out, k));
      const C *wk = w.data() + k % s.groups * s.channels, *bk = b.data() + k % s.groups * s.channels;
      for (int64_t i = 0; i < s.length; i += kBlock) {
        const int64_t from = k * s.length + i, n = std::min(kBlock, s.length - i);
        const T* p = s.length <= kBlock && x.dtype != dtype_of<T> ? buffer : read_row<T>(x, from, 1, n, buffer);
        T* to = begin_row(out, from, made);
        if (s.run == 1)
          map_row(p, mean, rstd, wk + i, bk + i, to, n);
        else
          each_run(s, i, n, [&](int64_t j, int64_t width, int64_t c) { map_run(p + j, mean, rstd * wk[c], bk[c], to + j, width); });
        end_row(out, from, to, n);
      }
    }
  });
}

template <class C, class T>
struct Backward {
  const NormArgs& a;
  const TensorView &grad, &x, &mean, &rstd, &dx;
  TensorView residual{}, copy{};  // what dx is added to, and where else it goes; may be empty
  Layout s{a};
  std::vector<C> w{};

  // The inputs of a block in the cache.
  struct Block {
    alignas(64) T g_buffer[kBlock], x_buffer[kBlock], made[kBlock];
    const T *g, *x;
    C mean, rstd;
  };
  void begin(Block& t, int64_t slice) const {
    t.mean = mean ? load_one<C>(mean.dtype, at(mean, slice)) : C(0);
    t.rstd = load_one<C>(rstd.dtype, at(rstd, slice));
  }
  int64_t read(Block& t, int64_t slice, int64_t i) const {
    const int64_t n = std::min(kBlock, s.length - i), from = slice * s.length + i;
    t.g = read_row<T>(grad, from, 1, n, t.g_buffer);
    t.x = read_row<T>(x, from, 1, n, t.x_buffer);
    return n;
  }
  void finish(const double (&sums)[2], C& first, C& second) const {
    first = a.centered ? C(sums[0] / double(s.length)) : C(0);
    second = C(sums[1] / double(s.length));
  }

  // Computes a row of dx. dw, db: receive this row's gradients of the parameters; may be null.
  void row(Block& t, int64_t slice, C* dw, C* db) const {
    begin(t, slice);
    const C* wk = w.data() + slice % s.groups * s.channels;
    double sums[2] = {0, 0};
    int64_t n = 0;
    for (int64_t i = 0; i < s.length; i += kBlock) {
      n = read(t, slice, i);
      if (dw) add_gradient(t.g, t.x, t.mean, t.rstd, dw + i, db + i, n);
      if (!dx) continue;
      double first, second;
      gradient_sums<true>(t.g, t.x, wk + i, t.mean, t.rstd, n, first, second);
      sums[0] += first;
      sums[1] += second;
    }
    if (!dx) return;
    C first, second;
    finish(sums, first, second);
    for (int64_t i = 0; i < s.length; i += kBlock) {
      if (s.length > kBlock) n = read(t, slice, i);
      const int64_t from = slice * s.length + i;
      T* to = begin_row(dx, from, t.made);
      gradient_row(t.g, t.x, wk + i, t.mean, t.rstd, first, second, to, n);
      if (residual) add_residual(to, from, n);
      end_row(dx, from, to, n);
      if (copy) store<T>(copy.dtype, to, at(copy, from), 1, n);
    }
  }
  // Adds the residual to n elements of dx, which are rounded to its dtype before.
  void add_residual(T* d, int64_t from, int64_t n) const {
    alignas(64) T buffer[kBlock];
    if (dx.dtype != dtype_of<T>) {
      end_row(dx, from, d, n);
      load<T>(dx.dtype, at(dx, from), 1, d, n);
    }
    sum_run<C>(d, read_row<T>(residual, from, 1, n, buffer), d, n);
  }

  void by_rows(const TensorView& dweight, const TensorView& dbias) const {
    const int64_t columns = s.columns();
    const bool wanted = dweight || dbias, apart = !wanted || wide_rows(a.rows, columns);
    if (dx && apart) {
      parallel_for(s.slices, s.grain(), s.work(), [&](int64_t begin_slice, int64_t end_slice) {
        Block t;
        for (int64_t k = begin_slice; k < end_slice; ++k) row(t, k, nullptr, nullptr);
      });
    }
    if (!wanted) return;
    // Adds a part of a row, group by group; or a whole narrow row, which also computes its dx.
    const auto add = [&](int64_t r, int64_t from, int64_t n, C* const* into) {
      Block t;
      for (int64_t c = from; c < from + n;) {
        const int64_t group = c / s.channels, i = c - group * s.channels, k = r * s.groups + group;
        const int64_t width = std::min(from + n - c, s.channels - i), at_column = c - from;
        begin(t, k);
        t.g = read_row<T>(grad, k * s.length + i, 1, width, t.g_buffer);
        t.x = read_row<T>(x, k * s.length + i, 1, width, t.x_buffer);
        add_gradient(t.g, t.x, t.mean, t.rstd, into[1] + at_column, into[0] + at_column, width);
        c += width;
      }
    };
    const auto add_whole = [&](int64_t r, C* const* into) {
      Block t;
      for (int64_t group = 0; group < s.groups; ++group)
        row(t, r * s.groups + group, into[1] + group * s.channels, into[0] + group * s.channels);
    };
    std::vector<double> sums[2] = {std::vector<double>(size_t(columns)), std::vector<double>(size_t(columns))};
    sum_columns<C>(a.rows, columns, s.work(), add, add_whole, [&](int64_t i, double plain, double scaled) {
      sums[0][size_t(i)] = plain;
      sums[1][size_t(i)] = scaled;
    });
    for (int64_t i = 0; i < columns; i += s.repeat) {
      double total[2] = {0, 0};
      for (int64_t k = i; k < i + s.repeat; ++k) {
        total[0] += sums[0][size_t(k)];
        total[1] += sums[1][size_t(k)];
      }
      if (dbias) store_one(dbias.dtype, total[0], at(dbias, i / s.repeat));
      if (dweight) store_one(dweight.dtype, total[1], at(dweight, i / s.repeat));
    }
  }

  // Long runs of pixels: the parameters' gradients need only the sums of each channel of each row.
  void by_runs(const TensorView& dweight, const TensorView& dbias) const {
    const int64_t columns = s.columns();
    std::vector<double> dw(size_t(a.rows * columns)), db(dw.size());
    parallel_for(s.slices, 1, s.work(), [&](int64_t begin_slice, int64_t end_slice) {
      Block t;
      for (int64_t k = begin_slice; k < end_slice; ++k) {
        begin(t, k);
        double *dwk = dw.data() + k * s.channels, *dbk = db.data() + k * s.channels, sums[2] = {0, 0};
        for (int64_t i = 0; i < s.length; i += kBlock) {
          each_run(s, i, read(t, k, i), [&](int64_t j, int64_t width, int64_t c) {
            double first, second;
            gradient_sums<false, C>(t.g + j, t.x + j, nullptr, t.mean, t.rstd, width, first, second);
            dbk[c] += first;
            dwk[c] += second;
          });
        }
        if (!dx) continue;
        const C* wk = w.data() + k % s.groups * s.channels;
        for (int64_t c = 0; c < s.channels; ++c) {
          sums[0] += double(wk[c]) * dbk[c];
          sums[1] += double(wk[c]) * dwk[c];
        }
        C first, second;
        finish(sums, first, second);
        for (int64_t i = 0; i < s.length; i += kBlock) {
          const int64_t n = read(t, k, i);
          T* to = begin_row(dx, k * s.length + i, t.made);
          each_run(s, i, n, [&](int64_t j, int64_t width, int64_t c) {
            weighted_run(t.g + j, t.x + j, wk[c], t.mean, t.rstd, first, second, to + j, width);
          });
          end_row(dx, k * s.length + i, to, n);
        }
      }
    });
    if (dweight) join_rows(dw, a.rows, columns, [&](int64_t i, double v) { store_one(dweight.dtype, v, at(dweight, i)); });
    if (dbias) join_rows(db, a.rows, columns, [&](int64_t i, double v) { store_one(dbias.dtype, v, at(dbias, i)); });
  }
};

}  // namespace

void normalize(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias, const TensorView& out,
               const TensorView& mean, const TensorView& rstd) {
  if (x.format() == MemoryFormat::channels_last) return normalize_channels_last(args, x, weight, bias, out, mean, rstd);
  with_types({&x, &out}, [&](auto c, auto t) { forward<decltype(c), decltype(t)>(args, {}, x, weight, bias, out, mean, rstd); });
}

void add_normalize(const NormArgs& args, const TensorView& a, const TensorView& b, const TensorView& weight, const TensorView& bias,
                   const TensorView& sum, const TensorView& out, const TensorView& mean, const TensorView& rstd) {
  with_types({&sum, &a, &b, &out}, [&](auto c, auto t) {
    forward<decltype(c), decltype(t)>(args, {a, b}, sum, weight, bias, out, mean, rstd);
  });
}

void add_normalize_backward(const NormArgs& args, const TensorView& grad, const TensorView& residual, const TensorView& x,
                            const TensorView& weight, const TensorView& mean, const TensorView& rstd, const TensorView& dx,
                            const TensorView& copy, const TensorView& dweight, const TensorView& dbias) {
  with_types({&x, &grad, &dx}, [&](auto c, auto t) {
    using C = decltype(c);
    Backward<C, decltype(t)> b{args, grad, x, mean, rstd, dx, residual, copy};
    b.w = parameter<C>(weight, args.groups * args.channels, b.s.repeat, C(1));
    b.by_rows(dweight, dbias);
  });
}

void normalize_backward(const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                        const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                        const TensorView& dbias) {
  if (x.format() == MemoryFormat::channels_last)
    return normalize_channels_last_backward(args, grad, x, weight, mean, rstd, dx, dweight, dbias);
  with_types({&x, &grad, &dx}, [&](auto c, auto t) {
    using C = decltype(c);
    Backward<C, decltype(t)> b{args, grad, x, mean, rstd, dx};
    b.w = parameter<C>(weight, args.groups * args.channels, b.s.repeat, C(1));
    b.s.run == 1 ? b.by_rows(dweight, dbias) : b.by_runs(dweight, dbias);
  });
}

}  // namespace halfstep::cpu
