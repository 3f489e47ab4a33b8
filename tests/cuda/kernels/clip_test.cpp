// SPDX-License-Identifier: Apache-2.0
// Norms, clipping and rates of a schedule against the CPU backend.
#include <limits>

#include "device.h"
#include "framework/math/update_rules.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Tensors of every floating dtype, size and layout, some off an aligned address; more than one launch takes.
struct List {
  std::vector<Buffer> host;
  std::vector<std::unique_ptr<OnDevice>> on_device;
  std::vector<TensorView> views, device_views;

  void add(const Buffer& b, int64_t shift) {
    host.push_back(b);
    views.push_back(b);
    on_device.push_back(std::make_unique<OnDevice>(b, shift));
    device_views.push_back(*on_device.back());
  }
};

List mixed() {
  List list;
  unsigned seed = 0;
  for (DType t : kFloating) {
    for (int64_t n : kSizes) list.add(uniform(t, {n}, ++seed), n % 3 == 0 ? 1 : 0);
    list.add(make(t, {0}), 0);
    list.add(uniform(t, {9, 33}, ++seed, -2, 2, Layout::transposed), 0);
    list.add(uniform(t, {5, 257}, ++seed, -2, 2, Layout::sliced), 1);
    list.add(uniform(t, {20000}, ++seed), 0);  // several segments
  }
  for (int64_t n = 1; n <= 300; ++n) list.add(uniform(DType::f16, {n % 100 + 1}, ++seed), 0);  // more than a block has threads
  return list;
}

double norm_of(const std::vector<TensorView>& tensors, double p) {
  const Buffer out = poisoned(DType::f32, {});
  const OnDevice dev_out(out);
  cuda::norm(queue(), tensors, p, dev_out.as<float>());
  dev_out.fetch();
  return out[0];
}

}  // namespace

TEST_CASE("norms of many tensors") {
  const List list = mixed();
  for (double p : {0.0, 1.0, 2.0, 3.0, kInf}) {
    float want = 0;
    cpu().norm(list.views, p, &want);
    const double got = norm_of(list.device_views, p);
    CHECK(got == doctest::Approx(double(want)).epsilon(2e-7));
    CHECK(norm_of(list.device_views, p) == got);
    CHECK(norm_of({}, p) == 0);
  }
}

TEST_CASE("norms of scaled gradients, and whether these are finite, as on the CPU") {
  List list = mixed(), large;
  large.add(make(DType::f32, {2}, {3e38, 3e38}), 0);
  for (const double value : {1024.0, 3.0}) {
    const Buffer scale = make(DType::f32, {}, {value});
    const OnDevice dev_scale(scale);
    const auto check_norm = [&](const List& of, bool scaled, bool bad) {
      const Buffer out = poisoned(DType::f32, {}), found = poisoned(DType::f32, {});
      const OnDevice dev_out(out), dev_found(found);
      float want = 0, want_found = -1;
      cpu().grad_norm(of.views, scaled ? scale.view.as<float>() : nullptr, &want, &want_found);
      cuda::grad_norm(queue(), of.device_views, scaled ? dev_scale.as<float>() : nullptr, dev_out.as<float>(),
                      dev_found.as<float>());
      dev_out.fetch();
      dev_found.fetch();
      CHECK(found[0] == (bad ? 1 : 0));
      CHECK(want_found == found[0]);
      if (std::isfinite(want)) CHECK(out[0] == doctest::Approx(double(want)).epsilon(2e-7));
      if (std::isnan(want)) CHECK(std::isnan(out[0]));
      if (std::isinf(want)) CHECK(out[0] == kInf);
    };
    for (const bool scaled : {true, false}) {
      check_norm(list, scaled, false);
      check_norm(large, scaled, false);  // finite also where its norm is not
      check_norm({}, scaled, false);
      for (const double bad : {kInf, std::nan("")}) {
        List with_bad;
        const Buffer b = uniform(DType::f16, {20000}, 2);
        set(b.view, 19999, bad);
        with_bad.add(b, 0);
        check_norm(with_bad, scaled, true);
      }
    }
  }
  const Buffer out = poisoned(DType::f32, {});
  const OnDevice dev_out(out);
  cuda::grad_norm(queue(), list.device_views, nullptr, dev_out.as<float>(), nullptr);
  dev_out.fetch();
  CHECK(out[0] == norm_of(list.device_views, 2));
}

