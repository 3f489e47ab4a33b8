// Batch normalisation. Long runs of pixels are walked channel by channel; short ones as columns with parameters of their own.
#include <algorithm>
#include <cmath>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/norm_rows.h"

namespace halfstep::cpu {
namespace {

template <class C>
HS_CLONES void map_columns(const C* x, const C* mean, const C* scale, const C* bias, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - mean[i]) * scale[i] + bias[i];
}
template <class C>
HS_CLONES void add_gradients(const C* g, const C* x, const C* mean, const C* rstd, C* dw, C* db, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    db[i] += g[i];
    dw[i] += g[i] * ((x[i] - mean[i]) * rstd[i]);
  }
}
template <class C>
HS_CLONES void gradient_columns(const C* g, const C* x, const C* mean, const C* scale, const C* first, const C* second, C* out,
                                int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = scale[i] * (g[i] - first[i] - (x[i] - mean[i]) * second[i]);
}
template <class C>
HS_CLONES void scale_columns(const C* g, const C* scale, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = g[i] * scale[i];
}
template <class C>
HS_CLONES void scale_run(const C* g, C scale, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = g[i] * scale;
}

TensorView of_channels(const TensorView& v, int64_t channels) {
  TensorView out = v;
  out.shape = {1, channels, 1};
  out.strides = {channels, 1, 1};
  return out;
}

// mean and rstd, of the batch or as they stand, and the new running statistics.
void find_statistics(const BatchNormArgs& a, const TensorView& x, const TensorView& running_mean, const TensorView& running_var,
                     const TensorView& mean, const TensorView& rstd) {
  const int64_t count = a.batch * a.inner;
  if (a.training) {
    TensorView view = x;
    view.shape = {a.batch, a.channels, a.inner};
    view.strides = {a.channels * a.inner, a.inner, 1};
    variance(view, 0, of_channels(mean, a.channels), of_channels(rstd, a.channels));
  }
  for (int64_t c = 0; c < a.channels; ++c) {
    const TensorView &from_mean = a.training ? mean : running_mean, &from_var = a.training ? rstd : running_var;
    const double m = load_one<double>(from_mean.dtype, at(from_mean, c)), var = load_one<double>(from_var.dtype, at(from_var, c));
    store_one(mean.dtype, m, at(mean, c));
    store_one(rstd.dtype, 1 / std::sqrt(var + a.eps), at(rstd, c));
    if (!a.training || count == 0) continue;
    const auto update = [&](const TensorView& running, double value) {
      if (!running) return;
      void* place = at(running, c);
      store_one(running.dtype, (1 - a.momentum) * load_one<double>(running.dtype, place) + a.momentum * value, place);
    };
    update(running_mean, m);
    update(running_var, var * double(count) / double(count - 1));
  }
}

// Channels as the loops see them.
struct Layout {
  int64_t batch, channels, inner, repeat, columns;
  int64_t work;

  explicit Layout(const BatchNormArgs& a)
      : batch(a.batch),
        channels(a.channels),
        inner(a.inner),
        repeat(a.inner < kShortRun ? a.inner : 1),
        columns(channels * inner),
        work(batch * columns * 4) {}
  bool by_columns() const { return inner < kShortRun; }
  int64_t grain() const { return std::max<int64_t>(1, kBlock / std::max<int64_t>(by_columns() ? columns : inner, 1)); }
};

// f(from, channel or column, n) for blocks of rows [begin, end): rows are runs of a channel, or elements of all channels.
template <class F>
void each_block(const Layout& s, int64_t begin, int64_t end, const F& f) {
  const int64_t length = s.by_columns() ? s.columns : s.inner;
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t i = 0; i < length; i += kBlock)
      f(r * length + i, s.by_columns() ? i : r % s.channels, std::min(kBlock, length - i));
  }
}

