// SPDX-License-Identifier: Apache-2.0
// Norms that the update clips, against gradients that are unscaled and clipped in memory: the same bits under scales that are
// powers of two. An optimizer without handles_amp() (scaling::Plain) makes TrainStep clip in memory.
#include <doctest/doctest.h>

#include <cmath>

#include "amp/step/train_step.h"
#include "optim/two_pass.h"
#include "tests/amp/scaling.h"
#include "tests/optim/problem.h"
#include "tests/support/errors.h"

using namespace halfstep;
using testing::error_of;

namespace {

constexpr double kClipped = 0.1, kFree = 1e6;

template <class O>
struct ClippedRun {
  std::shared_ptr<Sequential> net = (manual_seed(23), scaling::model());
  MSELoss loss;
  O opt;
  GradScaler scaler;
  TrainStep step;

  ClippedRun(const TrainStepOptions& options, const GradScalerOptions& scale, DType params = DType::f32)
      : opt(groups(*net, params), {.lr = 0.05}), scaler(scale), step(*net, loss, opt, scaler, nullptr, options) {}
  static std::vector<ParamGroup> groups(Module& net, DType params) {
    net.to(params);
    const std::vector<Tensor> p = net.parameters();
    return {{.params = {p[0], p[1]}}, {.params = {p[2], p[3]}, .lr = 0.1}};
  }
  std::string state() const {
    return scaling::bytes(*net) + scaling::bytes(opt) + joined(scaler.get_scale(), " ", scaler.get_growth_tracker());
  }
  double grad_norm() const {
    double squares = 0;
    for (const Tensor& p : net->parameters()) squares += p.grad().to(DType::f32).square().sum().template item<double>();
    return std::sqrt(squares);
  }
};

// Trains with both ways of clipping, and checks that every step gives the same. Returns the number of skipped steps.
template <class O>
int same_steps(const TrainStepOptions& options, const GradScalerOptions& scale, DType params = DType::f32) {
  ClippedRun<O> pass(options, scale, params);
  ClippedRun<scaling::Plain<O>> memory(options, scale, params);
  manual_seed(6);
  const Tensor x = randn({8, 8}).to(params), y = randn({8, 8}).to(params);
  int skipped = 0;
  for (int i = 0; i < 16; ++i) {
    CAPTURE(i);
    const StepResult a = pass.step(x, y), b = memory.step(x, y);
    CHECK(a.stepped == b.stepped);
    if (!a.stepped) continue;
    CHECK(scaling::bytes(a.grad_norm) == scaling::bytes(b.grad_norm));
    CHECK(a.outcome.applied() == b.outcome.applied());
    CHECK(pass.state() == memory.state());
    skipped += !a.outcome.applied();
  }
  return skipped;
}

// An optimizer of a program that looks at its gradients before the step.
struct Looking : SGD {
  using SGD::SGD;
  std::optional<Tensor> step(const Closure& closure = nullptr) override {
    const AmpStep amp = checked_amp();
    CHECK(!amp.grad_scale.defined());
    CHECK(!amp.clip.norm.defined());
    seen = grad_norm(parameters()).item<double>();
    return SGD::step(closure);
  }
  double seen = 0;
};

}  // namespace

