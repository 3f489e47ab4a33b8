// SPDX-License-Identifier: Apache-2.0
// Batch normalisation of x [N, C, L] with one mean and variance per channel c; n = N L.
//   forward   mean_c = sum x / n, var_c = sum (x - mean_c)^2 / n, both over N and L; without training, the running ones
//             rstd = 1 / sqrt(var + eps), xhat = (x - mean) rstd, y = relu?(xhat w + b), or relu(xhat w + b + residual)
//             running = (1 - momentum) running + momentum new, where the new variance is var n / (n - 1)
//   backward  g = the gradient of y, 0 where the ReLU's result is 0;  db = sum g, dw = sum g xhat
//             dx = w rstd (g - db / n - xhat dw / n);  without training, dx = w rstd g
// Long runs of pixels are processed channel by channel. Short ones, and channels_last (here N' = N L samples of one pixel), are
// processed as columns with parameters of their own. The backward computes the sums first, then dx.
#include <algorithm>
#include <cmath>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/norm/norm_columns.h"
#include "framework/backend/cpu/norm/norm_rows.h"

namespace halfstep::cpu {
namespace {

// Computes out = scale (g - first - (x - mean) second); without Training: scale g.
template <bool Training, bool Relu, class C, class T>
HS_CLONES void gradient_run(const T* g, const T* x, C mean, C scale, C first, C second, RunRelu<C> relu, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const C d = Training || Relu ? C(x[i]) - mean : C(0);
    const C grad = Relu && d * relu.scale + relu.bias <= relu.zero ? C(0) : C(g[i]);
    out[i] = stored<T>(scale * (Training ? grad - first - d * second : grad));
  }
}

// Returns whether to process short runs of pixels as columns with parameters of their own: always if they are shorter than a
// vector; else not if the parameters of all columns would fill the cache.
bool uses_columns(const BatchNormArgs& args) {
  constexpr int64_t kVector = 16, kMostColumns = 16 * kBlock;
  return args.inner < kVector || (args.inner < kShortRun && args.channels * args.inner <= kMostColumns);
}
Matrix matrix_of(const BatchNormArgs& args) { return {0, args.batch, args.channels * args.inner}; }
int64_t work_of(const BatchNormArgs& args) { return args.batch * args.channels * args.inner * 4; }

// Returns a view [1, C, 1] of one number for each channel.
TensorView of_channels(const TensorView& v, int64_t channels) {
  TensorView out = v;
  out.shape = {1, channels, 1};
  out.strides = {channels, 1, 1};
  return out;
}

// Sets mean and rstd, from the batch or as given, and updates the running statistics.
void find_statistics(const BatchNormArgs& args, const TensorView& x, const TensorView& running_mean, const TensorView& running_var,
                     const TensorView& mean, const TensorView& rstd) {
  const int64_t count = args.batch * args.inner;
  if (args.training && args.inner == 1) {
    std::vector<double> means(size_t(args.channels)), vars(means.size());
    column_moments(matrix_of(args), x, means.data(), vars.data());
    store<double>(mean.dtype, means.data(), mean.data, 1, args.channels);
    store<double>(rstd.dtype, vars.data(), rstd.data, 1, args.channels);
  } else if (args.training) {
    TensorView view = x;
    view.shape = {args.batch, args.channels, args.inner};
    view.strides = {args.channels * args.inner, args.inner, 1};
    variance(view, 0, of_channels(mean, args.channels), of_channels(rstd, args.channels));
  }
  for (int64_t c = 0; c < args.channels; ++c) {
    const TensorView &from_mean = args.training ? mean : running_mean, &from_var = args.training ? rstd : running_var;
    const double new_mean = load_one<double>(from_mean.dtype, at(from_mean, c));
    const double new_var = load_one<double>(from_var.dtype, at(from_var, c));
    store_one(mean.dtype, new_mean, at(mean, c));
    store_one(rstd.dtype, 1 / std::sqrt(new_var + args.eps), at(rstd, c));
    if (!args.training || count == 0) continue;
    const auto update = [&](const TensorView& running, double value) {
      if (!running) return;
      void* place = at(running, c);
      store_one(running.dtype, (1 - args.momentum) * load_one<double>(running.dtype, place) + args.momentum * value, place);
    };
    update(running_mean, new_mean);
    update(running_var, new_var * double(count) / double(count - 1));
  }
}

// Computes `out` from the statistics. A residual has the ReLU behind it.
template <bool Relu, class C, class T>
void forward(const BatchNormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
             const TensorView& residual, const TensorView& out, const TensorView& mean_view, const TensorView& rstd_view) {
  const int64_t repeat = uses_columns(args) ? args.inner : 1;
  const auto values = [&](const TensorView& v, C otherwise) { return parameter<C>(v, args.channels, repeat, otherwise); };
  const std::vector<C> mean = values(mean_view, C(0)), shift = values(bias, C(0)), rstd = values(rstd_view, C(0));
  std::vector<C> scale = values(weight, C(1));
  for (size_t i = 0; i < scale.size(); ++i) scale[i] *= rstd[i];
  if (uses_columns(args)) return map_columns(matrix_of(args), x, mean.data(), scale.data(), shift.data(), out, Relu, residual);
  const int64_t grain = std::max<int64_t>(1, kBlock / args.inner);
  parallel_for(args.batch * args.channels, grain, work_of(args), [&](int64_t begin, int64_t end) {
    alignas(64) T buffer[kBlock], out_buffer[kBlock];
    for (int64_t r = begin; r < end; ++r) {
      const size_t c = size_t(r % args.channels);
      for (int64_t i = 0; i < args.inner; i += kBlock) {
        const int64_t from = r * args.inner + i, n = std::min(kBlock, args.inner - i);
        T* to = begin_row(out, from, out_buffer);
        map_run<Relu>(read_row<T>(x, from, 1, n, buffer), mean[c], scale[c], shift[c], to, n);
        residual ? end_row_add_relu<C>(out, residual, from, to, n) : end_row(out, from, to, n);
      }
    }
  });
}

template <class C, class T>
struct Backward {
  const BatchNormArgs& args;
  const TensorView &grad, &x, &dx;
  std::vector<C> mean{}, rstd{}, scale{}, shift{};  // of each channel
  C zero{};                                         // largest result with slope 0 (stored_as_zero)