template <class C>
void forward(const BatchNormArgs& a, const TensorView& x, const TensorView& weight, const TensorView& bias, const TensorView& out,
             const TensorView& mean_view, const TensorView& rstd_view) {
  const Layout s(a);
  const std::vector<C> mean = parameter<C>(mean_view, s.channels, s.repeat, C(0)),
                       bias_of = parameter<C>(bias, s.channels, s.repeat, C(0)),
                       rstd = parameter<C>(rstd_view, s.channels, s.repeat, C(0));
  std::vector<C> scale = parameter<C>(weight, s.channels, s.repeat, C(1));
  for (size_t i = 0; i < scale.size(); ++i) scale[i] *= rstd[i];
  parallel_for(s.by_columns() ? s.batch : s.batch * s.channels, s.grain(), s.work, [&](int64_t begin, int64_t end) {
    alignas(64) C buffer[kBlock], made[kBlock];
    each_block(s, begin, end, [&](int64_t from, int64_t c, int64_t n) {
      const C* p = read_row<C>(x, from, 1, n, buffer);
      C* to = begin_row(out, from, made);
      if (s.by_columns())
        map_columns(p, mean.data() + c, scale.data() + c, bias_of.data() + c, to, n);
      else
        map_run(p, mean[size_t(c)], scale[size_t(c)], bias_of[size_t(c)], to, n);
      end_row(out, from, to, n);
    });
  });
}

template <class C>
struct Backward {
  const BatchNormArgs& a;
  const TensorView &grad, &x, &dx;
  Layout s{a};
  std::vector<C> mean{}, rstd{}, scale{};

  // The coefficients of dx, from a channel's sums.
  C first(double sum) const { return C(sum / double(a.batch * a.inner)); }
  C second(double sum, size_t i) const { return C(sum / double(a.batch * a.inner) * double(rstd[i])); }

  void by_runs(const TensorView& dweight, const TensorView& dbias) const {
    const bool sums_wanted = a.training || dweight || dbias;
    parallel_for(s.channels, 1, s.work, [&](int64_t begin, int64_t end) {
      alignas(64) C g_buffer[kBlock], x_buffer[kBlock], made[kBlock];
      for (int64_t c = begin; c < end; ++c) {
        const size_t k = size_t(c);
        const auto each = [&](const auto& f) {
          for (int64_t b = 0; b < s.batch; ++b) {
            for (int64_t i = 0; i < s.inner; i += kBlock) {
              const int64_t from = (b * s.channels + c) * s.inner + i, n = std::min(kBlock, s.inner - i);
              if (i + n == s.inner && b + 1 < s.batch) {
                const int64_t next = ((b + 1) * s.channels + c) * s.inner;
                prefetch_row(grad, next, std::min(kBlock, s.inner));
                prefetch_row(x, next, std::min(kBlock, s.inner));
              }
              f(from, n, read_row<C>(grad, from, 1, n, g_buffer));
            }
          }
        };
        double sums[2] = {0, 0};
        if (sums_wanted) {
          each([&](int64_t from, int64_t n, const C* g) {
            double part[2];
            gradient_sums<false>(g, read_row<C>(x, from, 1, n, x_buffer), g, mean[k], rstd[k], n, part[0], part[1]);
            sums[0] += part[0];
            sums[1] += part[1];
          });
        }
        if (dbias) store_one(dbias.dtype, sums[0], at(dbias, c));
        if (dweight) store_one(dweight.dtype, sums[1], at(dweight, c));
        if (!dx) continue;
        const C one = first(sums[0]), two = second(sums[1], k);
        each([&](int64_t from, int64_t n, const C* g) {
          C* to = begin_row(dx, from, made);
          if (a.training)
            gradient_run(g, read_row<C>(x, from, 1, n, x_buffer), mean[k], scale[k], one, two, to, n);
          else
            scale_run(g, scale[k], to, n);
          end_row(dx, from, to, n);
        });
      }
    });
  }

