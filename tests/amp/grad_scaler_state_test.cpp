// SPDX-License-Identifier: Apache-2.0
// GradScaler: saved state, limits, and the results that step forwards. Numbers as in grad_scaler_test.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <new>

#include "framework/backend/backend.h"
#include "tests/amp/scaling.h"

using namespace halfstep;
using scaling::bytes;
using scaling::kInf;
using scaling::Plain;
using scaling::Single;

TEST_CASE("amp 75: a loaded state overwrites everything, before and after the first scale()") {
  const GradScaler source({.init_scale = 3, .growth_factor = 4, .backoff_factor = 0.5, .growth_interval = 2});
  const GradScaler::StateDict state = source.state_dict();
  CHECK(state == GradScaler::StateDict{
                     {"scale", 3}, {"growth_factor", 4}, {"backoff_factor", 0.5}, {"growth_interval", 2}, {"_growth_tracker", 0}});
  for (const bool placed : {false, true}) {
    GradScaler s({.init_scale = 6, .growth_factor = 7, .backoff_factor = 0.8, .growth_interval = 5});
    if (placed) {
      Single m;
      m.set(1);
      s.scale(ones({}));
      s.step(m.opt);
      s.update();
      CHECK(s.get_growth_tracker() == 1);
    }
    s.load_state_dict(state);
    CHECK(s.state_dict() == state);
    CHECK(s.scale(ones({})).item<float>() == 3);
    CHECK(s.get_growth_tracker() == 0);
  }
}

TEST_CASE("amp 76: an empty or incomplete state is refused; a disabled scaler has none") {
  GradScaler s;
  CHECK_THROWS_WITH_AS(s.load_state_dict({}),
                       "[GradScaler.load_state_dict] the state is empty: was it saved from a disabled scaler?", ValueError);
  CHECK_THROWS_WITH_AS(s.load_state_dict({{"scale", 2}}), "[GradScaler.load_state_dict] the state needs the key growth_factor",
                       ValueError);
  const GradScaler::StateDict good = s.state_dict();
  const std::vector<std::pair<std::string, double>> wrong{{"scale", -1},          {"scale", 0},          {"scale", std::nan("")},
                                                          {"growth_factor", 0.5}, {"backoff_factor", 2}, {"growth_interval", 0}};
  for (const auto& change : wrong) {
    CAPTURE(change.first);
    GradScaler::StateDict state = good;
    state[change.first] = change.second;
    CHECK_THROWS_AS(s.load_state_dict(state), ValueError);
  }
  CHECK(s.get_scale() == 65536);
  GradScaler off({.enabled = false});
  CHECK(off.state_dict().empty());
  CHECK_NOTHROW(off.load_state_dict({}));
}

TEST_CASE("amp 77: growth does not reach infinity") {
  GradScaler s({.init_scale = 1e38, .growth_factor = 16, .growth_interval = 1});
  Single m;
  s.scale(zeros({}));
  for (int i = 0; i < 3; ++i) {
    m.set(0);
    s.step(m.opt);
    s.update();
    CHECK(s.get_scale() == double(1e38f));
    CHECK(s.get_growth_tracker() == 0);
  }
}

TEST_CASE("the scale makes no move beyond its bounds, and keeps its place where it is set to") {
  GradScaler s({.init_scale = 4, .growth_interval = 1, .min_scale = 2, .max_scale = 8});
  Single m;
  s.scale(zeros({}));
  const auto after = [&](float gradient) {
    m.set(gradient);
    s.step(m.opt);
    s.update();
    return s.get_scale();
  };
  CHECK(after(0) == 8);
  CHECK(after(0) == 8);
  CHECK(after(kInf) == 4);
  CHECK(after(kInf) == 2);
  CHECK(after(kInf) == 2);
  s.update(64.0);
  CHECK(after(0) == 64);
  CHECK(after(kInf) == 32);
  CHECK_THROWS_WITH_AS(GradScaler({.min_scale = 8, .max_scale = 4}),
                       "[GradScaler] 0 <= min_scale <= max_scale must hold, got 8 and 4", ValueError);
  CHECK_THROWS_AS(GradScaler({.min_scale = -1}), ValueError);
}

