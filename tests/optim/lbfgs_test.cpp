// SPDX-License-Identifier: Apache-2.0
#include "optim/lbfgs.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "framework/ops/ops.h"
#include "tests/optim/goldens.h"

using namespace halfstep;

namespace {

struct Rosenbrock {
  Tensor p;
  int calls = 0;

  explicit Rosenbrock(DType dtype = DType::f64) {
    p = tensor({-1.2, 1, -1.2, 1, -1.2, 1}, {6}, {.dtype = dtype});
    p.set_requires_grad();
  }
  Optimizer::Closure closure() {
    return [this] {
      ++calls;
      p.zero_grad();
      const Tensor head = p.narrow(0, 0, 5), next = p.narrow(0, 1, 5);
      Tensor loss = (square(next - square(head)) * 100 + square(1 - head)).sum();
      loss.backward();
      return loss;
    };
  }
};

}  // namespace

TEST_CASE("LBFGS takes PyTorch's steps and as many evaluations") {
  const std::map<std::string, LBFGSOptions> settings = {
      {"plain", {.lr = 2e-3, .max_iter = 8, .history_size = 3}},
      {"wolfe", {.max_iter = 6, .line_search_fn = "strong_wolfe"}},
      {"wolfe_short", {.lr = 0.5, .max_iter = 5, .max_eval = 9, .history_size = 2, .line_search_fn = "strong_wolfe"}}};
  REQUIRE(settings.size() == goldens::count("lbfgs"));
  for (const auto& setting : settings) {
    CAPTURE(setting.first);
    const std::vector<double> points = goldens::values("lbfgs", setting.first);
    const std::vector<double> evaluations = goldens::values("evaluations", setting.first);
    Rosenbrock problem;
    LBFGS opt({problem.p}, setting.second);
    size_t recorded = 0;
    for (int step = 1; step <= 6; ++step) {
      opt.step(problem.closure());
      if (step != 1 && step != 3 && step != 6) continue;
      CAPTURE(step);
      CHECK(problem.calls == evaluations[recorded]);
      const std::vector<double> at = problem.p.to_vector<double>();
      for (size_t i = 0; i < 6; ++i) CHECK(std::abs(at[i] - points[6 * recorded + i]) < 1e-6);
      ++recorded;
    }
  }
}

TEST_CASE("LBFGS finds the minimum, in float32 and over several parameters too") {
  Rosenbrock problem(DType::f32);
  LBFGS opt({problem.p}, {.line_search_fn = "strong_wolfe"});
  for (int i = 0; i < 10; ++i) opt.step(problem.closure());
  for (double x : problem.p.to_vector<double>()) CHECK(x == doctest::Approx(1).epsilon(1e-3));

  const Tensor x = from_vector(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2}), y = tensor({5, 11, 17}, {3, 1}, {});
  Tensor w = zeros({1, 2}, {.requires_grad = true}), b = zeros({1}, {.requires_grad = true});
  LBFGS fit({w, b}, {.line_search_fn = "strong_wolfe"});
  const auto loss = [&] {
    fit.zero_grad();
    Tensor l = mse_loss(linear(x, w, b), y);
    l.backward();
    return l;
  };
  for (int i = 0; i < 3; ++i) fit.step(loss);
  CHECK(mse_loss(linear(x, w, b), y).item<float>() < 1e-8);
}

TEST_CASE("a saved LBFGS resumes bit for bit") {
  Rosenbrock whole, half;
  const LBFGSOptions options{.max_iter = 3, .history_size = 4, .line_search_fn = "strong_wolfe"};
  LBFGS a({whole.p}, options), b({half.p}, options), c({half.p}, options);
  for (int i = 0; i < 6; ++i) a.step(whole.closure());
  for (int i = 0; i < 3; ++i) b.step(half.closure());
  std::map<std::string, Tensor> saved;
  for (const auto& [name, t] : b.state_dict()) saved[name] = t.clone();
  c.load_state_dict(saved);
  for (int i = 0; i < 3; ++i) c.step(half.closure());
  CHECK(whole.p.to_vector<double>() == half.p.to_vector<double>());
}

TEST_CASE("LBFGS says what it needs") {
  Rosenbrock problem;
  LBFGS opt({problem.p});
  CHECK_THROWS_WITH_AS(opt.step(),
                       "[LBFGS.step] needs a closure that computes the loss and its gradients\n"
                       "help: opt.step([&] { opt.zero_grad(); Tensor loss = ...; loss.backward(); return loss; })",
                       ValueError);
  CHECK_THROWS_WITH_AS(LBFGS({problem.p}, {.line_search_fn = "armijo"}),
                       "[LBFGS] line_search_fn must be \"none\" or \"strong_wolfe\", got \"armijo\"", ValueError);
}
