// SPDX-License-Identifier: Apache-2.0
// GradScaler by itself: the numbered behaviours of docs/amp.md.
#include "amp/step/grad_scaler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "framework/backend/backend.h"
#include "tests/amp/scaling.h"

using namespace halfstep;
using scaling::bytes;
using scaling::kInf;
using scaling::Plain;
using scaling::Single;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A scaler whose scale is placed on the CPU.
GradScaler started(const GradScalerOptions& options) {
  GradScaler s(options);
  s.scale(ones({}));
  return s;
}

}  // namespace

TEST_CASE("amp 57: scale multiplies every loss and places the scale with the first") {
  GradScaler s({.init_scale = 2});
  const Tensors out = s.scale(Tensors{full({}, 4.0), full({3}, 4.0), full({2}, 4, {.dtype = DType::f64})});
  REQUIRE(out.size() == 3);
  for (const Tensor& t : out) CHECK(t.to_vector<double>() == std::vector<double>(size_t(t.numel()), 8));
  CHECK(out[1].shape() == Shape{3});
  CHECK(out[2].dtype() == DType::f64);
  CHECK(s.scale(full({3}, 4, {.dtype = DType::f16})).dtype() == DType::f16);
  CHECK(s.scale(full({3}, 4, {.dtype = DType::bf16})).dtype() == DType::bf16);

  const Tensor x = ones({}, {.requires_grad = true});
  s.scale(x * 3.0).backward();
  CHECK(x.grad().item<float>() == 6);
  CHECK_THROWS_WITH_AS(s.scale(arange(2)), "[GradScaler.scale] a loss must be floating point, got int64", DTypeError);
}

TEST_CASE("backward(loss, weight) gives the gradients of scale(loss * weight).backward()") {
  for (const bool enabled : {true, false}) {
    for (const double weight : {1.0, 0.375}) {
      for (const Shape& shape : {Shape{}, Shape{1}}) {
        GradScaler a({.init_scale = 1024, .enabled = enabled}), b({.init_scale = 1024, .enabled = enabled});
        const Tensor x = tensor({1.5, -2.25, 3}, {.requires_grad = true}), y = x.detach().clone().set_requires_grad();
        const auto loss = [&](const Tensor& t) { return (t * t).mean().reshape(shape); };
        a.scale(loss(x) * weight).backward();
        b.backward(loss(y), weight);
        CHECK(x.grad().to_vector<float>() == y.grad().to_vector<float>());
      }
    }
  }
  GradScaler scaler;
  CHECK_THROWS_WITH_AS(scaler.backward(arange(1)), "[GradScaler.scale] a loss must be floating point, got int64", DTypeError);
}

TEST_CASE("amp 57: a zero-dimensional float16 loss is scaled in float32, where it does not overflow") {
  GradScaler s;
  const Tensor x = ones({}, {.dtype = DType::f16, .requires_grad = true});
  const Tensor y = s.scale(x);
  CHECK(y.dtype() == DType::f32);
  CHECK(y.item<float>() == 65536);
}

TEST_CASE("amp 58: the update rule, growth 2, backoff 0.25, interval 2") {
  const Tensor scale = full({}, 4.0), tracker = zeros({}, {.dtype = DType::i32}), found = zeros({});
  const auto update = [&] {
    backend_for(Device::cpu)
        .end_step(found.data_ptr<float>(), {.scale = scale.data_ptr<float>(),
                                            .tracker = tracker.data_ptr<int32_t>(),
                                            .rule = {.growth = 2, .backoff = 0.25, .interval = 2}});
    return std::pair<double, int>{scale.item<double>(), tracker.item<int>()};
  };
  CHECK(update() == std::pair<double, int>{4, 1});
  CHECK(update() == std::pair<double, int>{8, 0});
  found.fill_(1);
  CHECK(update() == std::pair<double, int>{2, 0});
  found.fill_(0);
  update();
  found.fill_(2);  // two optimizers overflowed
  CHECK(update() == std::pair<double, int>{0.5, 0});
}

