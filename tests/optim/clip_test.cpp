// SPDX-License-Identifier: Apache-2.0
#include "optim/clip.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <list>
#include <span>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "optim/optimizers.h"

using namespace halfstep;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<Tensor> parameters() {
  manual_seed(3);
  std::vector<Tensor> params;
  for (const Shape& shape : {Shape{5, 7}, Shape{3}, Shape{2, 2, 2}, Shape{4}}) {
    params.push_back(ones(shape, {.requires_grad = true}));
    if (params.size() < 4) params.back().set_grad(randn(shape));
  }
  params[0].set_grad(randn({7, 5}).t());  // strided; the last parameter has no gradient
  return params;
}

double norm_of(const std::vector<Tensor>& params, double p) {
  double total = 0;
  for (const Tensor& t : params) {
    if (!t.grad().defined()) continue;
    for (double g : t.grad().to_vector<double>())
      total = std::isinf(p) ? std::max(total, std::abs(g)) : total + std::pow(std::abs(g), p);
  }
  return std::isinf(p) ? total : std::pow(total, 1 / p);
}

}  // namespace

TEST_CASE("clip_grad_norm_ is PyTorch's formula, over all gradients, for every order") {
  for (double p : {0.5, 1.0, 2.0, 3.0, kInf}) {
    for (double max_norm : {0.25, 1e6}) {
      CAPTURE(p);
      CAPTURE(max_norm);
      const std::vector<Tensor> params = parameters();
      std::vector<std::vector<double>> before;
      for (size_t i = 0; i < 3; ++i) before.push_back(params[i].grad().to_vector<double>());
      const double want = norm_of(params, p);
      const Tensor norm = clip_grad_norm_(params, max_norm, p);
      CHECK(norm.shape() == Shape{});
      CHECK(norm.dtype() == DType::f32);
      CHECK(std::abs(norm.item<double>() - want) <= 1e-6 * want);
      const double factor = std::min(1.0, max_norm / (want + 1e-6));
      for (size_t i = 0; i < 3; ++i) {
        const std::vector<double> after = params[i].grad().to_vector<double>();
        for (size_t k = 0; k < after.size(); ++k) {
          const double expected = before[i][k] * factor;
          if (factor == 1)
            CHECK(after[k] == expected);
          else
            CHECK(std::abs(after[k] - expected) <= 3e-7 * std::abs(expected));
        }
      }
      CHECK(!params[3].grad().defined());
    }
  }
}

TEST_CASE("clip_grad_norm_: no gradients, expanded gradients, and norms that are not finite") {
  const Tensor p = ones({2, 2}, {.requires_grad = true});
  CHECK(clip_grad_norm_({p}, 1).item<float>() == 0);
  CHECK(clip_grad_norm_({}, 1).item<float>() == 0);
  p.set_grad(full({}, 3.0).expand({2, 2}));
  CHECK(clip_grad_norm_({p}, 1).item<float>() == 6);
  CHECK(std::abs(p.grad().to_vector<double>()[3] - 0.5) < 1e-6);
  p.set_grad(full({2, 2}, kInf));
  CHECK_THROWS_WITH_AS(clip_grad_norm_({p}, 1, 2, true),
                       "[clip_grad_norm_] the total norm of order 2 is inf, so it cannot be clipped\n"
                       "help: set error_if_nonfinite = false to scale by it anyway; a GradScaler skips such steps",
                       ValueError);
  CHECK(std::isinf(clip_grad_norm_({p}, 1).item<float>()));
  CHECK_THROWS_WITH_AS(clip_grad_norm_({p}, -1), "[clip_grad_norm_] max_norm must be >= 0, got -1", ValueError);
}

TEST_CASE("clip_grad_value_ clamps every element") {
  const Tensor p = ones({4}, {.requires_grad = true});
  p.set_grad(tensor({-3, -0.5, 0.5, 3}));
  clip_grad_value_({p}, 1);
  CHECK(p.grad().to_vector<float>() == std::vector<float>{-1, -0.5, 0.5, 1});
}

