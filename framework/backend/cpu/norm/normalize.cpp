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

// Computes dx = rstd (g w - first - xhat second).
template <class C, class T>
HS_CLONES void gradient_row(const T* g, const T* x, const C* w, C mean, C rstd, C first, C second, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(rstd * (C(g[i]) * w[i] - first - (C(x[i]) - mean) * rstd * second));
}

// Does the same for elements that share a weight.
template <class C, class T>
HS_CLONES void gradient_run(const T* g, const T* x, C w, C mean, C rstd, C first, C second, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(rstd * (C(g[i]) * w - first - (C(x[i]) - mean) * rstd * second));
}

// Computes out = a + b.
template <class C, class T>
HS_CLONES void sum_run(const T* a, const T* b, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(C(a[i]) + C(b[i]));
}

// Adds one row to the gradients of the parameters.
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

  explicit Layout(const NormArgs& args)
      : slices(args.rows * args.groups),
        length(args.channels * args.inner),
        groups(args.groups),
        channels(args.channels),
        run(args.inner),
        repeat(1) {
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
void each_run(const Layout& layout, int64_t from, int64_t n, const F& f) {
  for (int64_t i = 0; i < n;) {
    const int64_t c = (from + i) / layout.run, width = std::min(n - i, (c + 1) * layout.run - from - i);
    f(i, width, c);
    i += width;
  }
}

// Computes the statistics of x[from, from + n). `buffer` then holds its last block.
template <class C, class T>
void statistics(const NormArgs& args, const TensorView& x, int64_t from, int64_t n, T* buffer, C& mean, C& rstd) {
  Moments m;
  double squares = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t width = std::min(kBlock, n - i);
    const T* p = read_row<T>(x, from + i, 1, width, buffer);
    if (args.centered) {
      m.join(moments_of<C>(p, width));
    } else {
      double sum, part;
      sums_about(p, C(0), width, sum, part);
      squares += part;
    }
  }
  mean = C(m.mean);
  rstd = C(1 / std::sqrt((args.centered ? m.squares : squares) / double(n) + args.eps));
}

// Tensors whose sum is normalised; empty: the sum is given.
struct Terms {
  TensorView a, b;

  // Computes sum[from, from + n).
  template <class C, class T>
  void add_up(const TensorView& sum, int64_t from, int64_t n) const {
    alignas(64) T a_buffer[kBlock], b_buffer[kBlock], sum_buffer[kBlock];
    for (int64_t i = from; i < from + n; i += kBlock) {
      const int64_t width = std::min(kBlock, from + n - i);
      T* to = begin_row(sum, i, sum_buffer);
      sum_run<C>(read_row<T>(a, i, 1, width, a_buffer), read_row<T>(b, i, 1, width, b_buffer), to, width);
      end_row(sum, i, to, width);
    }
  }
};

template <class C, class T>
void forward(const NormArgs& args, const Terms& terms, const TensorView& x, const TensorView& weight, const TensorView& bias,
             const TensorView& out, const TensorView& mean_out, const TensorView& rstd_out) {
  const Layout layout(args);
  const std::vector<C> w = parameter<C>(weight, args.groups * args.channels, layout.repeat, C(1)),
                       b = parameter<C>(bias, args.groups * args.channels, layout.repeat, C(0));
  parallel_for(layout.slices, layout.grain(), layout.work(), [&](int64_t begin, int64_t end) {
    alignas(64) T buffer[kBlock], out_buffer[kBlock];
    for (int64_t k = begin; k < end; ++k) {
      C mean, rstd;
      if (terms.a) terms.add_up<C, T>(x, k * layout.length, layout.length);
      statistics(args, x, k * layout.length, layout.length, buffer, mean, rstd);
      if (mean_out) store_one(mean_out.dtype, mean, at(mean_out, k));
      store_one(rstd_out.dtype, rstd, at(rstd_out, k));
      const C *slice_w = w.data() + k % layout.groups * layout.channels, *slice_b = b.data() + k % layout.groups * layout.channels;
      for (int64_t i = 0; i < layout.length; i += kBlock) {
        const int64_t from = k * layout.length + i, n = std::min(kBlock, layout.length - i);
        const T* p = layout.length <= kBlock && x.dtype != dtype_of<T> ? buffer : read_row<T>(x, from, 1, n, buffer);
        T* to = begin_row(out, from, out_buffer);
        if (layout.run == 1)
          map_row(p, mean, rstd, slice_w + i, slice_b + i, to, n);
        else
          each_run(layout, i, n, [&](int64_t j, int64_t width, int64_t c) {
            map_run(p + j, mean, rstd * slice_w[c], slice_b[c], to + j, width);
          });
        end_row(out, from, to, n);
      }
    }
  });
}