TEST_CASE("amp 58: a growth interval shortened below the tracker takes effect at the next clean update") {
  GradScaler s = started({.init_scale = 4, .growth_interval = 100});
  Single m;
  const auto iterate = [&] {
    m.set(1);
    s.step(m.opt);
    s.update();
  };
  for (int i = 0; i < 5; ++i) iterate();
  CHECK(s.get_growth_tracker() == 5);
  s.set_growth_interval(3);
  iterate();
  CHECK(s.get_scale() == 8);
  CHECK(s.get_growth_tracker() == 0);
}

TEST_CASE("amp 59: defaults, and the constructor's checks") {
  const GradScaler s;
  CHECK(s.is_enabled());
  CHECK(s.get_scale() == 65536);
  CHECK(s.get_growth_factor() == 2);
  CHECK(s.get_backoff_factor() == 0.5);
  CHECK(s.get_growth_interval() == 2000);
  CHECK(s.get_growth_tracker() == 0);
  CHECK_THROWS_WITH_AS(GradScaler({.growth_factor = 1}), "[GradScaler] growth_factor must be > 1, got 1", ValueError);
  CHECK_THROWS_WITH_AS(GradScaler({.backoff_factor = 1}), "[GradScaler] backoff_factor must be in (0, 1), got 1", ValueError);
  CHECK_THROWS_WITH_AS(GradScaler({.init_scale = 0}), "[GradScaler] init_scale must be > 0 and finite, got 0", ValueError);
  CHECK_NOTHROW(GradScaler({.growth_factor = 1, .enabled = false}));
}

TEST_CASE("amp 60: unscale divides every element and finds inf and nan, any strides, any place in the list") {
  const auto gradients = [](int shape) {
    Tensors list;
    for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
      const TensorOptions o{.dtype = dtype};
      if (shape == 0) list.push_back(full({10, 10}, 4, o));
      if (shape == 1) list.push_back(full({10, 10}, 4, o).t());
      if (shape == 2) list.push_back(full({10, 20}, 4, o).slice(1, 0, 20, 2));
    }
    return list;
  };
  const Tensor scale = full({}, 4.0);
  for (int shape : {0, 1, 2}) {
    CAPTURE(shape);
    for (int bad = -1; bad < 4; ++bad) {
      for (double value : {kInf, -kInf, kNan}) {
        const Tensors list = gradients(shape);
        if (bad >= 0) list[size_t(bad)][2][2].fill_(value);
        std::vector<TensorView> views;
        for (const Tensor& t : list) views.push_back(t.view());
        const Tensor checked = zeros({}), found = zeros({});
        backend_for(Device::cpu).check_finite(views, checked.data_ptr<float>());
        backend_for(Device::cpu).unscale(views, scale.data_ptr<float>(), found.data_ptr<float>());
        CHECK(found.item<float>() == (bad >= 0 ? 1 : 0));
        CHECK(checked.item<float>() == (bad >= 0 ? 1 : 0));
        for (size_t i = 0; i < 4; ++i) {
          if (int(i) != bad) CHECK(list[i].to_vector<double>() == std::vector<double>(100, 1));
        }
      }
    }
  }
}

TEST_CASE("amp 61: gradients of several dtypes and one inf give a found_inf of exactly 1") {
  std::vector<Tensor> params;
  for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::f32}) {
    params.push_back(ones({3}, {.dtype = dtype, .requires_grad = true}));
    params.back().set_grad(full({3}, 8, {.dtype = dtype}));
  }
  params[2].grad()[1].fill_(kInf);
  params[3].grad()[0].fill_(kNan);
  SGD opt(params);
  GradScaler s = started({.init_scale = 8});
  s.unscale_(opt);
  const StepOutcome outcome = s.step(opt);
  CHECK(outcome.found_inf().item<float>() == 1);
  CHECK(outcome.overflow());
  CHECK(params[0].grad().to_vector<float>() == std::vector<float>(3, 1));
}