TEST_CASE("clip_grad_agc_ is the paper's formula, unit by unit") {
  for (const double factor : {0.01, 0.3, 1e5}) {
    std::vector<Tensor> params = parameters();
    {
      const NoGrad off;
      params[2].mul_(1e-5);  // so small that eps counts
    }
    std::vector<std::vector<double>> expected;
    for (const Tensor& p : params) {
      if (!p.grad().defined()) continue;
      const auto w = p.to_vector<double>();
      auto g = p.grad().to_vector<double>();
      const size_t units = p.dim() <= 1 ? 1 : size_t(p.size(0)), n = g.size() / units;
      for (size_t u = 0; u < units; ++u) {
        double ww = 0, gg = 0;
        for (size_t i = u * n; i < (u + 1) * n; ++i) ww += w[i] * w[i], gg += g[i] * g[i];
        const double most = factor * std::max(std::sqrt(ww), 1e-3), norm = std::sqrt(gg);
        for (size_t i = u * n; i < (u + 1) * n; ++i) g[i] *= norm > most ? most / std::max(norm, 1e-6) : 1;
      }
      expected.push_back(g);
    }
    const double norm = grad_norm(params).item<double>();
    CHECK(norm == doctest::Approx(norm_of(params, 2)));
    clip_grad_agc_(params, factor);
    size_t at = 0;
    bool changed = false;
    for (const Tensor& p : params) {
      if (!p.grad().defined()) continue;
      const auto g = p.grad().to_vector<double>();
      for (size_t i = 0; i < g.size(); ++i) CHECK(g[i] == doctest::Approx(expected[at][i]).epsilon(1e-5));
      ++at;
    }
    changed = std::abs(norm_of(params, 2) - norm) > 1e-6;
    CHECK(changed == (factor < 1e5));
  }
  std::vector<Tensor> params = parameters();
  params[1].set_grad(full({3}, kInf));
  clip_grad_agc_(params, 0.1);  // a scaler still sees it
  for (const double g : params[1].grad().to_vector<double>()) CHECK(!std::isfinite(g));
  CHECK_THROWS_WITH_AS(clip_grad_agc_(params, 0), doctest::Contains("clip_factor must be > 0, got 0"), ValueError);
  CHECK_THROWS_WITH_AS(clip_grad_agc_(params, 1, 0), doctest::Contains("eps must be > 0, got 0"), ValueError);
}

namespace {
template <class... Args>
concept Clips = requires(const Tensor& p, Args... args) {
  clip_grad_norm_(p, args...);
};
static_assert(Clips<int> && Clips<double, int> && Clips<double, double, bool> && !Clips<double, bool>);
}  // namespace

TEST_CASE("clipping takes one tensor and any range of tensors") {
  const auto made = [] {
    const Tensor p = ones({2}, {.requires_grad = true});
    p.set_grad(full({2}, 3.0));
    return p;
  };
  const auto clipped = [&](const auto& clip) {
    const Tensor p = made();
    clip(p);
    return p.grad().to_vector<float>();
  };
  const std::vector<float> want = clipped([](const Tensor& p) { clip_grad_norm_(std::vector<Tensor>{p}, 1); });
  CHECK(want[0] < 1);
  CHECK(clipped([](const Tensor& p) { clip_grad_norm_(p, 1); }) == want);
  CHECK(clipped([](const Tensor& p) { clip_grad_norm_({p}, 1); }) == want);
  CHECK(clipped([](const Tensor& p) { clip_grad_norm_(std::list<Tensor>{p}, 1); }) == want);
  CHECK(clipped([](const Tensor& p) { clip_grad_norm_(std::span<const Tensor>(&p, 1), 1); }) == want);
  CHECK(clipped([](const Tensor& p) { clip_grad_norm_(std::array<Tensor, 1>{p}, 1); }) == want);
  CHECK(clipped([](const Tensor& p) { clip_grad_value_(p, 0.5); }) == std::vector<float>{0.5f, 0.5f});
  CHECK(grad_norm(made()).item<double>() == doctest::Approx(3 * std::sqrt(2.0)));
  SGD opt(std::vector<ParamGroup>{{.params = {made()}}, {.params = {made()}}});
  CHECK(grad_norm(opt.parameters()).item<double>() == doctest::Approx(6));
  CHECK(clip_grad_norm_(opt.param_groups()[0].params, 1).item<double>() == doctest::Approx(3 * std::sqrt(2.0)));
}