template <class C, class T>
struct Backward {
  const NormArgs& args;
  const TensorView &grad, &x, &mean, &rstd, &dx;
  TensorView residual{}, copy{};  // what dx is added to, and where else it goes; may be empty
  Layout layout{args};
  std::vector<C> w{};

  // The inputs of a block in the cache.
  struct Block {
    alignas(64) T g_buffer[kBlock], x_buffer[kBlock], out_buffer[kBlock];
    const T *g, *x;
    C mean, rstd;
  };
  void load_statistics(Block& block, int64_t slice) const {
    block.mean = mean ? load_one<C>(mean.dtype, at(mean, slice)) : C(0);
    block.rstd = load_one<C>(rstd.dtype, at(rstd, slice));
  }
  // Reads the block of a slice that begins at element i, and returns its length.
  int64_t read(Block& block, int64_t slice, int64_t i) const {
    const int64_t n = std::min(kBlock, layout.length - i), from = slice * layout.length + i;
    block.g = read_row<T>(grad, from, 1, n, block.g_buffer);
    block.x = read_row<T>(x, from, 1, n, block.x_buffer);
    return n;
  }
  // Sets the coefficients of a slice's dx from its sums.
  void set_coefficients(const double (&sums)[2], C& first, C& second) const {
    first = args.centered ? C(sums[0] / double(layout.length)) : C(0);
    second = C(sums[1] / double(layout.length));
  }