TEST_CASE("amp 62: a scale of 1 leaves every bit of the gradients") {
  const Tensor p = ones({6}, {.requires_grad = true});
  std::vector<float> values{0.1f, -0.0f, std::numeric_limits<float>::denorm_min(), 3e38f, -INFINITY, std::nanf("0x5")};
  p.set_grad(from_vector(values, {6}));
  const std::string before = bytes(p.grad());
  SGD opt({p});
  GradScaler s = started({.init_scale = 1});
  s.unscale_(opt);
  CHECK(bytes(p.grad()) == before);
}

TEST_CASE("amp 64: unscale_ and step refuse float16 gradients and change none") {
  const Tensor p = ones({2}, {.requires_grad = true}), q = ones({2}, {.dtype = DType::f16, .requires_grad = true});
  q.set_label("head.weight");
  p.set_grad(full({2}, 4.0));
  q.set_grad(full({2}, 4, {.dtype = DType::f16}));
  SGD opt({p, q}, {.lr = 0.5});
  GradScaler s = started({.init_scale = 4});
  const char* text =
      "] attempting to unscale FP16 gradients: the gradient of head.weight is float16\n"
      "help: keep parameters in float32 and let autocast lower the ops";
  CHECK_THROWS_WITH_AS(s.unscale_(opt), ("[GradScaler.unscale_" + std::string(text)).c_str(), AmpError);
  CHECK(p.grad().to_vector<float>() == std::vector<float>{4, 4});
  CHECK_THROWS_WITH_AS(s.step(opt), ("[GradScaler.step" + std::string(text)).c_str(), AmpError);
  CHECK(p.to_vector<float>() == std::vector<float>{1, 1});
  CHECK(q.to_vector<float>() == std::vector<float>{1, 1});

  Plain<SGD> plain(std::vector<Tensor>{q});
  CHECK_THROWS_WITH_AS(s.step(plain), ("[GradScaler.step" + std::string(text)).c_str(), AmpError);
}

TEST_CASE("amp 65: calls out of order") {
  Single m;
  m.set(1);
  const std::string unused =
      " needs a scale, but scale() was not used in this iteration\nhelp: call scaler.scale(loss).backward() first";
  GradScaler fresh;
  CHECK_THROWS_WITH_AS(fresh.unscale_(m.opt), ("[GradScaler.unscale_]" + unused).c_str(), AmpError);
  CHECK_THROWS_WITH_AS(fresh.step(m.opt), ("[GradScaler.step]" + unused).c_str(), AmpError);
  CHECK_THROWS_WITH_AS(fresh.update(), ("[GradScaler.update]" + unused).c_str(), AmpError);

  GradScaler s = started({});
  CHECK_THROWS_WITH_AS(s.update(),
                       "[GradScaler.update] no inf checks were recorded prior to update\n"
                       "help: call scaler.step(optimizer) or scaler.unscale_(optimizer) first, with gradients in place",
                       AmpError);
  s.unscale_(m.opt);
  CHECK_THROWS_WITH_AS(s.unscale_(m.opt),
                       "[GradScaler.unscale_] was already called on this optimizer since the last update()\n"
                       "help: call it once per iteration, after the last backward",
                       AmpError);
  s.step(m.opt);
  CHECK_THROWS_WITH_AS(s.unscale_(m.opt),
                       "[GradScaler.unscale_] is called after step() on this optimizer\n"
                       "help: the order is backward, unscale_, step, update",
                       AmpError);
  CHECK_THROWS_WITH_AS(s.step(m.opt),
                       "[GradScaler.step] was already called on this optimizer since the last update()\n"
                       "help: call scaler.update() once, at the end of each iteration",
                       AmpError);
  s.update();
  CHECK_NOTHROW(s.unscale_(m.opt));
}