  // Return the coefficients of dx, from a channel's sums.
  C first(double sum) const { return C(sum / double(args.batch * args.inner)); }
  C second(double sum, size_t i) const { return C(sum / double(args.batch * args.inner) * double(rstd[i])); }

  template <bool Relu>
  void by_runs(const TensorView& dweight, const TensorView& dbias) const {
    const bool sums_wanted = args.training || dweight || dbias;
    parallel_for(args.channels, 1, work_of(args), [&](int64_t begin, int64_t end) {
      alignas(64) T g_buffer[kBlock], x_buffer[kBlock], out_buffer[kBlock];
      for (int64_t c = begin; c < end; ++c) {
        const size_t k = size_t(c);
        const RunRelu<C> relu{scale[k], shift[k], zero};
        // Calls f(first element, n, gradients, x or null) for all blocks of the channel.
        const auto each_block = [&](const auto& f) {
          for (int64_t b = 0; b < args.batch; ++b) {
            for (int64_t i = 0; i < args.inner; i += kBlock) {
              const int64_t from = (b * args.channels + c) * args.inner + i, n = std::min(kBlock, args.inner - i);
              if (i + n == args.inner && b + 1 < args.batch) {
                const int64_t next = ((b + 1) * args.channels + c) * args.inner;
                prefetch_row(grad, next, std::min(kBlock, args.inner));
                prefetch_row(x, next, std::min(kBlock, args.inner));
              }
              const T* const values = Relu || sums_wanted ? read_row<T>(x, from, 1, n, x_buffer) : nullptr;
              f(from, n, read_row<T>(grad, from, 1, n, g_buffer), values);
            }
          }
        };
        double sums[2] = {0, 0};
        if (sums_wanted) {
          each_block([&](int64_t, int64_t n, const T* g, const T* values) {
            double part[2];
            gradient_sums<false, C, T, Relu>(g, values, nullptr, mean[k], rstd[k], n, part[0], part[1], relu);
            sums[0] += part[0];
            sums[1] += part[1];
          });
        }
        if (dbias) store_one(dbias.dtype, sums[0], at(dbias, c));
        if (dweight) store_one(dweight.dtype, sums[1], at(dweight, c));
        if (!dx) continue;
        const C from_g = first(sums[0]), from_x = second(sums[1], k);
        each_block([&](int64_t from, int64_t n, const T* g, const T* values) {
          T* to = begin_row(dx, from, out_buffer);
          args.training ? gradient_run<true, Relu>(g, values, mean[k], scale[k], from_g, from_x, relu, to, n)
                        : gradient_run<false, Relu>(g, values, mean[k], scale[k], from_g, from_x, relu, to, n);
          end_row(dx, from, to, n);
        });
      }
    });
  }