TEST_CASE("norms take large values, inf and NaN") {
  List large;
  large.add(make(DType::f32, {2}, {3e30, 4e30}), 0);
  CHECK(norm_of(large.device_views, 2) == doctest::Approx(5e30).epsilon(1e-6));
  for (double bad : {kInf, std::nan("")}) {
    for (int64_t shift : {0, 1}) {
      List list;
      list.add(uniform(DType::f16, {33}, 1), 0);
      const Buffer b = uniform(DType::f32, {20000}, 2);
      set(b.view, 19999, bad);
      list.add(b, shift);
      list.add(uniform(DType::f32, {7}, 3), 0);
      for (double p : {1.0, 2.0, 3.0, kInf}) {
        const double got = norm_of(list.device_views, p);
        CHECK((std::isnan(bad) ? std::isnan(got) : got == kInf));
      }
    }
  }
}

TEST_CASE("clip scales down to the norm, never up, and leaves the bits alone otherwise") {
  struct Case {
    double norm, most;
  };
  for (const Case& c : {Case{5, 10}, Case{5, 1}, Case{1e-3, 1e-3}, Case{std::nan(""), 1}, Case{kInf, 1}}) {
    List list = mixed();
    const Buffer norm = make(DType::f32, {}, {c.norm});
    const OnDevice dev_norm(norm);
    cuda::clip(queue(), list.device_views, dev_norm.as<float>(), c.most);
    cpu().clip(list.views, norm.view.as<float>(), c.most);
    for (size_t i = 0; i < list.host.size(); ++i) {
      const std::vector<double> want = list.host[i].values();
      list.on_device[i]->fetch();
      const std::vector<double> got = list.host[i].values();
      bool same = true;
      for (size_t k = 0; k < want.size(); ++k) same = same && (got[k] == want[k] || (std::isnan(got[k]) && std::isnan(want[k])));
      CHECK_MESSAGE(same, "tensor ", i, " norm ", c.norm);
    }
  }
}

TEST_CASE("rates advance with the steps that were applied") {
  const Buffer table = uniform(DType::f64, {40, 7}, 1), rates = poisoned(DType::f64, {40}), count = make(DType::i64, {}, {4});
  const Buffer want = make(DType::f64, {40});
  int64_t want_count = 4;
  const OnDevice dev_table(table), dev_rates(rates), dev_count(count);
  const auto tail = [](int64_t* steps, const TensorView& from, const TensorView& to) {
    return math::StepTail{.count = steps, .table = from.as<const double>(), .rates = to.as<double>(), .width = 7, .groups = 40};
  };
  for (int step = 0; step < 12; ++step) {
    const Buffer flag = make(DType::f32, {}, {step % 3 == 1 ? 1.0 : 0.0});
    const OnDevice dev_flag(flag);
    const bool watched = step != 10;
    cpu().end_step(watched ? flag.view.as<float>() : nullptr, tail(&want_count, table, want));
    cuda::end_step(queue(), watched ? dev_flag.as<float>() : nullptr, tail(dev_count.as<int64_t>(), dev_table, dev_rates));
    dev_rates.fetch();
    dev_count.fetch();
    CHECK(rates.values() == want.values());
    CHECK(count[0] == double(want_count));
  }
  CHECK(want_count == 4 + 9);
}

TEST_CASE("sgd and adam take the learning rate from device memory") {
  for (DType t : kFloating) {
    const DType moments = t == DType::f64 ? DType::f64 : DType::f32;
    for (bool adam : {false, true}) {
      const Buffer rate = make(DType::f64, {}, {0.0625});
      const OnDevice dev_rate(rate);
      Buffer results[2];
      for (bool from_device : {false, true}) {
        const Buffer p = results[from_device] = uniform(t, {257}, 1), g = uniform(t, {257}, 2);
        const Buffer m = uniform(moments, {257}, 3), v = uniform(moments, {257}, 4, 0, 1), steps = make(DType::f32, {}, {3});
        const OnDevice dev_p(p), dev_g(g), dev_m(m), dev_v(v), dev_steps(steps);
        ParamUpdate u{};
        u.param = dev_p;
        u.grad = dev_g;
        u.state[0] = dev_m;
        u.state[1] = dev_v;
        u.step = dev_steps.as<float>();
        StepControl control;
        if (from_device) control.lr = dev_rate.as<double>();
        if (adam) {
          math::AdamRule args;
          args.weight_decay = 0.5;
          args.decoupled = true;
          args.lr = from_device ? 7 : 0.0625;
          cuda::update(queue(), std::span(&u, 1), args, control);
        } else {
          cuda::update(queue(), std::span(&u, 1), math::SgdRule{.lr = from_device ? 7 : 0.0625, .momentum = 0.9}, control);
        }
        dev_p.fetch();
      }
      CHECK(results[0].values() == results[1].values());
    }
  }
}