  void by_columns(const TensorView& dweight, const TensorView& dbias) const {
    std::vector<C> one(static_cast<size_t>(s.columns)), two(static_cast<size_t>(s.columns));
    if (a.training || dweight || dbias) find_sums(dweight, dbias, one, two);
    if (!dx) return;
    parallel_for(s.batch, s.grain(), s.work, [&](int64_t begin, int64_t end) {
      alignas(64) C g_buffer[kBlock], x_buffer[kBlock], made[kBlock];
      each_block(s, begin, end, [&](int64_t from, int64_t c, int64_t n) {
        const C* g = read_row<C>(grad, from, 1, n, g_buffer);
        C* to = begin_row(dx, from, made);
        if (a.training)
          gradient_columns(g, read_row<C>(x, from, 1, n, x_buffer), mean.data() + c, scale.data() + c, one.data() + c,
                           two.data() + c, to, n);
        else
          scale_columns(g, scale.data() + c, to, n);
        end_row(dx, from, to, n);
      });
    });
  }

  void find_sums(const TensorView& dweight, const TensorView& dbias, std::vector<C>& one, std::vector<C>& two) const {
    std::vector<double> sums[2] = {std::vector<double>(one.size()), std::vector<double>(one.size())};
    const auto add = [&](int64_t row, int64_t c, int64_t n, C* const* into) {
      alignas(64) C g_buffer[kBlock], x_buffer[kBlock];
      const int64_t from = row * s.columns + c;
      add_gradients(read_row<C>(grad, from, 1, n, g_buffer), read_row<C>(x, from, 1, n, x_buffer), mean.data() + c, rstd.data() + c,
                    into[1], into[0], n);
    };
    const auto add_whole = [&](int64_t row, C* const* into) {
      for (int64_t c = 0; c < s.columns; c += kBlock) {
        C* const part[2] = {into[0] + c, into[1] + c};
        add(row, c, std::min(kBlock, s.columns - c), part);
      }
    };
    sum_columns<C>(s.batch, s.columns, s.work, add, add_whole, [&](int64_t i, double plain, double scaled) {
      sums[0][size_t(i)] = plain;
      sums[1][size_t(i)] = scaled;
    });
    for (int64_t c = 0; c < s.channels; ++c) {
      const size_t k = size_t(c * s.inner), end = k + size_t(s.inner);
      double total[2] = {0, 0};
      for (size_t i = k; i < end; ++i) {
        total[0] += sums[0][i];
        total[1] += sums[1][i];
      }
      if (dbias) store_one(dbias.dtype, total[0], at(dbias, c));
      if (dweight) store_one(dweight.dtype, total[1], at(dweight, c));
      for (size_t i = k; i < end; ++i) {
        one[i] = first(total[0]);
        two[i] = second(total[1], i);
      }
    }
  }
};

}  // namespace

void batch_norm(const BatchNormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& running_mean, const TensorView& running_var, const TensorView& out, const TensorView& mean,
                const TensorView& rstd) {
  find_statistics(args, x, running_mean, running_var, mean, rstd);
  const auto run = [&](auto tag) { forward<decltype(tag)>(args, x, weight, bias, out, mean, rstd); };
  x.dtype == DType::f64 ? run(double{}) : run(float{});
}

void batch_norm_backward(const BatchNormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                         const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                         const TensorView& dbias) {
  const auto run = [&](auto tag) {
    using C = decltype(tag);
    Backward<C> b{args, grad, x, dx};
    b.mean = parameter<C>(mean, args.channels, b.s.repeat, C(0));
    b.rstd = parameter<C>(rstd, args.channels, b.s.repeat, C(0));
    b.scale = parameter<C>(weight, args.channels, b.s.repeat, C(1));
    for (size_t i = 0; i < b.scale.size(); ++i) b.scale[i] *= b.rstd[i];
    b.s.by_columns() ? b.by_columns(dweight, dbias) : b.by_runs(dweight, dbias);
  };
  x.dtype == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace halfstep::cpu