  // Repeats each value `inner` times, for the columns of one channel.
  std::vector<C> repeated(const std::vector<C>& values) const {
    std::vector<C> out(size_t(args.channels * args.inner));
    for (int64_t c = 0; c < args.channels; ++c) std::fill_n(out.data() + c * args.inner, args.inner, values[size_t(c)]);
    return out;
  }
  void by_columns(const TensorView& dweight, const TensorView& dbias) const {
    const Matrix m = matrix_of(args);
    const std::vector<C> means = repeated(mean), scales = repeated(scale), shifts = repeated(shift);
    const ColumnRelu<C> column_relu{scales.data(), shifts.data(), zero}, *const relu = args.relu ? &column_relu : nullptr;
    std::vector<C> firsts(mean.size()), seconds(mean.size());
    if (args.training || dweight || dbias) {
      std::vector<double> plain(size_t(m.columns)), with_x(plain.size());
      column_gradient_sums(m, grad, x, means.data(), plain.data(), with_x.data(), relu);
      for (size_t c = 0; c < mean.size(); ++c) {
        double sums[2] = {0, 0};
        for (size_t i = c * size_t(args.inner); i < (c + 1) * size_t(args.inner); ++i) {
          sums[0] += plain[i];
          sums[1] += with_x[i];
        }
        if (m.numel() > 0) sums[1] *= double(rstd[c]);  // without elements rstd is not finite
        if (dbias) store_one(dbias.dtype, sums[0], at(dbias, int64_t(c)));
        if (dweight) store_one(dweight.dtype, sums[1], at(dweight, int64_t(c)));
        firsts[c] = scale[c] * first(sums[0]);
        seconds[c] = scale[c] * second(sums[1], c);
      }
    }
    if (!dx) return;
    const C* const none = nullptr;
    if (args.training)
      column_gradients(m, grad, x, means.data(), scales.data(), repeated(firsts).data(), repeated(seconds).data(), dx, relu);
    else
      column_gradients(m, grad, x, means.data(), scales.data(), none, none, dx, relu);
  }
};

}  // namespace

void batch_norm(const BatchNormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& residual, const TensorView& running_mean, const TensorView& running_var,
                const TensorView& batches, const TensorView& out, const TensorView& mean, const TensorView& rstd) {
  find_statistics(args, x, running_mean, running_var, mean, rstd);
  if (args.training && batches) ++*batches.as<int64_t>();
  with_types({&x, &out, &residual}, [&](auto c, auto t) {
    using C = decltype(c);
    using T = decltype(t);
    args.relu && !residual ? forward<true, C, T>(args, x, weight, bias, residual, out, mean, rstd)
                           : forward<false, C, T>(args, x, weight, bias, residual, out, mean, rstd);
  });
}

void batch_norm_backward(const BatchNormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                         const TensorView& bias, const TensorView& mean, const TensorView& rstd, const TensorView& dx,
                         const TensorView& dweight, const TensorView& dbias) {
  with_types({&x, &grad, &dx}, [&](auto c, auto t) {
    using C = decltype(c);
    Backward<C, decltype(t)> b{args, grad, x, dx};
    b.mean = parameter<C>(mean, args.channels, 1, C(0));
    b.rstd = parameter<C>(rstd, args.channels, 1, C(0));
    b.scale = parameter<C>(weight, args.channels, 1, C(1));
    for (size_t i = 0; i < b.scale.size(); ++i) b.scale[i] *= b.rstd[i];
    b.shift = parameter<C>(bias, args.channels, 1, C(0));
    b.zero = C(stored_as_zero(x.dtype));
    if (uses_columns(args)) return b.by_columns(dweight, dbias);
    args.relu ? b.template by_runs<true>(dweight, dbias) : b.template by_runs<false>(dweight, dbias);
  });
}

}  // namespace halfstep::cpu
