// SPDX-License-Identifier: Apache-2.0
// Schedules whose arguments are given by name are those with the same arguments by position, and what is outside the domain of an
// option is refused as its list says.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "framework/ops/ops.h"
#include "optim/optimizers.h"
#include "optim/schedule.h"
#include "optim/schedule_parts.h"
#include "tests/support/damaged_options.h"
#include "tests/support/errors.h"

using namespace halfstep;
using halfstep::testing::refuses;

namespace {

void same(const Schedule& named, const Schedule& other) {
  CHECK(named.describe() == other.describe());
  for (int64_t count = 0; count < 30; ++count) CHECK(named.rate(0.1, count) == other.rate(0.1, count));
}

template <class S>
constexpr bool kTakesGammaAlone = requires(SGD& o) {
  S(o, {.gamma = 0.5});
};
template <class S>
constexpr bool kTakesEtaAlone = requires(SGD& o) {
  S(o, {.eta_min = 0.5});
};
template <class S>
constexpr bool kTakesFraction = requires(SGD& o) {
  S(o, {.step_size = 2.5});
};

}  // namespace

TEST_CASE("a required argument of a schedule that is left out does not compile") {
  CHECK(kTakesGammaAlone<ExponentialLR>);
  CHECK(!kTakesGammaAlone<StepLR>);
  CHECK(!kTakesGammaAlone<MultiStepLR>);
  CHECK(!kTakesEtaAlone<CosineAnnealingLR>);
  CHECK(!kTakesEtaAlone<CosineAnnealingWarmRestarts>);
  CHECK(!kTakesFraction<StepLR>);
}

TEST_CASE("arguments of schedules by name") {
  SGD o({ones({2}).set_requires_grad()}, {.lr = 0.1, .momentum = 0.9});
  same(StepLR(o, {.step_size = 3}), StepLR(o, 3));
  same(StepLR(o, {.step_size = 3, .gamma = 0.5}), StepLR(o, 3, 0.5));
  same(MultiStepLR(o, {.milestones = {3, 8}, .gamma = 0.5}), MultiStepLR(o, {3, 8}, 0.5));
  same(MultiStepLR(o, {.milestones = {3}}), MultiStepLR(o, std::vector<int64_t>{3}));
  const std::vector<int64_t> some{4, 2};
  same(MultiStepLR(o, {.milestones = some}), MultiStepLR(o, some));
  same(ExponentialLR(o, {.gamma = 0.9}), ExponentialLR(o, 0.9));
  same(PolynomialLR(o, {.total_iters = 7, .power = 2}), PolynomialLR(o, 7, 2));
  same(LinearLR(o, {.total_iters = 7}), LinearLR(o, 1.0 / 3, 1, 7));
  same(LinearLR(o, {.start_factor = 0.5, .end_factor = 0.25}), LinearLR(o, 0.5, 0.25));
  same(ConstantLR(o, {.factor = 0.5, .total_iters = 7}), ConstantLR(o, 0.5, 7));
  const auto half = [](int64_t t) { return t ? 0.5 : 1.0; };
  same(LambdaLR(o, {.lr_lambda = half}), LambdaLR(o, half));
  same(MultiplicativeLR(o, {.lr_lambda = half}), MultiplicativeLR(o, half));
  same(CosineAnnealingLR(o, {.T_max = 10, .eta_min = 0.01}), CosineAnnealingLR(o, 10, 0.01));
  same(CosineAnnealingLR(o, {.T_max = 10, .warmup_steps = 3}), CosineAnnealingLR(o, 10, 0, 3));
  same(CosineAnnealingWarmRestarts(o, {.T_0 = 5, .T_mult = 2, .eta_min = 0.01}), CosineAnnealingWarmRestarts(o, 5, 2, 0.01));
  same(OneCycleLR(o, {.max_lr = 1, .epochs = 6, .steps_per_epoch = 5}), OneCycleLR(o, {.max_lr = 1, .total_steps = 30}));
  const auto warm = std::make_shared<ConstantLR>(o, 0.1, 4);
  const auto then = std::make_shared<ExponentialLR>(o, 0.9);
  same(SequentialLR(o, {.schedulers = {warm, then}, .milestones = {4}}), SequentialLR(o, {warm, then}, {4}));
  refuses<ValueError>("[OneCycleLR] needs total_steps, or epochs and steps_per_epoch", [&] { OneCycleLR(o, {.max_lr = 1}); });
  refuses<ValueError>("[OneCycleLR] needs total_steps, or epochs and steps_per_epoch",
                      [&] { OneCycleLR(o, {.max_lr = 1, .epochs = 3}); });
  refuses<ValueError>("[OneCycleLR] epochs must be >= 1, got -1",
                      [&] { OneCycleLR(o, {.max_lr = 1, .epochs = -1, .steps_per_epoch = 5}); });
  refuses<ValueError>("[StepLR] step_size must be >= 1, got 0", [&] { StepLR(o, {.step_size = 0}); });
}

TEST_CASE("every option of every schedule refuses what is outside its domain") {
  SGD o({ones({2}).set_requires_grad()}, {.lr = 0.1, .momentum = 0.9});
  int tried = 0;
  const auto add = [&]<class S>(const S* /*type*/, const typename S::Options& usual) {
    tried += testing::check_damaged(S::kName, usual, [&](const auto& options) { S(o, options); });
  };
  add((StepLR*)nullptr, {.step_size = 3});
  add((MultiStepLR*)nullptr, {.milestones = {3}});
  add((ExponentialLR*)nullptr, {.gamma = 0.9});
  add((PolynomialLR*)nullptr, {});
  add((LinearLR*)nullptr, {});
  add((ConstantLR*)nullptr, {});
  add((NoamLR*)nullptr, {.d_model = 8, .warmup_steps = 4});
  add((InverseSqrtLR*)nullptr, {.warmup_steps = 4});
  add((WSDLR*)nullptr, {});
  add((CosineAnnealingLR*)nullptr, {.T_max = 9});
  add((CosineAnnealingWarmRestarts*)nullptr, {.T_0 = 9});
  add((OneCycleLR*)nullptr, {.max_lr = 1, .total_steps = 9});
  add((CyclicLR*)nullptr, {.base_lr = 0.1, .max_lr = 1});
  add((ReduceLROnPlateau*)nullptr, {});
  CHECK(tried > 60);
}
