// SPDX-License-Identifier: Apache-2.0
// Products by our own loops of float32, which a build with oneDNN uses for 16-bit operands only.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/gemm/eigen.h"

using namespace halfstep;

namespace {

std::vector<float> numbers(int64_t n, uint32_t seed) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(float((seed = seed * 1664525u + 1013904223u) >> 8) / float(1 << 23) - 1.0f);
  return x;
}
std::vector<double> wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

struct Case {
  int64_t batch, m, n, k;
  bool a_turned, b_turned, bias, relu, accumulate;
};

cpu::GemmProblem product_of(const Case& s) {
  cpu::GemmProblem p{.batch = s.batch, .m = s.m, .n = s.n, .k = s.k};
  p.a_batch = s.m * s.k, p.b_batch = s.k * s.n;
  p.a_row = s.a_turned ? 1 : s.k, p.a_column = s.a_turned ? s.m : 1;
  p.b_row = s.b_turned ? 1 : s.n, p.b_column = s.b_turned ? s.k : 1;
  p.relu = s.relu, p.accumulate = s.accumulate;
  return p;
}

// Multiplies on one thread and on two, checks that both give the same bits, near `want`, and returns the product. c: what it is
// added to, if it is.
template <class T>
std::vector<float> multiply_on_threads(cpu::GemmProblem p, const Case& s, const std::vector<T>& want, std::vector<float> c) {
  std::vector<float> again = c;
  set_num_threads(1);
  p.c = c.data();
  cpu::run_gemm_blocks(p);
  set_num_threads(2);
  p.c = again.data();
  cpu::run_gemm_blocks(p);
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs(double(c[i]) - double(want[i])));
  CHECK_MESSAGE(worst <= 1e-6 * double(s.k), s.m, "x", s.k, "x", s.n, ": ", worst);
  CHECK(c == again);
  return c;
}

}  // namespace

TEST_CASE("products of float32 by blocks are those of float64, to float32's precision, with any number of threads") {
  const int threads = num_threads();
  for (const Case& s : {Case{1, 1, 1, 1, false, false, false, false, false},
                        {1, 5, 3, 2, false, true, true, true, false},
                        {1, 130, 257, 31, true, false, false, false, true},
                        {1, 70, 65, 600, false, true, true, true, false},
                        {1, 300, 520, 300, true, true, true, false, false},
                        {3, 33, 17, 40, false, false, false, true, false}}) {
    const std::vector<float> a = numbers(s.batch * s.m * s.k, 1), b = numbers(s.batch * s.k * s.n, 2), bias = numbers(s.n, 3);
    std::vector<float> c = numbers(s.batch * s.m * s.n, 4);
    const std::vector<double> wide_a = wide(a), wide_b = wide(b), wide_bias = wide(bias);
    std::vector<double> want = wide(c);
    cpu::GemmProblem p = product_of(s);
    p.a = wide_a.data(), p.b = wide_b.data(), p.c = want.data();
    cpu::run_gemm_eigen<double>(p, s.bias ? wide_bias.data() : nullptr);
    p.a = a.data(), p.b = b.data(), p.bias = s.bias ? bias.data() : nullptr;
    multiply_on_threads(p, s, want, c);
  }
  set_num_threads(threads);
}

TEST_CASE("products by blocks keep NaN, also through relu") {
  std::vector<float> a = numbers(20 * 8, 1), b = numbers(8 * 20, 2), c(20 * 20);
  a[8 * 3] = std::numeric_limits<float>::quiet_NaN();
  cpu::GemmProblem p = product_of({1, 20, 20, 8, false, false, false, true, false});
  p.a = a.data(), p.b = b.data(), p.c = c.data();
  cpu::run_gemm_blocks(p);
  for (int64_t i = 0; i < 20; ++i) {
    for (int64_t j = 0; j < 20; ++j) CHECK(std::isnan(c[size_t(i * 20 + j)]) == (i == 3));
  }
}

// On an ARM CPU with BFMMLA they are its own loop's; elsewhere they are widened.
TEST_CASE("products of bf16 by blocks are those of the same numbers in float32, with any number of threads") {
  const int threads = num_threads();
  for (const Case& s : {Case{1, 2, 2, 16, false, false, false, false, false},
                        {1, 8, 8, 17, false, true, true, true, false},
                        {1, 13, 21, 30, true, false, false, false, true},
                        {1, 70, 65, 603, false, true, true, true, false},
                        {1, 300, 520, 259, true, true, true, false, false},
                        {1, 40, 104, 513, true, false, false, false, false},
                        {3, 33, 17, 43, false, false, false, true, false}}) {
    std::vector<float> a = numbers(s.batch * s.m * s.k, 1), b = numbers(s.batch * s.k * s.n, 2), bias = numbers(s.n, 3);
    std::vector<bf16> short_a(a.size()), short_b(b.size());
    for (size_t i = 0; i < a.size(); ++i) short_a[i] = bf16(a[i]), a[i] = float(short_a[i]);
    for (size_t i = 0; i < b.size(); ++i) short_b[i] = bf16(b[i]), b[i] = float(short_b[i]);
    std::vector<float> want = numbers(s.batch * s.m * s.n, 4), c = want;
    cpu::GemmProblem p = product_of(s);
    p.bias = s.bias ? bias.data() : nullptr;
    p.a = a.data(), p.b = b.data(), p.c = want.data();
    cpu::run_gemm_blocks(p);
    p.in = DType::bf16;
    p.a = short_a.data(), p.b = short_b.data();
    c = multiply_on_threads(p, s, want, c);
    std::vector<bf16> rounded(want.size());
    if (s.accumulate) continue;
    p.out = DType::bf16;
    p.c = rounded.data();
    cpu::run_gemm_blocks(p);
    for (size_t i = 0; i < want.size(); ++i) CHECK(std::abs(float(rounded[i]) - c[i]) <= std::abs(c[i]) / 128 + 1e-6f);
  }
  set_num_threads(threads);
}
