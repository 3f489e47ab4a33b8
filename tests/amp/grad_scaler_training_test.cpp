// SPDX-License-Identifier: Apache-2.0
// GradScaler in training loops, against loops without one. Numbers as in grad_scaler_test.cpp.
#include <doctest/doctest.h>

#include <functional>

#include "framework/autograd/grad_mode.h"
#include "tests/amp/scaling.h"

using namespace halfstep;
using scaling::bytes;
using scaling::kInf;
using scaling::kQuick;
using scaling::kSkip;
using scaling::Plain;
using scaling::Twins;

namespace {

struct Loop {
  bool autocast = false;
  bool scaler_enabled = true;
  bool restore = false;  // carry the scaler over through its state every iteration
  bool poison = true;
  std::function<void(GradScaler*, Optimizer&, const std::vector<Tensor>&)> before_step = [](GradScaler*, Optimizer&, const auto&) {
  };
};

// Trains the control without a scaler and the other model with one; returns the final scale.
template <class O>
double run(Twins& t, const Loop& loop) {
  const MSELoss loss_fn;
  O control(t.control->parameters(), {.lr = 1}), scaled(t.scaled->parameters(), {.lr = 1});
  GradScalerOptions options = kQuick;
  options.enabled = loop.scaler_enabled;
  GradScaler scaler(options);
  const auto forward = [&](Sequential& m, int i) {
    const Autocast region(Device::cpu, DType::f16, loop.autocast);
    return loss_fn(m(t.data[size_t(i)].first), t.data[size_t(i)].second);
  };
  for (int i = 0; i < 4; ++i) {
    control.zero_grad();
    forward(*t.control, i).backward();
    loop.before_step(nullptr, control, t.control->parameters());
    const bool skips = loop.poison && loop.scaler_enabled && i == kSkip;
    if (!skips) control.step();

    scaled.zero_grad();
    scaler.scale(forward(*t.scaled, i)).backward();
    if (skips) scaling::poison(*t.scaled);
    loop.before_step(&scaler, scaled, t.scaled->parameters());
    CHECK(scaler.step(scaled).applied() == !skips);
    scaler.update();
    if (loop.restore) {
      GradScaler next({.init_scale = 1});
      next.load_state_dict(scaler.state_dict());
      scaler = std::move(next);
    }
  }
  return scaler.get_scale();
}

}  // namespace

TEST_CASE_TEMPLATE("amp 67: four iterations with an overflow equal the control that left it out", O, SGD, Plain<SGD>) {
  Twins plain, cast;
  CHECK(run<O>(plain, {}) == 512);
  CHECK(plain.difference() < 1e-7);
  CHECK(run<O>(cast, {.autocast = true}) == 512);
  CHECK(cast.difference() < 1e-3);
}

TEST_CASE_TEMPLATE("amp 68: a disabled scaler changes nothing", O, SGD, Plain<SGD>) {
  for (const bool autocast : {false, true}) {
    Twins t;
    CHECK(run<O>(t, {.autocast = autocast, .scaler_enabled = false}) == 1);
    CHECK(t.difference() == 0);
  }
  GradScaler off({.enabled = false});
  const Tensor loss = ones({});
  CHECK(off.scale(loss).same(loss));
  Twins t;
  SGD opt(t.control->parameters());
  CHECK_NOTHROW(off.unscale_(opt));
  CHECK_NOTHROW(off.update());
  CHECK(off.get_growth_interval() == 2000);
}

TEST_CASE("amp 69: the same run with the scaler saved and restored every iteration") {
  Twins t;
  CHECK(run<SGD>(t, {.restore = true}) == 512);
  CHECK(t.difference() < 1e-7);
}

TEST_CASE_TEMPLATE("amp 70: clipping, with the bound scaled or the gradients unscaled", O, SGD, Plain<SGD>) {
  const double max_norm = 0.2;  // below the norms that occur
  Twins a, b;
  CHECK(run<O>(a, {.before_step = [&](GradScaler* s, Optimizer&, const std::vector<Tensor>& params) {
                 // By hand: clip_grad_norm_ refuses gradients that are multiplied by the scale.
                 const double bound = max_norm * (s ? s->get_scale() : 1);
                 double norm = 0;
                 for (const Tensor& p : params) norm += p.grad().square().sum().template item<double>();
                 for (const Tensor& p : params) p.grad().mul_(std::min(1.0, bound / std::sqrt(norm)));
               }}) == 512);
  CHECK(a.difference() < 1e-5);
  int clipped = 0;
  CHECK(run<O>(b, {.before_step = [&](GradScaler* s, Optimizer& o, const std::vector<Tensor>& params) {
                 if (s) s->unscale_(o);
                 clipped += clip_grad_norm_(params, max_norm).template item<float>() > max_norm;
               }}) == 512);
  CHECK(b.difference() < 1e-5);
  CHECK(clipped >= 4);
}