TEST_CASE("amp 65: every order of four calls is valid exactly when the state machine says so") {
  enum { kReady, kUnscaled, kStepped };
  for (const bool fused : {true, false}) {
    for (int code = 0; code < 81; ++code) {
      const Tensor p = ones({2}, {.requires_grad = true});
      SGD a({p});
      Plain<SGD> b(std::vector<Tensor>{p});
      Optimizer& opt = fused ? static_cast<Optimizer&>(a) : b;
      GradScaler s = started({});
      int stage = kReady;
      for (int i = 0, rest = code; i < 4; ++i, rest /= 3) {
        CAPTURE(code);
        CAPTURE(i);
        p.set_grad(ones({2}));
        bool legal = true, threw = false;
        const int call = rest % 3;
        if (call == 0) legal = stage == kReady, stage = legal ? int(kUnscaled) : stage;
        if (call == 1) legal = stage != kStepped, stage = kStepped;
        if (call == 2) legal = stage != kReady, stage = kReady;
        try {
          if (call == 0) s.unscale_(opt);
          if (call == 1) s.step(opt);
          if (call == 2) s.update();
        } catch (const AmpError&) { threw = true; }
        CHECK(threw == !legal);
      }
    }
  }
}

TEST_CASE("amp 65: an optimizer without gradients") {
  GradScaler s = started({});
  const Tensor p = ones({2}, {.requires_grad = true});
  Plain<SGD> plain(std::vector<Tensor>{p});
  CHECK_THROWS_WITH_AS(s.step(plain),
                       "[GradScaler.step] no inf checks were recorded for this optimizer: no parameter has a gradient\n"
                       "help: call backward() on a loss that depends on its parameters",
                       AmpError);
  SGD fused({p});
  CHECK(s.step(fused).applied());  // nothing to do
  Single other;
  other.set(1);
  s.step(other.opt);
  CHECK_NOTHROW(s.update());  // some optimizer recorded a check
}

TEST_CASE_TEMPLATE("amp 66: inf in one gradient skips and backs off", O, SGD, Plain<SGD>, AdamW, Plain<AdamW>) {
  for (const bool separate : {false, true}) {
    for (double bad : {kInf, -kInf, kNan}) {
      const Tensor p = ones({4}, {.requires_grad = true}), q = ones({2, 2}, {.requires_grad = true});
      O opt(std::vector<Tensor>{p, q});
      GradScaler s = started({.init_scale = 1024, .backoff_factor = 0.25, .growth_interval = 10});
      for (int i = 0; i < 3; ++i) {
        p.set_grad(full({4}, 512.0));
        q.set_grad(full({2, 2}, 256.0));
        CHECK(s.step(opt).applied());
        s.update();
      }
      CHECK(s.get_growth_tracker() == 3);
      const std::string before = bytes(p) + bytes(q) + bytes(opt);
      p.set_grad(full({4}, 512.0));
      q.set_grad(full({2, 2}, 256.0));
      q.grad()[1][0].fill_(bad);
      if (separate) s.unscale_(opt);
      const StepOutcome outcome = s.step(opt);
      CHECK(outcome.overflow());
      CHECK(!outcome.applied());
      s.update();
      CHECK(bytes(p) + bytes(q) + bytes(opt) == before);
      CHECK(s.get_scale() == 256);
      CHECK(s.get_growth_tracker() == 0);
      CHECK(outcome.found_inf().item<float>() == 1);  // still, after update
    }
  }
}

TEST_CASE("amp 66: momentum is left alone by a skipped step") {
  const Tensor p = ones({4}, {.requires_grad = true});
  SGD opt({p}, {.lr = 0.1, .momentum = 0.9});
  GradScaler s = started({.init_scale = 2});
  p.set_grad(ones({4}));
  s.step(opt);
  s.update();
  const std::string before = bytes(p) + bytes(opt);
  p.set_grad(full({4}, kNan));
  CHECK(s.step(opt).overflow());
  CHECK(bytes(p) + bytes(opt) == before);
}