TEST_CASE_TEMPLATE("amp 78: gradients made infinite after unscale_ are not noticed", O, SGD, Plain<SGD>, Adam, Plain<Adam>) {
  const Tensor p = ones({3}, {.requires_grad = true});
  O opt(std::vector<Tensor>{p});
  GradScaler s;
  s.scale(ones({}));
  p.set_grad(ones({3}));
  s.unscale_(opt);
  p.grad().fill_(kInf);
  CHECK(s.step(opt).applied());
  s.update();
  for (float v : p.to_vector<float>()) CHECK(!std::isfinite(v));
  CHECK(s.get_scale() == 65536);
}

TEST_CASE("amp 80: during a fused step the optimizer sees device scalars, afterwards none, also when it throws") {
  struct Watcher : SGD {
    using SGD::SGD;
    std::optional<Tensor> step(const Closure&) override {
      seen = checked_amp();
      if (fail) throw std::runtime_error("step failed");
      return full({}, 7.0);
    }
    AmpStep seen;
    bool fail = false;
  };
  const Tensor p = ones({1}, {.requires_grad = true});
  p.set_grad(ones({1}));
  Watcher opt(std::vector<Tensor>{p});
  GradScaler s({.init_scale = 16});
  s.scale(ones({}));
  s.step(opt);
  CHECK(opt.seen.found_inf.item<float>() == 0);
  CHECK(opt.seen.grad_scale.item<float>() == 16);
  CHECK(!opt.checked_amp().found_inf.defined());
  CHECK(!opt.checked_amp().grad_scale.defined());
  s.update();
  s.unscale_(opt);
  opt.fail = true;
  CHECK_THROWS_AS(s.step(opt), std::runtime_error);
  CHECK(opt.seen.found_inf.defined());
  CHECK(!opt.seen.grad_scale.defined());  // the gradients were unscaled before
  CHECK(!opt.checked_amp().found_inf.defined());
}

TEST_CASE("amp 81: an overflow on the very first momentum step leaves a clean state") {
  const Tensor p = ones({3}, {.requires_grad = true}), control = ones({3}, {.requires_grad = true});
  const SGDOptions options{.lr = 0.5, .momentum = 0.9, .dampening = 0.5};
  SGD opt({p}, options), plain({control}, options);
  GradScaler s({.init_scale = 4});
  s.scale(ones({}));
  p.set_grad(full({3}, kInf));
  CHECK(s.step(opt).overflow());
  s.update();
  CHECK(opt.state_dict().at("0.momentum_buffer").to_vector<float>() == std::vector<float>(3, 0));
  CHECK(opt.state_dict().at("0.step").item<float>() == 0);
  for (int i = 0; i < 3; ++i) {
    p.set_grad(full({3}, 0.75 * s.get_scale()));
    control.set_grad(full({3}, 0.75));
    CHECK(s.step(opt).applied());
    s.update();
    plain.step();
    CHECK(bytes(p) == bytes(control));
    CHECK(bytes(opt) == bytes(plain));
  }
}

