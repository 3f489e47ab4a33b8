// SPDX-License-Identifier: Apache-2.0
// Gradients that are multiplied by the loss scale, or by another one, where they are taken for others.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "amp/step/train_step.h"
#include "optim/averages.h"
#include "optim/clip.h"
#include "optim/lbfgs.h"
#include "optim/two_pass.h"
#include "tests/amp/scaling.h"

using namespace halfstep;

namespace {

const char* const kOtherScale = "is multiplied by another scale than this scaler's now";
const char* const kMixed = "is a sum of some that a loss scale multiplies and of others that it does not, or another one does";

// A parameter of which each loss has the gradient 2, and its SGD.
struct One {
  Tensor p = ones({2, 2}, {.requires_grad = true});
  SGD opt{{p}, {.lr = 1}};
  Tensor loss() const { return (p * 2.0).sum(); }
  double grad() const { return p.grad().to_vector<double>()[0]; }
};

// A user's optimizer, which reads the gradients itself.
class Own : public Optimizer {
 public:
  explicit Own(const Tensor& p) : Optimizer({{.params = {p}}}, 1) {}
  std::optional<Tensor> step(const Closure&) override {
    const NoGrad off;
    adopt_changes();
    for (const Tensor& p : parameters()) p.sub_(p.grad());
    return {};
  }
  std::string describe() const override { return "Own"; }
};

}  // namespace

TEST_CASE("a step without the scaler refuses gradients that it has scaled, whatever the optimizer is") {
  using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Tensor>&)>;
  const std::vector<Make> makers{
      [](const std::vector<Tensor>& p) { return std::make_unique<SGD>(p, 0.5); },
      [](const std::vector<Tensor>& p) { return std::make_unique<AdamW>(p, AdamWOptions{.lr = 0.5}); },
      [](const std::vector<Tensor>& p) { return std::make_unique<LAMB>(p); },
      [](const std::vector<Tensor>& p) { return std::make_unique<Muon>(p); },
      [](const std::vector<Tensor>& p) { return std::make_unique<Adafactor>(p); },
      [](const std::vector<Tensor>& p) { return std::make_unique<scaling::Plain<Adam>>(p); },
      [](const std::vector<Tensor>& p) { return std::make_unique<Own>(p[0]); },
  };
  for (const Make& make : makers) {
    const Tensor p = ones({2, 2}, {.requires_grad = true}), q = p.detach().clone().set_requires_grad();
    const std::unique_ptr<Optimizer> opt = make({p}), control = make({q});
    const std::string name = opt->describe();
    CAPTURE(name);
    GradScaler scaler({.init_scale = 1024});
    scaler.scale((p * 2.0).sum()).backward();
    const auto before = p.to_vector<float>();
    const char* const says = "[optimizer] these gradients are multiplied by the loss scale, got a step of";
    CHECK_THROWS_WITH_AS(opt->step(), doctest::Contains(says), AmpError);
    CHECK_THROWS_WITH_AS(GradScaler({.enabled = false}).step(*opt), doctest::Contains("call scaler.step(opt)"), AmpError);
    CHECK(p.to_vector<float>() == before);
    scaler.step(*opt);  // what the help says
    scaler.update();
    (q * 2.0).sum().backward();
    control->step();
    CHECK(p.to_vector<float>() == q.to_vector<float>());
    opt->step();  // a plain step after it: the gradients are unscaled
    opt->zero_grad();
    (p * 2.0).sum().backward();
    opt->step();
    scaler.scale((p * 2.0).sum()).backward();
    CHECK_THROWS_AS(opt->step(), AmpError);  // here as a mixed sum
  }
}

TEST_CASE("a closure of LBFGS that scales its loss is refused, and what it clears is not") {
  One one;
  LBFGS opt({one.p}, {.lr = 0.1});
  GradScaler scaler({.init_scale = 1024});
  const auto closure = [&](bool scales) {
    return [&one, &opt, &scaler, scales] {
      opt.zero_grad();
      const Tensor loss = (one.p * one.p).sum();
      (scales ? scaler.scale(loss) : loss).backward();
      return loss;
    };
  };
  CHECK_THROWS_WITH_AS(opt.step(closure(true)), doctest::Contains("multiplied by the loss scale"), AmpError);
  CHECK_NOTHROW(opt.step(closure(false)));
}

