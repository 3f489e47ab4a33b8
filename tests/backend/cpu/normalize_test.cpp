// SPDX-License-Identifier: Apache-2.0
// Normalisations with statistics of channels, of a batch or of groups in a sample, in both formats, against plain loops.
#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr MemoryFormat kRows = MemoryFormat::contiguous, kLast = MemoryFormat::channels_last;

// [N, C, P, 1] in a format. groups: of a sample's channels; 0: each channel of the batch is one.
struct Images {
  int64_t batch, channels, pixels, groups = 0;
  MemoryFormat format = kLast;

  Shape shape() const { return {batch, channels, pixels, 1}; }
  int64_t statistics() const { return groups == 0 ? channels : batch * groups; }
  int64_t channel(int64_t i) const { return i / pixels % channels; }
  int64_t statistic(int64_t i) const {
    return groups == 0 ? channel(i) : i / pixels / channels * groups + channel(i) * groups / channels;
  }
};

struct Results {
  Buffer y, mean, rstd, dx, dweight, dbias;

  std::string raw() const { return y.raw() + mean.raw() + rstd.raw() + dx.raw() + dweight.raw() + dbias.raw(); }
};

struct Inputs {
  Buffer x, g, w, b;

  Inputs(const Images& s, DType t)
      : x(laid(uniform(t, s.shape(), 3, 2, 5), s.format)),
        g(laid(uniform(t, s.shape(), 4, -1, 2), s.format)),
        w(uniform(DType::f64, {s.channels}, 5)),
        b(uniform(DType::f64, {s.channels}, 6)) {}
};

Results run(const Images& s, const Inputs& in, DType t) {
  const auto image = [&] { return laid(make(t, s.shape()), s.format); };
  const auto numbers = [&](int64_t n) { return make(DType::f64, {n}); };
  const Results r{image(), numbers(s.statistics()), numbers(s.statistics()), image(), numbers(s.channels), numbers(s.channels)};
  if (s.groups > 0) {
    const NormArgs a{s.batch, s.groups, s.channels / s.groups, s.pixels, 1e-5};
    cpu().normalize(a, in.x, in.w, in.b, r.y, r.mean, r.rstd);
    cpu().normalize_backward(a, in.g, in.x, in.w, r.mean, r.rstd, r.dx, r.dweight, r.dbias);
  } else {
    const bool last = s.format == kLast;
    const BatchNormArgs a{last ? s.batch * s.pixels : s.batch, s.channels, last ? 1 : s.pixels, 1e-5, 0.1, true};
    const auto flat = [&](const Buffer& v) { return in_memory_order(v.view, s.format); };
    cpu().batch_norm(a, flat(in.x), in.w, in.b, {}, {}, {}, {}, flat(r.y), r.mean, r.rstd);
    cpu().batch_norm_backward(a, flat(in.g), flat(in.x), in.w, {}, r.mean, r.rstd, flat(r.dx), r.dweight, r.dbias);
  }
  return r;
}

