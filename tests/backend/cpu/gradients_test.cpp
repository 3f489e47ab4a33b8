// SPDX-License-Identifier: Apache-2.0
// The scaler's kernels, norms and clipping.
#include <algorithm>
#include <limits>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");
}  // namespace

TEST_CASE("check_finite finds any inf or NaN and never clears the flag") {
  for (DType t : kFloating) {
    for (double bad : {kInf, -kInf, kNan}) {
      for (int64_t at : {0, 17, 40999}) {
        const Buffer ok = uniform(t, {100}, 1), g = uniform(t, {41000}, 2, -2, 2, Layout::sliced);
        const TensorView list[] = {ok, g};
        float found = 0;
        cpu().check_finite(list, &found);
        CHECK(found == 0);
        set(g.view, at, bad);
        cpu().check_finite(list, &found);
        CHECK(found == 1);
        set(g.view, at, 0);
        cpu().check_finite(list, &found);
        CHECK(found == 1);
      }
    }
  }
  const Buffer top = make(DType::f16, {2}, {65504, -65504}), most = make(DType::f64, {1}, {1e300});
  float found = 0;
  cpu().check_finite(std::vector<TensorView>{top, most}, &found);
  cpu().check_finite({}, &found);
  CHECK(found == 0);
}

TEST_CASE("unscale multiplies by the rounded reciprocal, in place, in any layout") {
  for (DType t : kFloating) {
    for (Layout layout : {Layout::dense, Layout::transposed, Layout::sliced}) {
      const Buffer g = uniform(t, {20, 300}, 1, -2, 2, layout);
      const std::vector<double> before = g.values();
      const float scale = 3;
      float found = 0;
      cpu().unscale(std::vector<TensorView>{g}, &scale, &found);
      CHECK(found == 0);
      const float factor = float(1 / 3.0);
      bool ok = true;
      for (int64_t i = 0; i < g.numel(); ++i) ok = ok && close(t, g[i], before[size_t(i)] * double(factor), 1.001);
      CHECK(ok);
    }
  }
}

TEST_CASE("unscale by 1 leaves every bit, and checks before it divides") {
  Buffer g = make(DType::f32, {2});
  g.view.as<uint32_t>()[0] = 0x00000001;
  g.view.as<uint32_t>()[1] = 0x7f800001;  // a signalling NaN
  const std::string before = g.raw();
  float scale = 1, found = 0;
  cpu().unscale(std::vector<TensorView>{g}, &scale, &found);
  CHECK(found == 1);
  CHECK(g.raw() == before);
  // Inf stays inf under a large scale; a finite value that the factor takes to inf was not found by the check.
  const Buffer h = make(DType::f16, {1}, {60000});
  scale = 0.5f;
  found = 0;
  cpu().unscale(std::vector<TensorView>{h}, &scale, &found);
  CHECK(h[0] == kInf);
  CHECK(found == 0);
}

TEST_CASE("the scale grows at the interval, backs off at once and saturates") {
  float scale = 4, found = 0;
  int32_t tracker = 0;
  const auto update = [&](int32_t interval) {
    cpu().end_step(&found, {.scale = &scale, .tracker = &tracker, .rule = {.growth = 2.0, .backoff = 0.5, .interval = interval}});
  };
  update(3);
  update(3);
  CHECK(scale == 4);
  CHECK(tracker == 2);
  update(3);
  CHECK(scale == 8);
  CHECK(tracker == 0);
  update(3);
  found = 1;
  update(3);
  CHECK(scale == 4);
  CHECK(tracker == 0);
  found = 0;
  tracker = 5;  // the interval was shortened below what has passed
  update(3);
  CHECK(scale == 8);
  CHECK(tracker == 0);
  scale = 0x1p127f;
  update(1);
  CHECK(scale == 0x1p127f);
  CHECK(tracker == 0);
  found = 1;
  scale = 0x1p-149f;
  update(1);
  CHECK(scale == 0);
}