TEST_CASE("a schedule, an average and saving look at no gradients: those of a TrainStep stay scaled") {
  Linear net(2, 1);
  MSELoss loss;
  SGD opt(net.parameters(), 0.1);
  GradScaler scaler({.init_scale = 1024});
  TrainStep step(net, loss, opt, scaler, nullptr, {.amp = DType::bf16});
  step(ones({4, 2}), zeros({4, 1}));
  CHECK_THROWS_AS(opt.step(), AmpError);
  StepLR schedule(opt, 1, 0.5);
  schedule.step();
  CHECK(opt.lr() == doctest::Approx(0.05));
  opt.load_state_dict(opt.state_dict());
  WeightAverage average(opt);
  (void)opt.recorded_options();
  step(ones({4, 2}), zeros({4, 1}));
}

TEST_CASE("gradients of several backwards have one scale, or none of them counts") {
  enum { nothing, same_value, moved, moved_back };
  for (const int change : {nothing, same_value, moved, moved_back}) {
    for (const int way : {0, 1, 2}) {
      CAPTURE(change);
      CAPTURE(way);
      One one, other;
      GradScaler scaler({.init_scale = 4});
      const auto scaled = [&](const One& o) {
        if (way == 0) scaler.scale(o.loss()).backward();
        if (way == 1) scaler.backward(o.loss());
        if (way == 2) scaler.backward(o.loss(), ones({}));
      };
      scaled(one);
      if (change != nothing) {  // an update in between, which the other optimizer's step brings about
        scaled(other);
        scaler.step(other.opt);
        scaler.update(change == same_value ? 4.0 : 8.0);
      }
      if (change == moved_back) scaler.update(4.0);
      scaled(one);
      if (change == moved) {
        CHECK_THROWS_WITH_AS(scaler.unscale_(one.opt), doctest::Contains(kMixed), AmpError);
        CHECK_THROWS_WITH_AS(scaler.step(one.opt), doctest::Contains(kMixed), AmpError);
        CHECK_THROWS_WITH_AS(one.opt.step(), doctest::Contains(kMixed), AmpError);
        one.opt.zero_grad();  // what the help says
        scaled(one), scaled(one);
      }
      scaler.unscale_(one.opt);
      CHECK(one.grad() == 4);
      scaler.step(one.opt);
      scaler.update();
    }
  }
}

TEST_CASE("a growth of the scale between backwards is noticed, too, and zeros that zero_ leaves fit any scale") {
  One one, other;
  GradScaler scaler({.init_scale = 4, .growth_interval = 1});
  scaler.scale(one.loss()).backward();
  scaler.scale(other.loss()).backward();
  scaler.step(other.opt);
  scaler.update();
  REQUIRE(scaler.get_scale() == 8);
  CHECK_THROWS_WITH_AS(scaler.step(one.opt), doctest::Contains(kOtherScale), AmpError);
  CHECK_THROWS_WITH_AS(scaler.unscale_(one.opt), doctest::Contains(kOtherScale), AmpError);
  CHECK_THROWS_WITH_AS(scaler.grad_norm(one.opt), doctest::Contains(kOtherScale), AmpError);
  one.p.grad().zero_();
  scaler.scale(one.loss()).backward();
  scaler.unscale_(one.opt);
  CHECK(one.grad() == 2);
}

TEST_CASE("gradients of two scalers are no sum, and each scaler steps its own") {
  One one;
  GradScaler a({.init_scale = 4}), b({.init_scale = 16});
  a.scale(one.loss()).backward();
  CHECK_THROWS_WITH_AS((b.scale(ones({})), b.step(one.opt)), doctest::Contains(kOtherScale), AmpError);
  b.scale(one.loss()).backward();
  for (GradScaler* scaler : {&a, &b}) CHECK_THROWS_WITH_AS(scaler->step(one.opt), doctest::Contains(kMixed), AmpError);
  one.opt.zero_grad();
  b.scale(one.loss()).backward();
  CHECK_THROWS_WITH_AS(a.step(one.opt), doctest::Contains(kOtherScale), AmpError);
  b.step(one.opt);
  CHECK(one.grad() == 2);
  b.update();
  one.opt.zero_grad();
  {
    GradScaler gone({.init_scale = 64});
    gone.scale(one.loss()).backward();
  }
  one.opt.zero_grad();
  a.scale(one.loss()).backward(), a.scale(one.loss()).backward();
  a.unscale_(one.opt);
  CHECK(one.grad() == 4);
}

