// SPDX-License-Identifier: Apache-2.0
// A scaler whose scale is fixed at 1: it skips steps whose gradients are not finite, also in float32 and bfloat16.
#include <doctest/doctest.h>

#include "amp/step/run_state.h"
#include "amp/step/train_step.h"
#include "optim/two_pass.h"
#include "tests/amp/scaling.h"
#include "tests/support/errors.h"

using namespace halfstep;
using scaling::bytes;
using scaling::kInf;
using testing::error_of;

namespace {

constexpr GradScalerOptions kGuard{.init_scale = 1, .fixed = true};

struct GuardedRun {
  std::shared_ptr<Sequential> net = (manual_seed(23), scaling::model());
  MSELoss loss;
  Adam opt{net->parameters(), {.lr = 0.01}};
  GradScaler scaler;
  TrainStep step;
  explicit GuardedRun(const TrainStepOptions& options, const GradScalerOptions& guard = kGuard)
      : scaler(guard), step(*net, loss, opt, scaler, nullptr, options) {}
};

}  // namespace

TEST_CASE("a guard skips a step with an inf gradient in float32 and in bfloat16, and changes nothing else") {
  for (const std::optional<DType> amp : {std::optional<DType>(), std::optional(DType::bf16)}) {
    for (const double clip : {0.0, 1.0}) {
      CAPTURE(amp.has_value());
      CAPTURE(clip);
      GuardedRun guarded({.amp = amp, .clip_grad_norm = clip}), plain({.amp = amp, .clip_grad_norm = clip}, {.enabled = false});
      const Tensor x = randn({4, 8}), y = randn({4, 8}), bad = full({4, 8}, kInf);
      const auto both = [&](const Tensor& target) {
        const StepResult a = guarded.step(x, target), b = plain.step(x, target);
        CHECK(bytes(a.loss) == bytes(b.loss));
        return a.outcome.applied();
      };
      for (int i = 0; i < 2; ++i) CHECK(both(y));
      CHECK(bytes(*guarded.net) == bytes(*plain.net));
      const std::string weights = bytes(*guarded.net), moments = bytes(guarded.opt);
      const StepResult skipped = guarded.step(x, bad);
      CHECK(skipped.stepped);
      CHECK(!skipped.outcome.applied());
      CHECK(bytes(*guarded.net) == weights);
      CHECK(bytes(guarded.opt) == moments);
      CHECK(guarded.scaler.get_scale() == 1);
      CHECK(both(y));
      CHECK(bytes(*guarded.net) == bytes(*plain.net));
      CHECK(bytes(guarded.opt) == bytes(plain.opt));
    }
  }
}

TEST_CASE_TEMPLATE("a guard with optimizers of one pass, of two, and with steps of their own", O, SGD, AdamW, LAMB, Muon, Adafactor,
                   scaling::Plain<SGD>) {
  const auto steps = [](const GradScalerOptions& options, bool overflow) {
    manual_seed(5);
    const auto net = scaling::model();
    O opt(net->parameters(), {.lr = 0.01});
    GradScaler scaler(options);
    const Tensor x = randn({4, 8});
    for (int i = 0; i < 3; ++i) {
      opt.zero_grad();
      scaler.scale((*net)(x).square().mean()).backward();
      scaler.step(opt);
      scaler.update();
    }
    if (!overflow) return bytes(*net) + bytes(opt);
    net->parameters()[1].grad()[0].fill_(kInf);
    CHECK(!scaler.finish(opt).applied());
    return bytes(*net) + bytes(opt);
  };
  const std::string plain = steps({.enabled = false}, false);
  CHECK(steps(kGuard, false) == plain);
  CHECK(steps(kGuard, true) == plain);
}

TEST_CASE("a fixed scale does not move, neither up nor down, and is no state") {
  GradScaler scaler({.init_scale = 8, .growth_interval = 1, .fixed = true});
  CHECK(scaler.is_fixed());
  CHECK(!GradScaler({.enabled = false, .fixed = true}).is_fixed());
  scaling::Single one;
  for (const double g : {1.0, 2.0, kInf, 3.0}) {
    scaler.scale(ones({}));
    one.set(g * 8);
    const float before = one.p[0].item<float>();
    const StepOutcome outcome = scaler.step(one.opt);
    CHECK(outcome.applied() == std::isfinite(g));
    CHECK(one.p[0].item<float>() == (std::isfinite(g) ? before - float(g) : before));
    scaler.update();
    CHECK(scaler.get_scale() == 8);
  }
  CHECK(scaler.state_dict().empty());
  GradScaler moving({.init_scale = 4});
  scaler.load_state_dict(moving.state_dict());
  CHECK(scaler.get_scale() == 8);
  CHECK(error_of([&] { scaler.update(2.0); }) == "[GradScaler.update] the scale is fixed\nhelp: leave out .fixed in the options");
  CHECK(error_of([&] { scaler.update(full({}, 2.0)); }).find("the scale is fixed") != std::string::npos);
}

TEST_CASE("a run with a guard takes the state of one without, and the other way round") {
  GuardedRun guarded({}), plain({}, {.enabled = false}), scaled({}, {.init_scale = 256});
  const Tensor x = randn({4, 8}), y = randn({4, 8});
  for (GuardedRun* from : {&guarded, &plain, &scaled}) {
    from->step(x, y);
    const CheckpointContents state = pack({*from->net, &from->opt, &from->scaler});
    for (GuardedRun* to : {&guarded, &plain, &scaled}) {
      unpack(state, {*to->net, &to->opt, &to->scaler});
      CHECK(bytes(*to->net) == bytes(*from->net));
    }
  }
  CHECK(guarded.scaler.get_scale() == 1);
  CHECK(scaled.scaler.get_scale() == 256);
}