TEST_CASE("amp 84: update(new_scale) needs no check, keeps no alias and leaves the tracker") {
  GradScaler s({.init_scale = 8});
  s.scale(ones({}));
  Single m;
  m.set(1);
  s.step(m.opt);
  s.update();
  s.update(32);
  CHECK(s.get_scale() == 32);
  CHECK(s.get_growth_tracker() == 1);
  const Tensor given = full({1}, 64.0);
  s.update(given);
  given.fill_(1);
  CHECK(s.get_scale() == 64);
  m.set(1);
  s.unscale_(m.opt);
  s.update(4.0);  // drops the records
  CHECK_NOTHROW(s.unscale_(m.opt));
  CHECK_THROWS_WITH_AS(s.update(ones({2})), "[GradScaler.update] the new scale must have one element, got [2]", ValueError);
  CHECK_THROWS_WITH_AS(s.update(ones({1}, {.requires_grad = true})),
                       "[GradScaler.update] the new scale must not require grad\nhelp: pass scale.detach()", ValueError);
  CHECK_THROWS_WITH_AS(s.update(0.0), "[GradScaler.update] the new scale must be > 0 and finite, got 0", ValueError);
  CHECK_THROWS_WITH_AS(s.update(zeros({1})), "[GradScaler.update] the new scale must be > 0 and finite, got 0", ValueError);
  CHECK_THROWS_AS(s.update(full({1}, std::nan(""))), ValueError);
  CHECK(s.get_scale() == 4);
}

TEST_CASE("amp 85: step forwards what the optimizer returns, nothing when skipped, and takes no closure") {
  struct Returning : SGD {
    using SGD::SGD;
    std::optional<Tensor> step(const Closure& closure) override {
      SGD::step(closure);
      return full({}, 7.0);
    }
  };
  const Tensor p = ones({1}, {.requires_grad = true});
  Returning fused(std::vector<Tensor>{p});
  Plain<Returning> plain(std::vector<Tensor>{p});
  GradScaler s;
  s.scale(ones({}));
  for (Optimizer* opt : {static_cast<Optimizer*>(&fused), static_cast<Optimizer*>(&plain)}) {
    p.set_grad(ones({1}));
    const StepOutcome outcome = s.step(*opt);
    REQUIRE(outcome.value().has_value());
    CHECK(outcome.value()->item<float>() == 7);
    s.update();
    p.set_grad(full({1}, kInf));
    CHECK(!s.step(*opt).value().has_value());
    s.update();
  }
  CHECK_THROWS_WITH_AS(s.step(fused, [] { return ones({}); }),
                       "[GradScaler.step] takes no closure while the scaler is enabled\n"
                       "help: an optimizer that evaluates the loss again would use gradients of another scale",
                       AmpError);

  GradScaler off({.enabled = false});
  p.set_grad(ones({1}));
  SGD sgd({p});
  const StepOutcome outcome = off.step(sgd, [] { return full({}, 3.0); });
  CHECK(outcome.applied());
  CHECK(outcome.value()->item<float>() == 3);
}