TEST_CASE("norms of several tensors") {
  for (DType t : kFloating) {
    const Buffer a = uniform(t, {300, 70}, 1, -2, 2, Layout::transposed), b = uniform(t, {55}, 2), none = make(t, {0});
    const std::vector<TensorView> list{a, b, none};
    for (double p : {1.0, 2.0, 3.0, kInf}) {
      double want = 0;
      for (const Buffer* x : {&a, &b}) {
        for (double v : x->values()) want = p == kInf ? std::max(want, std::abs(v)) : want + std::pow(std::abs(v), p);
      }
      if (p != kInf) want = std::pow(want, 1 / p);
      float got = -1;
      cpu().norm(list, p, &got);
      CHECK(double(got) == doctest::Approx(want).epsilon(1e-6));
    }
  }
  float got = -1;
  cpu().norm({}, 2, &got);
  CHECK(got == 0);
  const Buffer large = make(DType::f32, {2}, {3e30, 4e30});
  cpu().norm(std::vector<TensorView>{large}, 2, &got);
  CHECK(double(got) == doctest::Approx(5e30).epsilon(1e-6));
  for (double p : {2.0, kInf}) {
    const Buffer first = make(DType::f32, {2}, {kNan, 1}), second = make(DType::f32, {1}, {7});
    cpu().norm(std::vector<TensorView>{first, second}, p, &got);
    CHECK(std::isnan(got));
  }
}

TEST_CASE("the norm of scaled gradients is the norm without the scale, and says whether they are finite") {
  const float scale = 8;
  float norm = -1, found = -1;
  const Buffer g = make(DType::f16, {2}, {24, 32}), large = make(DType::f32, {4}, {3e38, 3e38, -3e38, 3e38});
  cpu().grad_norm(std::vector<TensorView>{g}, &scale, &norm, &found);
  CHECK(norm == 5);
  CHECK(found == 0);
  cpu().grad_norm(std::vector<TensorView>{g}, nullptr, &norm, nullptr);
  CHECK(norm == 40);
  cpu().grad_norm(std::vector<TensorView>{large}, &scale, &norm, &found);
  CHECK(double(norm) == doctest::Approx(7.5e37).epsilon(1e-6));
  CHECK(found == 0);
  for (const double bad : {kInf, -kInf, kNan}) {
    for (const DType t : kFloating) {
      found = 0;
      cpu().grad_norm(std::vector<TensorView>{g, make(t, {3}, {1, bad, 1})}, &scale, &norm, &found);
      CHECK(found == 1);
      CHECK(!std::isfinite(norm));
    }
  }
  cpu().grad_norm({}, &scale, &norm, &found);
  CHECK(norm == 0);
  CHECK(found == 0);
}

TEST_CASE("clip scales down to the norm, never up") {
  const Buffer g = make(DType::f32, {2}, {3, 4});
  float norm = 5;
  cpu().clip(std::vector<TensorView>{g}, &norm, 10);
  CHECK(g.values() == std::vector<double>{3, 4});
  cpu().clip(std::vector<TensorView>{g}, &norm, 1);
  CHECK(g[0] == doctest::Approx(0.6).epsilon(1e-6));
  CHECK(g[1] == doctest::Approx(0.8).epsilon(1e-6));
  norm = float(kNan);
  cpu().clip(std::vector<TensorView>{g}, &norm, 1);
  CHECK(std::isnan(g[0]));
}

TEST_CASE("gradient passes do not depend on the number of threads") {
  same_for_any_threads([&] {
    const Buffer a = uniform(DType::f32, {90001}, 1), b = uniform(DType::f16, {333, 100}, 2, -2, 2, Layout::transposed);
    const std::vector<TensorView> list{a, b};
    Buffer norm = make(DType::f32, {});
    cpu().norm(list, 2, norm.view.as<float>());
    cpu().clip(list, norm.view.as<float>(), 1);
    const float scale = 3;
    float found = 0;
    cpu().unscale(list, &scale, &found);
    return norm.raw() + a.raw() + b.raw();
  });
}