TEST_CASE("amp 71: a gradient penalty, by double backward") {
  for (const bool autocast : {false, true}) {
    Twins t;
    const MSELoss loss_fn;
    SGD control(t.control->parameters(), {.lr = 1}), scaled(t.scaled->parameters(), {.lr = 1});
    GradScaler scaler(kQuick);
    for (int i = 0; i < 4; ++i) {
      for (const bool with_scaler : {false, true}) {
        Sequential& m = with_scaler ? *t.scaled : *t.control;
        Optimizer& opt = with_scaler ? scaled : control;
        const std::vector<Tensor> params = m.parameters();
        opt.zero_grad();
        Tensor loss;
        {
          const Autocast region(Device::cpu, DType::f16, autocast);
          loss = loss_fn(m(t.data[size_t(i)].first), t.data[size_t(i)].second);
        }
        const Tensors grads = grad({with_scaler ? scaler.scale(loss) : loss}, params, {}, {.create_graph = true});
        {
          const Autocast region(Device::cpu, DType::f16, autocast);
          Tensor squares = zeros({});
          for (const Tensor& g : grads) squares = squares + (with_scaler ? g * (1 / scaler.get_scale()) : g).square().sum();
          loss = loss + squares.sqrt();
        }
        if (!with_scaler) {
          loss.backward();
          if (i != kSkip) opt.step();
          continue;
        }
        scaler.scale(loss).backward();
        if (i == kSkip) scaling::poison(m);
        CHECK(scaler.step(opt).applied() == (i != kSkip));
        scaler.update();
      }
    }
    CHECK(scaler.get_scale() == 512);
    CHECK(t.difference() < (autocast ? 2e-3 : 1e-5));
  }
}

TEST_CASE("amp 72: accumulation over 2, two steps, two growths") {
  Twins t;
  const MSELoss loss_fn;
  SGD control(t.control->parameters(), {.lr = 1}), scaled(t.scaled->parameters(), {.lr = 1});
  GradScaler scaler(kQuick);
  for (size_t i = 0; i < 4; ++i) {
    (loss_fn((*t.control)(t.data[i].first), t.data[i].second) / 2.0).backward();
    scaler.scale(loss_fn((*t.scaled)(t.data[i].first), t.data[i].second) / 2.0).backward();
    if (i % 2 == 0) continue;
    control.step();
    control.zero_grad();
    scaler.step(scaled);
    scaler.update();
    scaled.zero_grad();
  }
  CHECK(scaler.get_scale() == 512);
  CHECK(t.difference() < 1e-7);
}

TEST_CASE_TEMPLATE("amp 73: two models, losses and optimizers share a scaler", O, SGD, Plain<SGD>) {
  Twins first, second;
  second.scaled->apply([](Module& m) {
    for (const Tensor& p : m.parameters()) {
      const NoGrad off;
      p.mul_(0.5);
    }
  });
  second.control->load_state_dict(second.scaled->state_dict());
  const MSELoss loss_fn;
  O control0(first.control->parameters(), {.lr = 1}), control1(second.control->parameters(), {.lr = 1});
  O scaled0(first.scaled->parameters(), {.lr = 1}), scaled1(second.scaled->parameters(), {.lr = 1});
  GradScaler scaler(kQuick);
  for (int i = 0; i < 4; ++i) {
    const auto& [input, target] = first.data[size_t(i)];
    const auto losses = [&, &x = input, &y = target](Sequential& a, Sequential& b) {
      const Tensor out0 = a(x), out1 = b(x);
      return std::pair{loss_fn(0.3 * out0 + 0.7 * out1, y), loss_fn(0.6 * out0 - 0.4 * out1, y)};
    };
    for (Optimizer* o : std::initializer_list<Optimizer*>{&control0, &control1, &scaled0, &scaled1}) o->zero_grad();
    const auto [a0, a1] = losses(*first.control, *second.control);
    a0.backward({}, true);
    a1.backward();
    control0.step();
    if (i != kSkip) control1.step();

    const auto [b0, b1] = losses(*first.scaled, *second.scaled);
    scaler.scale(b0).backward({}, true);
    scaler.scale(b1).backward();
    if (i == kSkip) scaling::poison(*second.scaled);
    scaler.unscale_(scaled0);
    CHECK(scaler.step(scaled0).applied());
    CHECK(scaler.step(scaled1).applied() == (i != kSkip));
    scaler.update();
  }
  CHECK(scaler.get_scale() == 512);
  CHECK(first.difference() < 1e-6);
  CHECK(second.difference() < 1e-6);
}

