// SPDX-License-Identifier: Apache-2.0
// The fused optimizer passes against the formulas of PyTorch in double.
#include <algorithm>

#include "framework/math/update_rules.h"
#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Problem {
  Buffer param, grad, m, v, vmax, shadow;
  float step = 0;

  Problem(DType p, DType g, int64_t n, DType shadow_type = DType::bf16) {
    const DType state = p == DType::f64 ? DType::f64 : DType::f32;
    param = uniform(p, {n}, 1);
    grad = uniform(g, {n}, 2);
    m = uniform(state, {n}, 3);
    v = uniform(state, {n}, 4, 0, 1);
    vmax = uniform(state, {n}, 5, 0, 1);
    shadow = make(shadow_type, {n});
  }
  ParamUpdate update() { return {param, grad, {m, v, vmax}, shadow, &step}; }
  std::string raw() const {
    return param.raw() + grad.raw() + m.raw() + v.raw() + vmax.raw() + shadow.raw() + std::to_string(step);
  }
};

const math::SgdRule kSgd[] = {{.lr = 0.1},
                              {.lr = 0.1, .weight_decay = 0.01},
                              {.lr = 0.1, .momentum = 0.9},
                              {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
                              {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
                              {.lr = 0.1, .momentum = 0.9, .maximize = true}};
const math::AdamRule kAdam[] = {{.lr = 0.01},
                                {.lr = 0.01, .weight_decay = 0.1},
                                {.lr = 0.01, .weight_decay = 0.1, .decoupled = true},
                                {.lr = 0.01, .beta1 = 0.5, .beta2 = 0.7, .eps = 1e-3, .amsgrad = true},
                                {.lr = 0.01, .decoupled = true, .maximize = true}};

}  // namespace

TEST_CASE("sgd over dtypes and settings, first and later steps, with and without unscaling") {
  for (DType p : kFloating) {
    for (DType g : kFloating) {
      for (const math::SgdRule& a : kSgd) {
        for (float scale : {1.0f, 8.0f}) {
          Problem x(p, g, 1500);
          for (int step = 0; step < 2; ++step) {
            const std::vector<double> p0 = x.param.values(), g0 = x.grad.values(), m0 = x.m.values();
            const std::vector<ParamUpdate> list{x.update()};
            cpu().update(list, a, {.grad_scale = &scale});
            CHECK(x.step == float(step + 1));
            bool ok = true;
            for (size_t i = 0; i < p0.size(); ++i) {
              double d = g0[i] / double(scale);
              ok = ok && close(p != DType::f64 && g == DType::f64 ? DType::f32 : g, x.grad[int64_t(i)], d);
              if (a.maximize) d = -d;
              d += a.weight_decay * p0[i];
              if (a.momentum != 0) {
                const double buffer = step == 0 ? d : a.momentum * m0[i] + (1 - a.dampening) * d;
                ok = ok && close(p == DType::f64 ? p : DType::f32, x.m[int64_t(i)], buffer, 4, 1e-6);
                d = a.nesterov ? d + a.momentum * buffer : buffer;
              }
              ok = ok && close(p, x.param[int64_t(i)], p0[i] - a.lr * d, 1.1, p == DType::f64 ? 1e-8 : 1e-6);
              ok = ok && (is_half(p) || x.shadow[int64_t(i)] == double(float(bf16(float(x.param[int64_t(i)])))));
            }
            CHECK_MESSAGE(ok, name(p), " ", name(g), " step ", step);
          }
        }
      }
    }
  }
}

TEST_CASE("adam and adamw over dtypes and settings") {
  for (DType p : kFloating) {
    for (DType g : {DType::f32, DType::f16, DType::f64}) {
      for (const math::AdamRule& a : kAdam) {
        Problem x(p, g, 1100, DType::f16);
        const float scale = 4;
        for (int step = 1; step <= 2; ++step) {
          const std::vector<double> p0 = x.param.values(), g0 = x.grad.values(), m0 = x.m.values(), v0 = x.v.values(),
                                    top0 = x.vmax.values();
          const std::vector<ParamUpdate> list{x.update()};
          cpu().update(list, a, {.grad_scale = &scale});
          CHECK(x.step == float(step));
          const DType state = p == DType::f64 ? p : DType::f32;
          const double slack = p == DType::f64 ? 1e-8 : 1e-6;
          bool ok = true;
          for (size_t i = 0; i < p0.size(); ++i) {
            double d = g0[i] / 4, w = p0[i];
            if (a.maximize) d = -d;
            if (a.decoupled)
              w -= a.lr * a.weight_decay * w;
            else
              d += a.weight_decay * w;
            const double m = a.beta1 * m0[i] + (1 - a.beta1) * d, v = a.beta2 * v0[i] + (1 - a.beta2) * d * d;
            const double second = a.amsgrad ? std::max(top0[i], v) : v;
            w -= a.lr / (1 - std::pow(a.beta1, step)) * m / (std::sqrt(second) / std::sqrt(1 - std::pow(a.beta2, step)) + a.eps);
            ok = ok && close(state, x.m[int64_t(i)], m, 4, slack) && close(state, x.v[int64_t(i)], v, 4, slack);
            ok = ok && close(p, x.param[int64_t(i)], w, 1.1, 2e-6);
            if (a.amsgrad) ok = ok && close(state, x.vmax[int64_t(i)], second, 4, slack);
          }
          CHECK_MESSAGE(ok, name(p), " ", name(g));
        }
      }
    }
  }
}

TEST_CASE("a found inf leaves every byte") {
  for (DType p : kFloating) {
    Problem x(p, DType::f16, 50);
    const std::string before = x.raw();
    float found = 1;
    const float scale = 2;
    const std::vector<ParamUpdate> list{x.update()};
    cpu().update(list, math::SgdRule{.lr = 0.1, .momentum = 0.9}, {.found_inf = &found, .grad_scale = &scale});
    CHECK(x.raw() == before);
    cpu().update(list, math::AdamRule{.amsgrad = true}, {.found_inf = &found, .grad_scale = &scale});
    CHECK(x.raw() == before);
    float none = 0;
    cpu().update(list, math::SgdRule{.lr = 0.1}, {.found_inf = &none});
    CHECK(x.raw() != before);
  }
}

TEST_CASE("gradients are left alone when nothing is written back, or the factor is 1") {
  for (DType g : kFloating) {
    Problem x(DType::f32, g, 2000), y(DType::f32, g, 2000);
    const std::string before = x.grad.raw();
    const float scale = 8, one = 1;
    cpu().update(std::vector<ParamUpdate>{x.update()}, math::SgdRule{.lr = 0.1}, {.grad_scale = &scale, .write_back = false});
    CHECK(x.grad.raw() == before);
    cpu().update(std::vector<ParamUpdate>{y.update()}, math::SgdRule{.lr = 0.1}, {.grad_scale = &scale});
    CHECK(y.grad.raw() != before);
    CHECK(x.param.raw() == y.param.raw());
    Problem z(DType::f32, g, 2000);
    cpu().update(std::vector<ParamUpdate>{z.update()}, math::SgdRule{.lr = 0.1}, {.grad_scale = &one});
    CHECK(z.grad.raw() == before);
  }
}

TEST_CASE("an update that clips is one of gradients that were unscaled and clipped") {
  for (DType p : kFloating) {
    for (const double max_norm : {0.5, 50.0}) {
      const float scale = 8, norm = 2;
      float found = 0;
      const DType g = p == DType::f64 ? DType::f64 : DType::f32;  // not rounded when they are clipped
      Problem x(p, g, 2000), y(p, g, 2000);
      const std::vector<ParamUpdate> list{x.update()}, clipped{y.update()};
      const StepControl control{.grad_scale = &scale, .write_back = false, .grad_norm = &norm, .max_norm = max_norm};
      const std::vector<TensorView> grads{y.grad};
      cpu().unscale(grads, &scale, &found);
      cpu().clip(grads, &norm, max_norm);
      cpu().update(list, math::AdamRule{.lr = 0.1}, control);
      cpu().update(clipped, math::AdamRule{.lr = 0.1}, {});
      CHECK(x.param.raw() == y.param.raw());
      CHECK(x.grad.raw() != y.grad.raw());
    }
  }
}

TEST_CASE("several parameters, empty ones, and no state that is not needed") {
  Problem x(DType::f32, DType::f32, 40000), y(DType::f16, DType::bf16, 3), none(DType::f32, DType::f32, 0);
  ParamUpdate a = x.update(), b = y.update(), c = none.update();
  a.state = b.state = {};
  a.shadow = b.shadow = {};
  cpu().update(std::vector<ParamUpdate>{a, b, c}, math::SgdRule{.lr = 0.5}, {});
  CHECK(x.step == 1);
  CHECK(y.step == 1);
  CHECK(none.step == 1);
  const double w = uniform(DType::f32, {40000}, 1)[39999], g = uniform(DType::f32, {40000}, 2)[39999];
  CHECK(x.param[39999] == doctest::Approx(w - 0.5 * g).epsilon(1e-6));
  cpu().update({}, math::SgdRule{}, {});
}

TEST_CASE("optimizer steps do not depend on the number of threads") {
  same_for_any_threads([&] {
    Problem x(DType::f32, DType::f16, 70001);
    const std::vector<ParamUpdate> list{x.update()};
    cpu().update(list, math::SgdRule{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}, {});
    cpu().update(list, math::AdamRule{.lr = 0.1}, {});
    cpu().update(list, math::LookaheadRule{.k = 3}, {});
    return x.raw();
  });
}

TEST_CASE("a schedule's momentum replaces the rule's, and 0 keeps the buffer") {
  Problem x(DType::f32, DType::f32, 100), y(DType::f32, DType::f32, 100);
  for (Problem* p : {&x, &y}) p->step = 3;
  const double zero = 0, half = 0.5;
  cpu().update(std::vector<ParamUpdate>{x.update()}, math::SgdRule{.lr = 0.1, .momentum = 0.9}, {.momentum = &half});
  cpu().update(std::vector<ParamUpdate>{y.update()}, math::SgdRule{.lr = 0.1, .momentum = 0.5}, {});
  CHECK(x.raw() == y.raw());
  const std::string buffer = x.m.raw();
  cpu().update(std::vector<ParamUpdate>{x.update()}, math::SgdRule{.lr = 0.1, .momentum = 0.9}, {.momentum = &zero});
  CHECK(x.m.raw() == buffer);
}

TEST_CASE("a step that is idle writes nothing but its count") {
  Problem x(DType::f32, DType::f32, 100);
  x.step = 1;
  const std::string param = x.param.raw(), slow = x.m.raw(), shadow = x.shadow.raw();
  cpu().update(std::vector<ParamUpdate>{x.update()}, math::LookaheadRule{.k = 5}, {});
  CHECK(x.param.raw() == param);
  CHECK(x.m.raw() == slow);
  CHECK(x.shadow.raw() == shadow);
  CHECK(x.step == 2);
  cpu().update(std::vector<ParamUpdate>{x.update()}, math::LookaheadRule{.k = 3}, {});
  CHECK(x.param.raw() == x.m.raw());
}