TEST_CASE("finish is step and update in one, whichever call ends the step") {
  struct Groups : SGD {  // two passes: nothing can be left to one of them
    explicit Groups(const Tensor& a, const Tensor& b) : SGD(std::vector<ParamGroup>{{{a}, {}, {}}, {{b}, {}, {}}}, {.lr = 0.5}) {}
  };
  struct Reads : SGD {  // asks for found_inf before the kernel runs
    using SGD::SGD;
    std::optional<Tensor> step(const Closure& closure) override {
      seen.push_back(checked_amp().found_inf.item<float>());
      return SGD::step(closure);
    }
    std::vector<float> seen;
  };
  struct Keeps : SGD {  // says that it heeds found_inf, and steps by itself
    using SGD::SGD;
    std::optional<Tensor> step(const Closure&) override { return {}; }
  };
  using Make = std::function<std::unique_ptr<Optimizer>(const Tensor&, const Tensor&)>;
  for (const Make& make : {Make([](auto&a, auto&b) {
                             return std::make_unique<SGD>(std::vector<Tensor>{a, b});
                           }),
                           Make([](auto&a, auto&b) {
                             return std::make_unique<Adam>(std::vector<Tensor>{a, b});
                           }),
                           Make([](auto&a, auto&b) {
                             return std::make_unique<Plain<SGD>>(std::vector<Tensor>{a, b});
                           }),
                           Make([](auto&a, auto&b) { return std::make_unique<Groups>(a, b); }), Make([](auto&a, auto&b) {
                             return std::make_unique<Reads>(std::vector<Tensor>{a, b});
                           }),
                           Make([](auto&a, auto&b) {
                             return std::make_unique<Keeps>(std::vector<Tensor>{a, b});
                           })}) {
    for (const bool unscales : {false, true}) {
      std::string states[2];
      for (const bool one : {false, true}) {
        const Tensor a = ones({3}, {.requires_grad = true}), b = full({2}, 2.0, {.requires_grad = true});
        const auto opt = make(a, b);
        GradScaler s({.init_scale = 8, .growth_interval = 2});
        int64_t count = 0;
        const double table[] = {0, 1, 2, 3, 4, 5, 6, 7};
        double rate = 0;
        for (const double g : {1.0, kInf, 2.0, 3.0, 4.0}) {
          s.scale(ones({}));
          a.set_grad(full({3}, 8.0));
          b.set_grad(full({2}, g));
          if (unscales) s.unscale_(*opt);
          math::StepTail tail{.count = &count, .table = table, .rates = &rate, .width = 8, .groups = 1};
          StepOutcome outcome;
          if (one) {
            outcome = s.finish(*opt, tail);
          } else {
            outcome = s.step(*opt);
            s.update();
            backend_for(Device::cpu).end_step(outcome.found_inf().data_ptr<float>(), tail);
          }
          CHECK(outcome.applied() == std::isfinite(g));
          states[one] += bytes(a) + bytes(b) + bytes(*opt) + std::to_string(s.get_scale()) +
                         std::to_string(s.get_growth_tracker()) + std::to_string(count) + std::to_string(rate);
        }
        CHECK(count == 4);
        CHECK(rate == 4);
        if (const auto* reads = dynamic_cast<const Reads*>(opt.get())) CHECK(reads->seen == std::vector<float>{0, 1, 0, 0, 0});
      }
      const bool same = states[0] == states[1];
      CHECK(same);
    }
  }
}

TEST_CASE("finish beside another optimizer's step, and with nothing to step") {
  Single m, other;
  GradScaler s({.init_scale = 4, .growth_interval = 1});
  s.scale(ones({}));
  m.set(kInf);
  other.set(1);
  s.step(m.opt);
  CHECK(s.finish(other.opt).applied());
  CHECK(s.get_scale() == 2);  // for the first one's gradient
  Single empty;
  CHECK_THROWS_WITH_AS(s.finish(empty.opt), doctest::Contains("[GradScaler.update] no inf checks were recorded prior to update"),
                       AmpError);
  GradScaler off({.enabled = false});
  m.set(1);
  CHECK(off.finish(m.opt).applied());
}

TEST_CASE("what is set later is checked as what the constructor gets is") {
  GradScaler s;
  CHECK_THROWS_WITH_AS(s.set_growth_factor(1), "[GradScaler] growth_factor must be > 1, got 1", ValueError);
  CHECK_THROWS_WITH_AS(s.set_backoff_factor(2), "[GradScaler] backoff_factor must be in (0, 1), got 2", ValueError);
  CHECK_THROWS_WITH_AS(s.set_growth_interval(0), "[GradScaler] growth_interval must be >= 1 and below 2^31, got 0", ValueError);
  CHECK((s.get_growth_factor() == 2 && s.get_backoff_factor() == 0.5 && s.get_growth_interval() == 2000));
}

TEST_CASE("an optimizer made where a stepped one was is another one") {
  GradScaler s({.init_scale = 4});
  const Tensor w = ones({1}, {.requires_grad = true});
  alignas(SGD) std::byte place[sizeof(SGD)];
  for (int i = 0; i < 2; ++i) {
    SGD* const opt = new (place) SGD({w}, {.lr = 0.5});
    w.zero_grad();
    s.scale(w.sum()).backward();
    CHECK(s.step(*opt).applied());
    opt->~SGD();
  }
  s.update();
  CHECK(w.item() == 0);
}