  // Computes a row of dx. dw, db: receive this row's gradients of the parameters; may be null.
  void row(Block& block, int64_t slice, C* dw, C* db) const {
    load_statistics(block, slice);
    const C* slice_w = w.data() + slice % layout.groups * layout.channels;
    double sums[2] = {0, 0};
    int64_t n = 0;
    for (int64_t i = 0; i < layout.length; i += kBlock) {
      n = read(block, slice, i);
      if (dw) add_gradient(block.g, block.x, block.mean, block.rstd, dw + i, db + i, n);
      if (!dx) continue;
      double first, second;
      gradient_sums<true>(block.g, block.x, slice_w + i, block.mean, block.rstd, n, first, second);
      sums[0] += first;
      sums[1] += second;
    }
    if (!dx) return;
    C first, second;
    set_coefficients(sums, first, second);
    for (int64_t i = 0; i < layout.length; i += kBlock) {
      if (layout.length > kBlock) n = read(block, slice, i);
      const int64_t from = slice * layout.length + i;
      T* to = begin_row(dx, from, block.out_buffer);
      gradient_row(block.g, block.x, slice_w + i, block.mean, block.rstd, first, second, to, n);
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
    const int64_t columns = layout.columns();
    const bool wanted = dweight || dbias, separately = !wanted || are_wide_rows(args.rows, columns);
    if (dx && separately) {
      parallel_for(layout.slices, layout.grain(), layout.work(), [&](int64_t begin_slice, int64_t end_slice) {
        Block block;
        for (int64_t k = begin_slice; k < end_slice; ++k) row(block, k, nullptr, nullptr);
      });
    }
    if (!wanted) return;
    // Adds a part of a row, group by group; or a whole narrow row, which also computes its dx.
    const auto add = [&](int64_t r, int64_t from, int64_t n, C* const* into) {
      Block block;
      for (int64_t c = from; c < from + n;) {
        const int64_t group = c / layout.channels, i = c - group * layout.channels, k = r * layout.groups + group;
        const int64_t width = std::min(from + n - c, layout.channels - i), at_column = c - from;
        load_statistics(block, k);
        block.g = read_row<T>(grad, k * layout.length + i, 1, width, block.g_buffer);
        block.x = read_row<T>(x, k * layout.length + i, 1, width, block.x_buffer);
        add_gradient(block.g, block.x, block.mean, block.rstd, into[1] + at_column, into[0] + at_column, width);
        c += width;
      }
    };
    const auto add_whole = [&](int64_t r, C* const* into) {
      Block block;
      for (int64_t group = 0; group < layout.groups; ++group)
        row(block, r * layout.groups + group, into[1] + group * layout.channels, into[0] + group * layout.channels);
    };
    std::vector<double> sums[2] = {std::vector<double>(size_t(columns)), std::vector<double>(size_t(columns))};
    sum_columns<C>(args.rows, columns, layout.work(), add, add_whole, [&](int64_t i, double plain, double scaled) {
      sums[0][size_t(i)] = plain;
      sums[1][size_t(i)] = scaled;
    });
    for (int64_t i = 0; i < columns; i += layout.repeat) {
      double total[2] = {0, 0};
      for (int64_t k = i; k < i + layout.repeat; ++k) {
        total[0] += sums[0][size_t(k)];
        total[1] += sums[1][size_t(k)];
      }
      if (dbias) store_one(dbias.dtype, total[0], at(dbias, i / layout.repeat));
      if (dweight) store_one(dweight.dtype, total[1], at(dweight, i / layout.repeat));
    }
  }

  // Long runs of pixels: the parameters' gradients need only the sums of each channel of each row.
  void by_runs(const TensorView& dweight, const TensorView& dbias) const {
    const int64_t columns = layout.columns();
    std::vector<double> dw(size_t(args.rows * columns)), db(dw.size());
    parallel_for(layout.slices, 1, layout.work(), [&](int64_t begin_slice, int64_t end_slice) {
      Block block;
      for (int64_t k = begin_slice; k < end_slice; ++k) {
        load_statistics(block, k);
        double *slice_dw = dw.data() + k * layout.channels, *slice_db = db.data() + k * layout.channels, sums[2] = {0, 0};
        for (int64_t i = 0; i < layout.length; i += kBlock) {
          each_run(layout, i, read(block, k, i), [&](int64_t j, int64_t width, int64_t c) {
            double first, second;
            gradient_sums<false, C>(block.g + j, block.x + j, nullptr, block.mean, block.rstd, width, first, second);
            slice_db[c] += first;
            slice_dw[c] += second;
          });
        }
        if (!dx) continue;
        const C* slice_w = w.data() + k % layout.groups * layout.channels;
        for (int64_t c = 0; c < layout.channels; ++c) {
          sums[0] += double(slice_w[c]) * slice_db[c];
          sums[1] += double(slice_w[c]) * slice_dw[c];
        }
        C first, second;
        set_coefficients(sums, first, second);
        for (int64_t i = 0; i < layout.length; i += kBlock) {
          const int64_t n = read(block, k, i);
          T* to = begin_row(dx, k * layout.length + i, block.out_buffer);
          each_run(layout, i, n, [&](int64_t j, int64_t width, int64_t c) {
            gradient_run(block.g + j, block.x + j, slice_w[c], block.mean, block.rstd, first, second, to + j, width);
          });
          end_row(dx, k * layout.length + i, to, n);
        }
      }
    });
    if (dweight) join_rows(dw, args.rows, columns, [&](int64_t i, double v) { store_one(dweight.dtype, v, at(dweight, i)); });
    if (dbias) join_rows(db, args.rows, columns, [&](int64_t i, double v) { store_one(dbias.dtype, v, at(dbias, i)); });
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
                            const TensorView& copy, const TensorView& dweight, const TensorView& dbias, const TensorView& sums) {
  with_types({&x, &grad, &dx}, [&](auto c, auto t) {
    using C = decltype(c);
    Backward<C, decltype(t)> b{args, grad, x, mean, rstd, dx, residual, copy};
    b.w = parameter<C>(weight, args.groups * args.channels, b.layout.repeat, C(1));
    b.by_rows(dweight, dbias);
  });
  const TensorView& d = copy ? copy : dx;
  if (sums) reduce(Reduce::sum, {d.data, d.dtype, {args.rows, args.channels}, {args.channels, 1}}, as_row(sums));
}

void normalize_backward(const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                        const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                        const TensorView& dbias) {
  if (x.format() == MemoryFormat::channels_last)
    return normalize_channels_last_backward(args, grad, x, weight, mean, rstd, dx, dweight, dbias);
  with_types({&x, &grad, &dx}, [&](auto c, auto t) {
    using C = decltype(c);
    Backward<C, decltype(t)> b{args, grad, x, mean, rstd, dx};
    b.w = parameter<C>(weight, args.groups * args.channels, b.layout.repeat, C(1));
    b.layout.run == 1 ? b.by_rows(dweight, dbias) : b.by_runs(dweight, dbias);
  });
}

}  // namespace halfstep::cpu
