// SPDX-License-Identifier: Apache-2.0
#include "framework/math/random.h"

#include <cmath>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("element i is a function of the state and i alone") {
  const Generator::State state{42, (uint64_t(1) << 32) - 3};
  const int64_t n = 5003;
  const Buffer u = make(DType::f32, {n}), normal = make(DType::f32, {n}), k = make(DType::i64, {n});
  cpu().random_uniform(u, state, 0, 1);
  cpu().random_normal(normal, state, 0, 1);
  cpu().random_integers(k, state, -5, 12);
  bool ok = true;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = math::random_bits(state.seed, state.offset, uint64_t(i));
    ok = ok && float(u[i]) == math::uniform(bits);
    ok = ok && float(normal[i]) == math::normal(math::philox(state.seed, state.offset + uint64_t(i / 4)), int(i % 4));
    ok = ok && int64_t(k[i]) == -5 + int64_t(uint64_t(bits) * 17 >> 32);
  }
  CHECK(ok);
}

TEST_CASE("uniform numbers of float64 have 53 bits, the first 24 of them those of float32") {
  const Generator::State state{7, 12};
  const int64_t n = 4099;
  const Buffer narrow = make(DType::f32, {n}), wide = make(DType::f64, {n});
  cpu().random_uniform(narrow, state, 0, 1);
  cpu().random_uniform(wide, state, 0, 1);
  uint64_t seen = 0;
  bool ok = true;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = math::random_bits(state.seed, state.offset, uint64_t(i)),
                   more = math::random_bits(state.seed ^ math::kSecondKey, state.offset, uint64_t(i));
    const auto all = uint64_t(wide[i] * 0x1p53);
    seen |= all;
    ok = ok && double(all) * 0x1p-53 == wide[i] && all == (uint64_t(bits >> 8) << 29 | more >> 3);
    ok = ok && std::floor(wide[i] * 0x1p24) * 0x1p-24 == narrow[i];
  }
  CHECK(ok);
  CHECK(seen == (uint64_t(1) << 53) - 1);
}

TEST_CASE("moments and bounds in every dtype") {
  const int64_t n = 40000;
  for (DType t : kFloating) {
    const Buffer u = make(t, {n}), g = make(t, {n});
    cpu().random_uniform(u, {1, 0}, -1, 3);
    cpu().random_normal(g, {2, 0}, 5, 2);
    double mean = 0, square = 0, normal_mean = 0;
    bool inside = true;
    for (int64_t i = 0; i < n; ++i) {
      mean += u[i] / double(n);
      normal_mean += g[i] / double(n);
      square += (g[i] - 5) * (g[i] - 5) / double(n);
      inside = inside && u[i] >= -1 && u[i] < 3;
    }
    CHECK(inside);
    CHECK(mean == doctest::Approx(1).epsilon(0.02));
    CHECK(normal_mean == doctest::Approx(5).epsilon(0.02));
    CHECK(square == doctest::Approx(4).epsilon(0.04));
  }
  for (DType t : {DType::u8, DType::i32, DType::i64}) {
    const Buffer k = make(t, {n});
    cpu().random_integers(k, {3, 0}, 2, 8);
    int counts[8] = {};
    for (int64_t i = 0; i < n; ++i) ++counts[int(k[i])];
    for (int v = 2; v < 8; ++v) CHECK(counts[v] == doctest::Approx(double(n) / 6).epsilon(0.05));
  }
  const Buffer wide = make(DType::i64, {n});
  cpu().random_integers(wide, {3, 0}, INT64_MIN, INT64_MAX);
  int negative = 0;
  for (int64_t i = 0; i < n; ++i) negative += wide.view.as<int64_t>()[i] < 0;
  CHECK(negative == doctest::Approx(n / 2).epsilon(0.02));
}

TEST_CASE("dropout keeps by the same numbers, scales, and repeats itself on the gradient") {
  for (DType t : kFloating) {
    const Generator::State state{9, 100};
    const Shape shape{30, 41};
    const Buffer x = uniform(t, shape, 1, 0.5, 2, Layout::transposed), y = make(t, shape), again = make(t, shape);
    cpu().dropout(x, y, 0.3, state);
    cpu().dropout(x, again, 0.3, state);
    CHECK(y.raw() == again.raw());
    bool ok = true;
    int64_t kept = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const bool keep = math::uniform(math::random_bits(9, 100, uint64_t(i))) >= 0.3f;
      kept += keep;
      ok = ok && close(t, y[i], keep ? x[i] / 0.7 : 0, 3, 1e-6);
    }
    CHECK(ok);
    CHECK(kept == doctest::Approx(0.7 * double(x.numel())).epsilon(0.06));
  }
  const Buffer x = make(DType::f32, {2}, {1, std::nan("")}), y = make(DType::f32, {2});
  cpu().dropout(x, y, 1, {0, 0});
  CHECK(y.values() == std::vector<double>{0, 0});
  cpu().dropout(x, y, 0, {0, 0});
  CHECK(y[0] == 1);
  cpu().dropout(make(DType::f32, {0}), make(DType::f32, {0}), 0.5, {0, 0});
}

TEST_CASE("random numbers do not depend on the number of threads") {
  same_for_any_threads([&] {
    const Buffer a = make(DType::f32, {50001}), b = make(DType::f16, {50001}), c = make(DType::f32, {50001});
    cpu().random_uniform(a, {1, 7}, 0, 1);
    cpu().random_normal(b, {1, 7}, 0, 1);
    cpu().dropout(a, c, 0.5, {1, 8});
    return a.raw() + b.raw() + c.raw();
  });
}
