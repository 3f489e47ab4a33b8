#include "optim/schedule.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "framework/ops/ops.h"
#include "optim/optimizers.h"
#include "tests/optim/torch_goldens.h"

using namespace halfstep;

namespace {
SGD optimizer(double lr = 0.3) { return SGD({ones({1}, {.requires_grad = true})}, {.lr = lr}); }
}  // namespace

TEST_CASE("CosineAnnealingLR and StepLR give PyTorch's rates") {
  SGD a = optimizer(), b = optimizer();
  CosineAnnealingLR cosine(a, 10, 0.01);
  StepLR steps(b, 3, 0.5);
  for (size_t i = 0; i <= 10; ++i) {
    CAPTURE(i);
    CHECK(std::abs(cosine.lr() - goldens::kCosine[i]) < 1e-15);
    CHECK(std::abs(a.lr() - goldens::kCosine[i]) < 1e-15);
    CHECK(std::abs(b.lr() - goldens::kStep[i]) < 1e-15);
    cosine.step();
    steps.step();
  }
  for (int i = 0; i < 20; ++i) cosine.step();
  CHECK(std::abs(a.lr() - 0.01) < 1e-15);  // and stays there
}

TEST_CASE("warmup rises linearly to the initial rate, then the cosine starts") {
  SGD a = optimizer(1);
  CosineAnnealingLR s(a, 12, 0, 4);
  for (int i = 0; i < 12; ++i) {
    CAPTURE(i);
    const double want = i < 4 ? (i + 1) / 4.0 : (1 + std::cos(std::numbers::pi * (i - 4) / 8)) / 2;
    CHECK(std::abs(a.lr() - want) < 1e-15);
    CHECK(std::abs(s.factor(i) - want) < 1e-15);
    s.step();
  }
}

TEST_CASE("a skipped step does not move a schedule; set_count resumes it") {
  SGD a = optimizer(), b = optimizer();
  CosineAnnealingLR s(a, 10, 0.01), resumed(b, 10, 0.01);
  s.step();
  s.step(false);
  s.step(false);
  CHECK(s.count() == 1);
  CHECK(std::abs(a.lr() - goldens::kCosine[1]) < 1e-15);
  s.step(true);
  resumed.set_count(2);
  CHECK(b.lr() == a.lr());
}

TEST_CASE("eta_min is absolute for every group") {
  const Tensor p = ones({1}, {.requires_grad = true}), q = ones({1}, {.requires_grad = true});
  SGD opt(std::vector<ParamGroup>{{{p}, {}, {}}, {{q}, 0.02, {}}}, {.lr = 0.3});
  CosineAnnealingLR s(opt, 10, 0.01);
  s.set_count(10);
  CHECK(std::abs(opt.lr(0) - 0.01) < 1e-15);
  CHECK(std::abs(opt.lr(1) - 0.01) < 1e-15);
}

TEST_CASE("schedules check their arguments and describe themselves") {
  SGD a = optimizer();
  CHECK_THROWS_WITH_AS(StepLR(a, 0), "[StepLR] step_size must be >= 1, got 0", ValueError);
  CHECK_THROWS_WITH_AS(CosineAnnealingLR(a, 0), "[CosineAnnealingLR] t_max must be >= 1, got 0", ValueError);
  CHECK_THROWS_WITH_AS(CosineAnnealingLR(a, 4, 0, 4), "[CosineAnnealingLR] warmup_steps must be in [0, t_max), got 4 with t_max 4",
                       ValueError);
  CHECK(StepLR(a, 3, 0.5).describe() == "StepLR(step_size=3, gamma=0.5)");
  CHECK(CosineAnnealingLR(a, 10, 0.01, 2).describe() == "CosineAnnealingLR(t_max=10, eta_min=0.01, warmup_steps=2)");
}