TEST_CASE("amp 74: every optimizer has its own found_inf, on its device; one overflow among them backs off") {
  for (int bad = 0; bad < 3; ++bad) {  // whichever comes first in the scaler's records
    scaling::Single all[3];
    GradScaler scaler({.init_scale = 8});
    scaler.scale(ones({}));
    std::vector<StepOutcome> outcomes;
    for (int i = 0; i < 3; ++i) {
      all[i].set(i == bad ? kInf : 1);
      outcomes.push_back(scaler.step(all[i].opt));
    }
    scaler.update();
    for (int i = 0; i < 3; ++i) {
      CHECK(outcomes[size_t(i)].applied() == (i != bad));
      CHECK(outcomes[size_t(i)].found_inf().device() == Device::cpu);
    }
    CHECK(!outcomes[0].found_inf().shares_memory_with(outcomes[1].found_inf()));
    CHECK(scaler.get_scale() == 4);
    CHECK(scaler.get_growth_tracker() == 0);
  }
}

TEST_CASE("amp 79: the fused path equals the plain one bit for bit: losses, gradients, parameters, state") {
  const std::vector<std::function<std::unique_ptr<Optimizer>(bool, std::vector<Tensor>)>> makers{
      [](bool fused, std::vector<Tensor> p) -> std::unique_ptr<Optimizer> {
        const SGDOptions o{.lr = 0.2, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
        if (fused) return std::make_unique<SGD>(std::move(p), o);
        return std::make_unique<Plain<SGD>>(std::move(p), o);
      },
      [](bool fused, std::vector<Tensor> p) -> std::unique_ptr<Optimizer> {
        if (fused) return std::make_unique<Adam>(std::move(p), AdamOptions{.lr = 0.05});
        return std::make_unique<Plain<Adam>>(std::move(p), AdamOptions{.lr = 0.05});
      },
      [](bool fused, std::vector<Tensor> p) -> std::unique_ptr<Optimizer> {
        const AdamWOptions o{.lr = 0.05, .weight_decay = 0.2, .amsgrad = true};
        if (fused) return std::make_unique<AdamW>(std::move(p), o);
        return std::make_unique<Plain<AdamW>>(std::move(p), o);
      }};
  for (size_t which = 0; which < makers.size(); ++which) {
    for (const bool separate : {false, true}) {
      CAPTURE(which);
      CAPTURE(separate);
      Twins t;
      const MSELoss loss_fn;
      const auto fused = makers[which](true, t.scaled->parameters()), plain = makers[which](false, t.control->parameters());
      GradScaler a(kQuick), b(kQuick);
      for (int i = 0; i < 4; ++i) {
        const auto iterate = [&](GradScaler& s, Optimizer& opt, Sequential& m) {
          opt.zero_grad();
          Tensor loss;
          {
            const Autocast region(Device::cpu, DType::f16);
            loss = loss_fn(m(t.data[size_t(i)].first), t.data[size_t(i)].second);
          }
          s.scale(loss).backward();
          if (i == kSkip) scaling::poison(m);
          if (separate) s.unscale_(opt);
          CHECK(s.step(opt).applied() == (i != kSkip));
          s.update();
          return loss.item<float>();
        };
        CHECK(iterate(a, *fused, *t.scaled) == iterate(b, *plain, *t.control));
        CHECK(bytes(*t.scaled) == bytes(*t.control));
        if (i != kSkip) {
          for (size_t k = 0; k < 4; ++k) CHECK(bytes(t.scaled->parameters()[k].grad()) == bytes(t.control->parameters()[k].grad()));
        }
        if (i != kSkip) CHECK(bytes(*fused) == bytes(*plain));
      }
      CHECK(a.get_scale() == 512);
      CHECK(b.get_scale() == 512);
    }
  }
}