void check_norm(const Images& s, DType t) {
  const Inputs in(s, t);
  const Results r = run(s, in, t);
  const int64_t n = in.x.numel();
  const double count = double(n) / double(s.statistics());
  const auto zeros = [](int64_t size) { return std::vector<double>(size_t(size)); };
  const auto at = [](std::vector<double>& v, int64_t i) -> double& { return v[size_t(i)]; };
  std::vector<double> x = zeros(n), g = zeros(n), mean = zeros(s.statistics()), var = mean, first = mean, second = mean,
                      dweight = zeros(s.channels), dbias = dweight;
  for (int64_t i = 0; i < n; ++i) {
    at(x, i) = in.x[i];
    at(g, i) = in.g[i];
    at(mean, s.statistic(i)) += at(x, i) / count;
  }
  for (int64_t i = 0; i < n; ++i) at(var, s.statistic(i)) += std::pow(at(x, i) - at(mean, s.statistic(i)), 2) / count;
  const auto rstd = [&](int64_t i) { return 1 / std::sqrt(at(var, s.statistic(i)) + 1e-5); };
  const auto hat = [&](int64_t i) { return (at(x, i) - at(mean, s.statistic(i))) * rstd(i); };
  for (int64_t i = 0; i < n; ++i) {
    const int64_t c = s.channel(i);
    at(dbias, c) += at(g, i);
    at(dweight, c) += at(g, i) * hat(i);
    at(first, s.statistic(i)) += at(g, i) * in.w[c] / count;
    at(second, s.statistic(i)) += at(g, i) * in.w[c] * hat(i) / count;
  }
  const auto same = [&](const Buffer& got, int64_t i, double want, double ulps, double absolute, const char* what) {
    REQUIRE_MESSAGE(close(got.view.dtype, got[i], want, ulps, absolute), what, " ", name(t), " ", s.shape(), " in ", s.groups,
                    " groups, ", s.format, ", at ", i, ": ", got[i], ", not ", want);
  };
  const bool wide = t == DType::f64;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t c = s.channel(i);
    same(r.y, i, hat(i) * in.w[c] + in.b[c], wide ? 64 : 2, wide ? 1e-12 : 1e-5, "y");
    same(r.dx, i, rstd(i) * (at(g, i) * in.w[c] - at(first, s.statistic(i)) - hat(i) * at(second, s.statistic(i))), wide ? 64 : 2,
         wide ? 1e-12 : 1e-5, "dx");
  }
  for (int64_t c = 0; c < s.channels; ++c) {
    const double some = (wide ? 1e-14 : 1e-6) * double(s.batch * s.pixels + 8);
    same(r.dweight, c, at(dweight, c), 1, some, "dweight");
    same(r.dbias, c, at(dbias, c), 1, some, "dbias");
  }
}

}  // namespace

// Fewer columns than are taken side by side, more than a block has, no whole vectors; parts of rows with and without a rest.
TEST_CASE("normalisations of channels, in both formats, against plain loops") {
  for (DType t : kFloating) {
    for (MemoryFormat format : {kRows, kLast}) {
      check_norm({3, 5, 7, 0, format}, t);
      check_norm({3, 40, 30, 0, format}, t);
      check_norm({2, 3, 700, 0, format}, t);
      check_norm({2, 6, 9, 3, format}, t);
      check_norm({2, 6, 2, 3, format}, t);     // no whole vector
      check_norm({10, 24, 33, 4, format}, t);  // samples shared among the threads
      check_norm({2, 20, 70, 20, format}, t);
      check_norm({1, 1100, 5, 2, format}, t);
    }
    check_norm({3, 600, 30, 0, kRows}, t);  // short runs that are too many for columns
    check_norm({300, 70, 1, 0, kRows}, t);  // a matrix
    check_norm({30, 1500, 1, 0, kRows}, t);
  }
}

TEST_CASE("normalisations do not depend on the number of threads") {
  for (DType t : {DType::f32, DType::bf16}) {
    for (const Images& s :
         {Images{8, 24, 200}, {1, 300, 150}, {16, 24, 90, 4}, {1, 64, 600, 8}, {8, 24, 200, 0, kRows}, {16, 24, 90, 4, kRows}}) {
      const Inputs in(s, t);
      same_for_any_threads([&] { return run(s, in, t).raw(); });
    }
  }
}

// The first rows say nothing about the mean of the rest.
TEST_CASE("variances of columns far from zero") {
  const Images s{4, 20, 300};
  const Inputs in(s, DType::f32);
  for (int64_t i = 0; i < in.x.numel(); ++i) set(in.x.view, i, i % s.pixels < 150 ? 0 : 4096 + in.x[i]);
  const Results r = run(s, in, DType::f32);
  for (int64_t c = 0; c < s.channels; ++c) {
    double mean = 0, var = 0;
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t i = 0; i < in.x.numel(); ++i) {
        if (s.channel(i) != c) continue;
        (pass == 0 ? mean : var) += (pass == 0 ? in.x[i] : std::pow(in.x[i] - mean, 2)) / double(s.batch * s.pixels);
      }
    }
    CHECK(r.mean[c] == doctest::Approx(mean).epsilon(1e-6));
    CHECK(r.rstd[c] == doctest::Approx(1 / std::sqrt(var + 1e-5)).epsilon(1e-6));
  }
}
