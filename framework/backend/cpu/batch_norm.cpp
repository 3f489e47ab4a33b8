// Batch normalisation. Long runs of pixels are walked channel by channel; short ones as columns with parameters of their own, and
// where a channel has one pixel a row (which is how channels_last comes here) several rows as one of so many times the columns.
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
HS_CLONES void add_gradients(const C* g, const C* x, const C* mean, C* with_x, C* plain, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    plain[i] += g[i];
    with_x[i] += g[i] * (x[i] - mean[i]);
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

// Mean and variance of each column of x [rows, columns]: of several rows side by side, joined.
void column_statistics(const TensorView& x, int64_t rows, int64_t columns, const TensorView& mean, const TensorView& var) {
  constexpr int64_t kSideBySide = 256;
  const int64_t together = std::clamp<int64_t>(kSideBySide / std::max<int64_t>(columns, 1), 1, std::max<int64_t>(rows, 1));
  const int64_t main = rows / together, width = together * columns, rest = rows - main * together;
  if (together == 1) {
    TensorView view = x;
    view.shape = {rows, columns};
    view.strides = {columns, 1};
    const auto row = [&](TensorView v) {
      v.shape = {1, columns};
      v.strides = {columns, 1};
      return v;
    };
    return variance(view, 0, row(mean), row(var));
  }
  std::vector<double> means(size_t(width + columns)), vars(means.size());
  const auto part = [&](int64_t from, int64_t count, int64_t n, int64_t to) {
    if (count == 0) return;
    const TensorView view{at(x, from), x.dtype, {count, n}, {n, 1}};
    const auto row = [&](std::vector<double>& v) { return TensorView{v.data() + to, DType::f64, {1, n}, {n, 1}}; };
    variance(view, 0, row(means), row(vars));
  };
  part(0, main, width, 0);
  part(main * width, rest, columns, width);
  for (int64_t c = 0; c < columns; ++c) {
    Moments m;
    for (int64_t i = c; i < width; i += columns) m.join({means[size_t(i)], vars[size_t(i)] * double(main), main});
    if (rest > 0) m.join({means[size_t(width + c)], vars[size_t(width + c)] * double(rest), rest});
    store_one(mean.dtype, m.mean, at(mean, c));
    store_one(var.dtype, m.squares / double(rows), at(var, c));
  }
}

// mean and rstd, of the batch or as they stand, and the new running statistics.
void find_statistics(const BatchNormArgs& a, const TensorView& x, const TensorView& running_mean, const TensorView& running_var,
                     const TensorView& mean, const TensorView& rstd) {
  const int64_t count = a.batch * a.inner;
  if (a.training && a.inner == 1) {
    column_statistics(x, a.batch, a.channels, mean, rstd);
  } else if (a.training) {
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

// Channels as the loops see them: `rows` of `columns`, the last of which may be cut off, or runs of a channel's pixels.
struct Layout {
  int64_t batch, channels, inner, together, rows, columns;
  int64_t numel, work;

  explicit Layout(const BatchNormArgs& a)
      : batch(a.batch),
        channels(a.channels),
        inner(a.inner),
        together(inner == 1 ? std::clamp<int64_t>(kBlock / std::max<int64_t>(channels, 1), 1, std::max<int64_t>(batch, 1)) : 1),
        rows((batch + together - 1) / together),
        columns(together * channels * inner),
        numel(batch * channels * inner),
        work(numel * 4) {}
  bool by_columns() const { return inner < kShortRun; }
  int64_t channel_of(int64_t column) const { return inner == 1 ? column % channels : column / inner; }
  int64_t grain() const { return std::max<int64_t>(1, kBlock / std::max<int64_t>(by_columns() ? columns : inner, 1)); }

  // One value of a parameter for each channel, or column; `otherwise` where there is none.
  template <class C>
  std::vector<C> values(const TensorView& v, C otherwise) const {
    std::vector<C> out = parameter<C>(v, channels, by_columns() ? inner : 1, otherwise);
    const auto once = std::ptrdiff_t(out.size());
    out.reserve(size_t(once * together));
    for (int64_t k = 1; k < together; ++k) out.insert(out.end(), out.begin(), out.begin() + once);
    return out;
  }
};

// f(from, channel or column, n) for blocks of rows [begin, end): rows are runs of a channel, or elements of all channels.
template <class F>
void each_block(const Layout& s, int64_t begin, int64_t end, const F& f) {
  const int64_t length = s.by_columns() ? s.columns : s.inner;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t here = std::min(length, s.numel - r * length);
    for (int64_t i = 0; i < here; i += kBlock) f(r * length + i, s.by_columns() ? i : r % s.channels, std::min(kBlock, here - i));
  }
}

template <class C>
void forward(const BatchNormArgs& a, const TensorView& x, const TensorView& weight, const TensorView& bias, const TensorView& out,
             const TensorView& mean_view, const TensorView& rstd_view) {
  const Layout s(a);
  const std::vector<C> mean = s.values(mean_view, C(0)), bias_of = s.values(bias, C(0)), rstd = s.values(rstd_view, C(0));
  std::vector<C> scale = s.values(weight, C(1));
  for (size_t i = 0; i < scale.size(); ++i) scale[i] *= rstd[i];
  parallel_for(s.by_columns() ? s.rows : s.batch * s.channels, s.grain(), s.work, [&](int64_t begin, int64_t end) {
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
    parallel_for(s.rows, s.grain(), s.work, [&](int64_t begin, int64_t end) {
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
      n = std::min(n, s.numel - from);
      if (n <= 0) return;
      add_gradients(read_row<C>(grad, from, 1, n, g_buffer), read_row<C>(x, from, 1, n, x_buffer), mean.data() + c, into[1],
                    into[0], n);
    };
    const auto add_whole = [&](int64_t row, C* const* into) {
      for (int64_t c = 0; c < s.columns; c += kBlock) {
        C* const part[2] = {into[0] + c, into[1] + c};
        add(row, c, std::min(kBlock, s.columns - c), part);
      }
    };
    sum_columns<C>(s.rows, s.columns, s.work, add, add_whole, [&](int64_t i, double plain, double with_x) {
      sums[0][size_t(i)] = plain;
      sums[1][size_t(i)] = s.rows == 0 ? 0 : with_x * double(rstd[size_t(i)]);  // of nothing rstd is no number
    });
    std::vector<double> plain(static_cast<size_t>(s.channels)), scaled(plain.size());
    for (size_t i = 0; i < one.size(); ++i) {
      const auto c = size_t(s.channel_of(int64_t(i)));
      plain[c] += sums[0][i];
      scaled[c] += sums[1][i];
    }
    for (int64_t c = 0; c < s.channels; ++c) {
      if (dbias) store_one(dbias.dtype, plain[size_t(c)], at(dbias, c));
      if (dweight) store_one(dweight.dtype, scaled[size_t(c)], at(dweight, c));
    }
    for (size_t i = 0; i < one.size(); ++i) {
      const auto c = size_t(s.channel_of(int64_t(i)));
      one[i] = first(plain[c]);
      two[i] = second(scaled[c], i);
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
    b.mean = b.s.values(mean, C(0));
    b.rstd = b.s.values(rstd, C(0));
    b.scale = b.s.values(weight, C(1));
    for (size_t i = 0; i < b.scale.size(); ++i) b.scale[i] *= b.rstd[i];
    b.s.by_columns() ? b.by_columns(dweight, dbias) : b.by_runs(dweight, dbias);
  };
  x.dtype == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace halfstep::cpu