TEST_CASE("parameters as one vector, and back") {
  Tensor a = tensor({1, 2, 3, 4}, {2, 2}), b = tensor({5, 6}, {2}), c = full({}, 7.0);
  for (Tensor* p : {&a, &b, &c}) p->set_requires_grad();
  const Tensor vector = parameters_to_vector({a, b, c});
  CHECK(vector.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6, 7});
  (vector * arange(7).to(DType::f32)).sum().backward();
  CHECK(b.grad().to_vector<float>() == std::vector<float>{4, 5});
  CHECK(parameters_to_vector(b).to_vector<float>() == std::vector<float>{5, 6});

  const uint64_t version = a.version();
  vector_to_parameters(vector * 2, {a, b, c});
  CHECK(a.to_vector<float>() == std::vector<float>{2, 4, 6, 8});
  CHECK(c.item<float>() == 14);
  CHECK(a.version() > version);
  CHECK(a.is_leaf());
  CHECK_THROWS_WITH_AS(vector_to_parameters(vector, {a, b}),
                       "[vector_to_parameters] the vector must be [6], as many elements as the parameters have, got [7]",
                       ShapeError);
  CHECK_THROWS_WITH_AS(parameters_to_vector({}), "[parameters_to_vector] needs at least one parameter, got an empty list",
                       ValueError);
}

TEST_CASE("gradients of float64 are summed and scaled in float64") {
  const auto with_gradients = [] {
    const Tensor p = ones({3}, {.dtype = DType::f64, .requires_grad = true}), q = ones({2, 2}, {.requires_grad = true});
    p.set_grad(tensor({1.0 / 3, -1e-9, 7.0 / 11}, {.dtype = DType::f64}));
    q.set_grad(tensor({{0.1, 0.2}, {0.3, -0.4}}));
    return std::vector<Tensor>{p, q};
  };
  for (const double order : {1.0, 2.0, 3.0, kInf}) {
    CAPTURE(order);
    const std::vector<Tensor> params = with_gradients();
    const double want = norm_of(params, order);
    CHECK(grad_norm(params, order).dtype() == DType::f64);
    CHECK(std::abs(grad_norm(params, order).item<double>() - want) <= 1e-15 * want);
    CHECK(std::abs(clip_grad_norm_(params, 0.25, order).item<double>() - want) <= 1e-15 * want);
    const auto clipped = params[0].grad().to_vector<double>();
    CHECK(std::abs(clipped[2] - 7.0 / 11 * (0.25 / (want + 1e-6))) <= 1e-15);
    CHECK(params[1].grad().dtype() == DType::f32);
    CHECK(std::abs(params[1].grad().to_vector<double>()[3] + 0.4 * 0.25 / want) <= 1e-6);
  }
  const std::vector<Tensor> kept = with_gradients();
  clip_grad_norm_(kept, 100);
  CHECK(kept[0].grad().to_vector<double>()[0] == 1.0 / 3);
  const std::vector<Tensor> bad = with_gradients();
  bad[0].grad()[0].fill_(kInf);
  CHECK(std::isinf(clip_grad_norm_(bad, 1).item<double>()));
  CHECK_THROWS_AS(clip_grad_norm_(bad, 1, 2, true), ValueError);
  const std::vector<Tensor> units = with_gradients();
  clip_grad_agc_(units, 0.01);
  const double of_unit = std::sqrt(1.0 / 9 + 1e-18 + 49.0 / 121);
  CHECK(std::abs(units[0].grad().to_vector<double>()[0] - 0.01 * std::sqrt(3.0) / of_unit / 3) <= 1e-15);
}
