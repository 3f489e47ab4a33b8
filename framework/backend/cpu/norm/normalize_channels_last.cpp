// SPDX-License-Identifier: Apache-2.0
// Group normalisation of images in channels_last, x [R, L, G C]: R samples of L pixels with G groups of C channels. The formulas
// are those of normalize.cpp. A sample is processed while it is in the cache: first the sums of each channel's column, which are
// joined within each group, and then one pass over the pixels.
#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/norm/norm_columns.h"
#include "framework/backend/cpu/norm/norm_rows.h"

namespace halfstep::cpu {
namespace {

// Calls f(sample, its pixels). Threads share many samples, or all work on each of few samples; the results are the same.
template <class F>
void each_sample(const NormArgs& args, const F& f) {
  const int64_t columns = args.groups * args.channels;
  const auto run_samples = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) f(r, Matrix{r * args.inner * columns, args.inner, columns});
  };
  if (args.rows >= 4 * num_threads())
    parallel_for(args.rows, 1, args.rows * args.inner * columns * 4, run_samples);
  else
    run_samples(0, args.rows);
}

template <class C>
void forward(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias, const TensorView& out,
             const TensorView& mean_out, const TensorView& rstd_out) {
  const int64_t columns = args.groups * args.channels;
  const std::vector<C> w = parameter<C>(weight, columns, 1, C(1)), b = parameter<C>(bias, columns, 1, C(0));
  each_sample(args, [&](int64_t r, const Matrix& m) {
    std::vector<double> means(w.size()), vars(w.size());
    column_moments(m, x, means.data(), vars.data());
    std::vector<C> center(w.size()), scale(w.size());
    for (int64_t g = 0; g < args.groups; ++g) {
      Moments joined;
      for (int64_t c = g * args.channels; c < (g + 1) * args.channels; ++c)
        joined.join({means[size_t(c)], vars[size_t(c)] * double(args.inner), args.inner});
      const C mean = C(joined.mean), rstd = C(1 / std::sqrt(joined.squares / double(joined.count) + args.eps));
      store_one(mean_out.dtype, mean, at(mean_out, r * args.groups + g));
      store_one(rstd_out.dtype, rstd, at(rstd_out, r * args.groups + g));
      for (int64_t c = g * args.channels; c < (g + 1) * args.channels; ++c) {
        center[size_t(c)] = mean;
        scale[size_t(c)] = rstd * w[size_t(c)];
      }
    }
    map_columns(m, x, center.data(), scale.data(), b.data(), out);
  });
}

template <class C>
void backward(const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight, const TensorView& mean,
              const TensorView& rstd, const TensorView& dx, const TensorView& dweight, const TensorView& dbias) {
  const int64_t columns = args.groups * args.channels;
  const double length = double(args.channels * args.inner);
  const std::vector<C> w = parameter<C>(weight, columns, 1, C(1));
  std::vector<double> plain(size_t(args.rows * columns)), scaled(plain.size());  // sums of each sample
  each_sample(args, [&](int64_t r, const Matrix& m) {
    double *const sum = plain.data() + r * columns, *const sum_x = scaled.data() + r * columns;
    std::vector<C> center(w.size()), scale(w.size()), first(w.size()), second(w.size());
    for (int64_t c = 0; c < columns; ++c)
      center[size_t(c)] = load_one<C>(mean.dtype, at(mean, r * args.groups + c / args.channels));
    column_gradient_sums(m, grad, x, center.data(), sum, sum_x);
    for (int64_t g = 0; g < args.groups; ++g) {
      const C group_rstd = load_one<C>(rstd.dtype, at(rstd, r * args.groups + g));
      double sums[2] = {0, 0};
      for (int64_t c = g * args.channels; c < (g + 1) * args.channels; ++c) {
        sum_x[c] *= double(group_rstd);
        sums[0] += double(w[size_t(c)]) * sum[c];
        sums[1] += double(w[size_t(c)]) * sum_x[c];
      }
      for (int64_t c = g * args.channels; c < (g + 1) * args.channels; ++c) {
        scale[size_t(c)] = group_rstd * w[size_t(c)];
        first[size_t(c)] = group_rstd * C(sums[0] / length);
        second[size_t(c)] = group_rstd * group_rstd * C(sums[1] / length);
      }
    }
    if (dx) column_gradients(m, grad, x, center.data(), scale.data(), first.data(), second.data(), dx);
  });
  if (dweight) join_rows(scaled, args.rows, columns, [&](int64_t i, double v) { store_one(dweight.dtype, v, at(dweight, i)); });
  if (dbias) join_rows(plain, args.rows, columns, [&](int64_t i, double v) { store_one(dbias.dtype, v, at(dbias, i)); });
}

}  // namespace

void normalize_channels_last(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                             const TensorView& out, const TensorView& mean, const TensorView& rstd) {
  const auto run = [&](auto tag) { forward<decltype(tag)>(args, x, weight, bias, out, mean, rstd); };
  x.dtype == DType::f64 ? run(double{}) : run(float{});
}

void normalize_channels_last_backward(const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                                      const TensorView& mean, const TensorView& rstd, const TensorView& dx,
                                      const TensorView& dweight, const TensorView& dbias) {
  const auto run = [&](auto tag) { backward<decltype(tag)>(args, grad, x, weight, mean, rstd, dx, dweight, dbias); };
  x.dtype == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace halfstep::cpu