TEST_CASE("a loss whose scaler is gone still has its gradients, also where threads share the parameters") {
  One one;
  Tensor loss;
  {
    GradScaler scaler({.init_scale = 64});
    loss = scaler.scale(one.loss());
  }
  loss.backward();
  CHECK(one.grad() == 128);
  CHECK_THROWS_AS(one.opt.step(), AmpError);
  one.opt.zero_grad();
  GradScaler scaler({.init_scale = 4});
  scaler.scale(ones({}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) scaler.scale(one.loss()).backward();
    });
  for (std::thread& t : threads) t.join();
  scaler.unscale_(one.opt);
  CHECK(one.grad() == 400);
}

TEST_CASE("gradients that the program divided itself are stepped and clipped as the help says") {
  One one;
  GradScaler scaler({.init_scale = 1024});
  scaler.scale(one.loss()).backward();
  one.p.grad().div_(scaler.get_scale());
  const std::vector<Tensor> params{one.p};
  const char* const remedy = "p.set_grad(p.grad())";
  CHECK_THROWS_WITH_AS(one.opt.step(), doctest::Contains(remedy), AmpError);
  CHECK_THROWS_WITH_AS(clip_grad_norm_(params, 100), doctest::Contains(remedy), AmpError);
  one.p.set_grad(one.p.grad());
  clip_grad_norm_(params, 100);
  one.opt.step();
  CHECK(one.p.to_vector<float>() == std::vector<float>(4, -1));
}

TEST_CASE("gradients of zeros fit any scale and none, wherever gradients are taken") {
  const std::vector<std::function<void(One&, GradScaler&)>> takers{
      [](One& one, GradScaler&) { one.opt.step(); },
      [](One& one, GradScaler&) { clip_grad_value_(std::vector<Tensor>{one.p}, 1); },
      [](One& one, GradScaler&) { CHECK(grad_norm(std::vector<Tensor>{one.p}).item() == 0); },
      [](One& one, GradScaler& scaler) { scaler.step(one.opt); },
      [](One& one, GradScaler& scaler) { scaler.grad_norm(one.opt); },
      [](One& one, GradScaler& scaler) {  // the next backward counts alone
        scaler.scale(one.loss()).backward();
        scaler.unscale_(one.opt);
        CHECK(one.grad() == 2);
      },
  };
  for (size_t i = 0; i < takers.size(); ++i) {
    for (const bool mixed : {false, true}) {
      CAPTURE(i);
      CAPTURE(mixed);
      One one;
      GradScaler scaler({.init_scale = 4});
      scaler.scale(one.loss()).backward();
      if (mixed) one.loss().backward();
      CHECK_THROWS_AS(one.opt.step(), AmpError);
      scaler.update(8);
      one.p.grad().mul_(0);
      takers[i](one, scaler);
    }
  }
}

TEST_CASE("gradients of a scaler that is gone are those of another one") {
  const auto moved_over = [](GradScaler& scaler) { scaler = GradScaler({.init_scale = 16}); };
  One one;
  GradScaler scaler({.init_scale = 4});
  scaler.scale(one.loss()).backward();
  moved_over(scaler);
  scaler.scale(ones({}));
  CHECK_THROWS_WITH_AS(scaler.step(one.opt), doctest::Contains(kOtherScale), AmpError);
  scaler.scale(one.loss()).backward();
  CHECK_THROWS_WITH_AS(scaler.step(one.opt), doctest::Contains(kMixed), AmpError);
  one.opt.zero_grad();
  scaler.scale(one.loss()).backward();
  const GradScaler::StateDict state = scaler.state_dict();
  moved_over(scaler);  // another one of the same scale, as where a run is loaded
  scaler.load_state_dict(state);
  scaler.scale(one.loss()).backward();
  scaler.unscale_(one.opt);
  CHECK(one.grad() == 4);
  // A scale that is not known: its gradient replaces one that was noted.
  one.opt.zero_grad();
  one.loss().backward(GradScaler({.init_scale = 2}).seed(Device::cpu));
  scaler.update(8.0);
  scaler.step(one.opt);
}
