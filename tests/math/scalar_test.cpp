// SPDX-License-Identifier: Apache-2.0
// The branch-free float functions against libm in double, over floats of every exponent.
#include "framework/math/scalar.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>

using namespace halfstep;

namespace {

struct Worst {
  double ulps = 0;
  float at = 0;
  int specials = 0;  // inf, NaN or zero sign that differ
};

template <class F, class G>
Worst sweep(F f, G exact) {
  Worst w;
  for (uint64_t u = 0; u < (uint64_t(1) << 32); u += 10007) {
    const float x = std::bit_cast<float>(uint32_t(u));
    const float y = f(x);
    const double t = exact(double(x));
    if (!std::isfinite(float(t)) || !std::isfinite(y)) {
      w.specials += !(std::isnan(y) && std::isnan(t)) && y != float(t);
      continue;
    }
    const double unit = std::abs(t) < 0x1p-126 ? 0x1p-149 : std::ldexp(1.0, std::ilogb(t) - 23);
    const double error = std::abs(double(y) - t) / unit;
    if (error > w.ulps) w = {error, x, w.specials};
  }
  return w;
}

}  // namespace

#define CHECK_ULPS(name, bound)                                                                    \
  {                                                                                                \
    const Worst w = sweep([](float x) { return m::name(x); }, [](double x) { return ::name(x); }); \
    CAPTURE(w.at);                                                                                 \
    CHECK_MESSAGE(w.ulps <= bound, #name);                                                         \
    CHECK_MESSAGE(w.specials == 0, #name);                                                         \
  }

TEST_CASE("float functions stay within their error bounds"){
    CHECK_ULPS(exp, 1.0) CHECK_ULPS(exp2, 1.0) CHECK_ULPS(expm1, 1.5) CHECK_ULPS(log, 1.0) CHECK_ULPS(log2, 1.0)
        CHECK_ULPS(log1p, 1.5) CHECK_ULPS(tanh, 1.5) CHECK_ULPS(erf, 1.5) CHECK_ULPS(erfc, 5.0)}

TEST_CASE("pow is within an ulp of libm's, special values included") {
  const float inf = INFINITY, nan = NAN;
  const float values[] = {0.0f,        -0.0f,       1.0f,       -1.0f,      2.0f,   -2.0f,   0.5f,  -0.5f,
                          3.0f,        -3.0f,       2.5f,       -2.5f,      1e-45f, -1e-45f, 1e38f, -1e38f,
                          16777216.0f, 16777217.0f, 8388609.0f, 4194305.5f, inf,    -inf,    nan};
  const auto check = [](float a, float b) {
    const float want = float(std::pow(double(a), double(b))), got = m::pow(a, b);
    CAPTURE(a);
    CAPTURE(b);
    if (std::isnan(want)) {
      CHECK(std::isnan(got));
    } else if (want == 0 || std::isinf(want)) {
      CHECK(got == want);
      CHECK(std::signbit(got) == std::signbit(want));
    } else {
      CHECK(std::fabs(double(got) - double(want)) <= std::max(1.2e-7 * std::fabs(double(want)), 1.5e-45));
    }
  };
  for (float a : values)
    for (float b : values) check(a, b);
  uint32_t state = 7;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  for (int i = 0; i < 200000; ++i) {
    const float a = m::host::float_of(next() & 0x7fffffffu), exponent = float(int32_t(next())) * 1e-8f;
    if (std::isfinite(a)) check(a, exponent);
    check(1 + float(int32_t(next())) * 1e-10f, exponent * 100);
  }
}

TEST_CASE("the normal distribution keeps its digits in the far tail, and gelu with it") {
  const auto cdf = [](double x) { return 0.5 * ::erfc(x * -0.70710678118654752440); };
  const Worst whole = sweep([](float x) { return m::normal_cdf(x); }, cdf);
  CAPTURE(whole.at);
  CHECK(whole.ulps <= 10);
  CHECK(whole.specials == 0);
  const Worst middle =
      sweep([](float x) { return x > -4 ? m::normal_cdf(x) : 1.0f; }, [&](double x) { return x > -4 ? cdf(x) : 1.0; });
  CAPTURE(middle.at);
  CHECK(middle.ulps <= 6.5);
  const Worst density =
      sweep([](float x) { return m::normal_pdf(x); }, [](double x) { return 0.39894228040143267794 * ::exp(-0.5 * x * x); });
  CAPTURE(density.at);
  CHECK(density.ulps <= 2.5);
  CHECK(density.specials == 0);
}

TEST_CASE("sigmoid and softplus are stable at both ends") {
  const Worst s = sweep([](float x) { return m::sigmoid(x); },
                        [](double x) { return x < 0 ? ::exp(x) / (1 + ::exp(x)) : 1 / (1 + ::exp(-x)); });
  CHECK(s.ulps <= 3);
  CHECK(s.specials == 0);
  const Worst p =
      sweep([](float x) { return m::softplus(x); }, [](double x) { return (x > 0 ? x : 0) + ::log1p(::exp(-std::abs(x))); });
  CHECK(p.ulps <= 2);
  CHECK(p.specials == 0);
}

TEST_CASE("mish and its derivative keep their digits at both ends") {
  const auto exact = [](double x) { return ::tanh(x > 0 ? x + ::log1p(::exp(-x)) : ::log1p(::exp(x))); };
  const Worst factor = sweep([](float x) { return m::mish_factor(x); }, exact);
  CAPTURE(factor.at);
  CHECK(factor.ulps <= 4);
  CHECK(factor.specials == 0);
  const auto slope = [&](double x) {
    const double t = exact(x);
    return t + x / (1 + ::exp(-x)) * (1 - t) * (1 + t);
  };
  const auto above = [](double x) { return x > 0 && x < 1e30; };  // below, it crosses 0
  const Worst w =
      sweep([&](float x) { return above(x) ? m::mish_slope(x) : 1.0f; }, [&](double x) { return above(x) ? slope(x) : 1.0; });
  CAPTURE(w.at);
  CHECK(w.ulps <= 4);
  CHECK(w.specials == 0);
  for (float x = -80; x < 0; x += 0.03125f) {
    CAPTURE(x);
    CHECK(std::abs(double(m::mish_slope(x)) - slope(double(x))) <= 4e-7 * exact(double(x)) * (1 - double(x)));
    CHECK(std::abs(m::mish_slope(double(x)) - slope(double(x))) <= 1e-15 * exact(double(x)) * (1 - double(x)));
  }
}

TEST_CASE("signed zeros and exact points") {
  CHECK(std::signbit(m::expm1(-0.0f)));
  CHECK(std::signbit(m::log1p(-0.0f)));
  CHECK(std::signbit(m::tanh(-0.0f)));
  CHECK(std::signbit(m::erf(-0.0f)));
  CHECK(m::exp(0.0f) == 1.0f);
  CHECK(m::log(1.0f) == 0.0f);
  for (int n = -149; n < 128; ++n) {
    CHECK(m::exp2(float(n)) == std::ldexp(1.0f, n));
    CHECK(m::log2(std::ldexp(1.0f, n)) == float(n));
  }
}
