// Whole trajectories against double-precision references written from the papers, and against PyTorch's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "amp/autocast.h"
#include "tests/optim/problem.h"
#include "tests/optim/torch_goldens.h"

using namespace halfstep;
using problem::kSize;

namespace {

// Sutskever et al. 2013 as PyTorch arranges it: v = mu v + (1 - damping) g, v = g at first; p -= lr (nesterov ? g + mu v : v).
void reference_sgd(const SGDOptions& o, int steps, double* p) {
  for (int i = 0; i < kSize; ++i) {
    double x = problem::start(i), v = 0;
    for (int t = 0; t < steps; ++t) {
      double g = problem::gradient(i, t, x) * (o.maximize ? -1 : 1) + o.weight_decay * x;
      if (o.momentum != 0) {
        v = t == 0 ? g : o.momentum * v + (1 - o.dampening) * g;
        g = o.nesterov ? g + o.momentum * v : v;
      }
      x -= o.lr * g;
    }
    p[i] = x;
  }
}

// Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019, algorithm 2, when decoupled; Reddi et al. 2018 for amsgrad.
void reference_adam(const AdamOptions& o, bool decoupled, int steps, double* p) {
  const double decay = o.weight_decay.value_or(0);
  for (int i = 0; i < kSize; ++i) {
    double x = problem::start(i), m = 0, v = 0, largest = 0;
    for (int t = 0; t < steps; ++t) {
      double g = problem::gradient(i, t, x) * (o.maximize ? -1 : 1);
      if (decoupled)
        x *= 1 - o.lr * decay;
      else
        g += decay * x;
      m = o.beta1 * m + (1 - o.beta1) * g;
      v = o.beta2 * v + (1 - o.beta2) * g * g;
      largest = std::max(largest, v);
      const double m_hat = m / (1 - std::pow(o.beta1, t + 1)), v_hat = (o.amsgrad ? largest : v) / (1 - std::pow(o.beta2, t + 1));
      x -= o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
    p[i] = x;
  }
}

void compare(const Tensor& p, const double* want, double tolerance) {
  const std::vector<double> got = p.to_vector<double>();
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(got[i] - want[i]) <= tolerance);
  }
}

}  // namespace

TEST_CASE("optimizers follow their references and PyTorch over 20 steps") {
  const std::vector<problem::Setting> settings = problem::settings();
  REQUIRE(settings.size() == std::size(goldens::kTrajectories));
  for (size_t s = 0; s < settings.size(); ++s) {
    const auto& golden = goldens::kTrajectories[s];
    CAPTURE(settings[s].name);
    REQUIRE(settings[s].name == golden.name);
    for (DType dtype : {DType::f64, DType::f32}) {
      CAPTURE(dtype);
      const double tolerance = dtype == DType::f64 ? 1e-13 : 4e-6;
      const Tensor p = problem::parameter(dtype);
      const auto optimizer = problem::make(settings[s], {p});
      int done = 0;
      for (size_t k = 0; k < 3; ++k) {
        for (; done < problem::kSteps[k]; ++done) {
          problem::set_gradient(p, done);
          optimizer->step();
        }
        CAPTURE(done);
        double reference[kSize];
        if (settings[s].name.starts_with("sgd"))
          reference_sgd(settings[s].sgd, done, reference);
        else
          reference_adam(settings[s].adam, settings[s].name.starts_with("adamw"), done, reference);
        compare(p, golden.at[k], tolerance);
        compare(p, reference, tolerance);
      }
      CHECK(optimizer->state_dict().at("0.step").item<double>() == 20);
    }
  }
}

TEST_CASE("a shadow weight is the rounded master after every step") {
  for (DType low : {DType::bf16, DType::f16}) {
    CAPTURE(low);
    for (const problem::Setting& setting : problem::settings()) {
      CAPTURE(setting.name);
      const Tensor p = problem::parameter();
      const auto optimizer = problem::make(setting, {p});
      {
        const Autocast region(Device::cpu, low);
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
    const Tensor p = problem::parameter(), control = problem::parameter();
    const auto optimizer = problem::make(setting, {p}), plain = problem::make(setting, {control});
    for (int t = 0; t < 4; ++t) {
      problem::set_gradient(p, t);
      p.set_grad(p.grad() * std::numeric_limits<double>::infinity());
      const std::string before = problem::bytes(p), state = problem::bytes(*optimizer);
      optimizer->amp() = {ones({}), full({}, 8)};
      optimizer->step();
      CHECK(problem::bytes(p) == before);
      if (t > 0)
        CHECK(problem::bytes(*optimizer) == state);
      else
        for (const auto& [name, tensor] : optimizer->state_dict())
          CHECK(tensor.to_vector<double>() == zeros_like(tensor).to_vector<double>());

      problem::set_gradient(p, t, 8);  // scaled; a power of two, so that unscaling is exact
      problem::set_gradient(control, t);
      optimizer->amp() = {zeros({}), full({}, 8)};
      optimizer->step();
      optimizer->amp() = {};
      plain->step();
      CHECK(problem::bytes(p) == problem::bytes(control));
      CHECK(problem::bytes(p.grad()) == problem::bytes(control.grad()));  // written back unscaled
      CHECK(problem::bytes(*optimizer) == problem::bytes(*plain));
    }
  }
}