TEST_CASE("the update of every optimizer clips as clip_grad_norm_ does, with and without a scale, and skips the same steps") {
  for (const problem::Setting& setting : problem::settings()) {
    for (const double bound : {kClipped, kFree}) {
      for (const bool scaled : {false, true}) {
        CAPTURE(setting.name);
        CAPTURE(bound);
        CAPTURE(scaled);
        const GradScalerOptions options{.init_scale = 256, .growth_interval = 2, .enabled = scaled};
        GradScaler scaler(options), want(options);
        const Tensor p = problem::parameter(DType::f32, setting.shape), q = problem::parameter(DType::f32, setting.shape);
        const auto opt = setting.make({p}), plain = setting.make({q});
        for (int t = 0; t < 6; ++t) {
          CAPTURE(t);
          scaler.scale(ones({}));
          want.scale(ones({}));
          const bool bad = scaled && t == 3;
          for (const Tensor& each : {p, q}) {
            problem::set_gradient(each, t, scaler.get_scale());
            if (bad) each.grad()[0].fill_(scaling::kInf);
          }
          const Tensor norm = scaler.grad_norm(*opt);
          const StepOutcome outcome = scaler.finish(*opt, {}, {}, {norm, bound});
          const Tensor want_norm = clip_grad_norm_(want.unscale_(*plain), bound);
          CHECK(want.step(*plain).applied() == !bad);
          want.update();
          CHECK(outcome.applied() == !bad);
          CHECK(problem::bytes(norm) == problem::bytes(want_norm));
          CHECK(problem::bytes(p) == problem::bytes(q));
          CHECK(problem::bytes(*opt) == problem::bytes(*plain));
          CHECK(scaler.state_dict() == want.state_dict());
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("a train step that clips in the update gives the bits of one that clips in memory", O, SGD, AdamW, LAMB,
                   Adafactor) {
  for (const double bound : {kClipped, kFree}) {
    for (const int64_t k : {1, 2}) {
      CAPTURE(bound);
      CAPTURE(k);
      CHECK(same_steps<O>({.clip_grad_norm = bound, .accumulate_steps = k}, {.enabled = false}) == 0);
      CHECK(same_steps<O>({.amp = DType::bf16, .clip_grad_norm = bound, .accumulate_steps = k}, {.enabled = false}) == 0);
      const int skipped = same_steps<O>({.amp = DType::f16, .clip_grad_norm = bound, .accumulate_steps = k},
                                        {.init_scale = 0x1p18, .growth_factor = 4, .growth_interval = 2});
      CHECK(skipped > 0);
      CHECK(skipped < 16 / k);
    }
  }
  CHECK(same_steps<O>({.clip_grad_norm = kClipped}, {.enabled = false}, DType::bf16) == 0);  // rounded when they are clipped
}

TEST_CASE("a step that clips the norm alone writes no gradient; others, and 16-bit parameters, are clipped in memory") {
  struct Case {
    TrainStepOptions options;
    DType params;
    bool in_memory;
  };
  for (const Case& c : {Case{{.clip_grad_norm = kClipped}, DType::f32, false},
                        Case{{.clip_grad_norm = kClipped}, DType::bf16, true},
                        Case{{.clip_grad_norm = kClipped, .clip_grad_value = 10}, DType::f32, true},
                        Case{{.clip_grad_norm = kClipped, .clip_grad_agc = 10}, DType::f32, true}}) {
    ClippedRun<SGD> run(c.options, {.init_scale = 256}, c.params);
    manual_seed(6);
    const Tensor x = randn({8, 8}).to(c.params), y = randn({8, 8}).to(c.params);
    const double norm = run.step(x, y).grad_norm.item<double>();
    CHECK(norm > kClipped);
    CHECK(run.grad_norm() == doctest::Approx(c.in_memory ? kClipped : 256 * norm).epsilon(0.01));
  }
}

TEST_CASE("the norm of float64 parameters is computed, and clips, in float64") {
  for (const bool scaled : {false, true}) {
    ClippedRun<SGD> run({.clip_grad_norm = kClipped}, {.init_scale = 256, .enabled = scaled}, DType::f64);
    manual_seed(6);
    const Tensor x = randn({8, 8}).to(DType::f64), y = randn({8, 8}).to(DType::f64);
    const Tensor norm = run.step(x, y).grad_norm;
    CHECK(norm.dtype() == DType::f64);
    double squares = 0;
    for (const Tensor& p : run.net->parameters()) squares += p.grad().square().sum().item<double>();
    const double before = norm.item<double>();
    CHECK(before > kClipped);
    CHECK(std::abs(std::sqrt(squares) - kClipped * before / (before + 1e-6)) < 1e-15);
  }
}

TEST_CASE("an optimizer of a program that asks for the step's scalars finds its gradients clipped in memory") {
  for (const bool scaled : {false, true}) {
    const GradScalerOptions scale{.init_scale = 256, .enabled = scaled};
    ClippedRun<Looking> looking({.clip_grad_norm = kClipped}, scale);
    ClippedRun<SGD> plain({.clip_grad_norm = kClipped}, scale);
    manual_seed(6);
    const Tensor x = randn({8, 8}), y = randn({8, 8});
    for (int i = 0; i < 3; ++i) {
      looking.step(x, y);
      plain.step(x, y);
      CHECK(looking.opt.seen == doctest::Approx(kClipped).epsilon(1e-3));
      CHECK(looking.state() == plain.state());
    }
  }
}

TEST_CASE("the scaler's norm needs a scale and gradients that are still scaled") {
  scaling::Single one;
  GradScaler scaler({.init_scale = 8});
  CHECK(error_of([&] { scaler.grad_norm(one.opt); }).find("[GradScaler.grad_norm] needs a scale") == 0);
  scaler.scale(ones({}));
  CHECK(scaler.grad_norm(one.opt).item<float>() == 0);
  one.set(3e38);
  CHECK(scaler.grad_norm(one.opt).item<double>() == doctest::Approx(3e38 / 8 * std::sqrt(2.0)).epsilon(1e-6));  // fits
  one.set(8);
  CHECK(scaler.grad_norm(one.opt).item<float>() == float(std::sqrt(2.0)));
  scaler.unscale_(one.opt);
  CHECK(error_of([&] { scaler.grad_norm(one.opt); }).find("[GradScaler.grad_norm] is called after unscale_() or step()") == 0);
}
