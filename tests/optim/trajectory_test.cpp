// SPDX-License-Identifier: Apache-2.0
// Whole trajectories against PyTorch's, or against the formulas of papers where PyTorch lacks an optimizer.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "amp/autocast/autocast.h"
#include "tests/optim/goldens.h"
#include "tests/optim/problem.h"

using namespace halfstep;
using problem::kSize;

namespace {

void compare(const Tensor& p, const double* want, double tolerance) {
  const std::vector<double> got = p.to_vector<double>();
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(got[i] - want[i]) <= tolerance);
  }
}

// How far a trajectory may be from PyTorch's in float64. Muon computes its matrices in bfloat16; NAdam, LAMB and Adafactor keep a
// number of each parameter in float32; where a sign decides about a step, float32 may decide otherwise in a while.
double tolerance(const std::string& name, DType dtype, int steps) {
  if (name.starts_with("muon")) return steps * 2e-4 + 1e-3;
  if (dtype == DType::f64)
    return name.starts_with("nadam") || name.starts_with("adafactor") || name.starts_with("lamb") ? 1e-6 : 1e-12;
  if (name.starts_with("rprop") || name.starts_with("lion")) return steps <= 20 ? 1e-5 : 0.1;
  return steps <= 20 ? 4e-6 : 4e-5;
}

}  // namespace

TEST_CASE("optimizers follow PyTorch, or the papers, over 200 steps" * doctest::test_suite("values")) {
  const std::vector<problem::Setting> settings = problem::settings();
  REQUIRE(settings.size() == goldens::count("trajectory"));
  for (const problem::Setting& setting : settings) {
    CAPTURE(setting.name);
    const std::vector<double> want = goldens::values("trajectory", setting.name);
    for (DType dtype : {DType::f64, DType::f32}) {
      CAPTURE(dtype);
      const Tensor p = problem::parameter(dtype, setting.shape);
      const auto optimizer = setting.make({p});
      int done = 0;
      for (size_t k = 0; k < std::size(problem::kSteps); ++k) {
        for (; done < problem::kSteps[k]; ++done) {
          problem::set_gradient(p, done);
          optimizer->step();
        }
        CAPTURE(done);
        compare(p, &want[k * kSize], tolerance(setting.name, dtype, done));
      }
      CHECK(optimizer->state_dict().at("0.step").item<double>() == 200);
    }
  }
}

TEST_CASE("a shadow weight is the rounded master after every step") {
  for (DType low : {DType::bf16, DType::f16}) {
    CAPTURE(low);
    for (const problem::Setting& setting : problem::settings()) {
      CAPTURE(setting.name);
      const Tensor p = problem::parameter(DType::f32, setting.shape);
      const auto optimizer = setting.make({p});
      {
        const Autocast region(Device::cpu, low);
        if (p.dim() == 2)
          matmul(ones({1, p.size(0)}), p);
        else
          linear(ones({1, 2}), ones({kSize, 2}), p);
      }
      REQUIRE(autocast::shadow_of(p).defined());
      const uint64_t casts = autocast::cast_count();
      for (int t = 0; t < 20; ++t) {
        problem::set_gradient(p, t);
        const uint64_t version = p.version();
        optimizer->step();
        CHECK(p.version() > version);
        const Tensor shadow = autocast::shadow_of(p);
        REQUIRE(shadow.defined());
        CHECK(shadow.dtype() == low);
        CHECK(problem::bytes(shadow) == problem::bytes(p.detach().to(low)));
      }
      CHECK(autocast::cast_count() == casts);
    }
  }
}

TEST_CASE("a step that found_inf cancels leaves every byte, and the next equals a first step") {
  for (const problem::Setting& setting : problem::settings()) {
    CAPTURE(setting.name);
    const Tensor p = problem::parameter(DType::f32, setting.shape), control = problem::parameter(DType::f32, setting.shape);
    const auto optimizer = setting.make({p}), plain = setting.make({control});
    for (int t = 0; t < 4; ++t) {
      problem::set_gradient(p, t);
      p.set_grad(p.grad() * std::numeric_limits<double>::infinity());
      const std::string before = problem::bytes(p), state = problem::bytes(*optimizer);
      optimizer->checked_amp() = {ones({}), full({}, 8.0)};
      optimizer->step();
      CHECK(problem::bytes(p) == before);
      if (t > 0)
        CHECK(problem::bytes(*optimizer) == state);
      else
        for (const auto& [name, tensor] : problem::states(*optimizer))
          if (!name.ends_with(".mu"))  // of ASGD, which begins at 1
            CHECK(tensor.to_vector<double>() == zeros_like(tensor).to_vector<double>());

      problem::set_gradient(p, t, 8);  // scaled; a power of two, so that unscaling is exact
      problem::set_gradient(control, t);
      optimizer->checked_amp() = {zeros({}), full({}, 8.0)};
      optimizer->step();
      optimizer->checked_amp() = {};
      plain->step();
      CHECK(problem::bytes(p) == problem::bytes(control));
      CHECK(problem::bytes(p.grad()) == problem::bytes(control.grad()));  // written back unscaled
      CHECK(problem::bytes(*optimizer) == problem::bytes(*plain));
    }
  }
}
