// SPDX-License-Identifier: Apache-2.0
// Finite check, unscaling, optimizers and the scale's update against the CPU backend, bit for bit.
#include <deque>
#include <limits>

#include "device.h"
#include "framework/math/update_rules.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const int64_t kTensors[] = {1, 31, 33, 257, 0, 1025, 9001};  // up to several blocks' chunks

Buffer scalar(double value) { return make(DType::f32, {}, {value}); }

// One optimizer problem: host buffers twice (for the CPU and as the device's source and result).
struct Problem {
  std::deque<Buffer> cpu_buffers, device_buffers;
  std::deque<OnDevice> on_device;
  std::vector<ParamUpdate> cpu_params, device_params;

  TensorView add(TensorView& cpu_view, DType t, int64_t n, unsigned seed, double lo, double hi, int64_t shift = 0) {
    for (auto* to : {&cpu_buffers, &device_buffers}) to->push_back(uniform(t, {n}, seed, lo, hi));
    cpu_view = cpu_buffers.back().view;
    return on_device.emplace_back(device_buffers.back().view, shift).view;
  }

  // One parameter of n elements; `shift` moves all of its memory but the 16-bit copy's.
  void add(DType param, DType grad, DType shadow, bool amsgrad, double steps, int64_t n, int64_t shift) {
    const DType moments = param == DType::f64 ? DType::f64 : DType::f32;
    unsigned seed = unsigned(cpu_buffers.size());
    ParamUpdate c{}, d{};
    d.param = add(c.param, param, n, ++seed, -1, 1, shift);
    d.grad = add(c.grad, grad, n, ++seed, -64, 64, shift);
    d.state[0] = add(c.state[0], moments, n, ++seed, -1, 1, shift);
    d.state[1] = add(c.state[1], moments, n, ++seed, 0, 1, shift);
    if (amsgrad) d.state[2] = add(c.state[2], moments, n, ++seed, 0, 1, shift);
    if (is_half(shadow)) d.shadow = add(c.shadow, shadow, n, ++seed, -1, 1);
    TensorView cpu_step;
    d.step = add(cpu_step, DType::f32, 1, 0, steps, steps).as<float>();
    c.step = cpu_step.as<float>();
    TensorView cpu_number;
    d.number = add(cpu_number, DType::f32, 1, 0, 0.75, 0.75).as<float>();
    c.number = cpu_number.as<float>();
    cpu_params.push_back(c);
    device_params.push_back(d);
  }

  Problem() = default;
  Problem(DType param, DType grad, DType shadow, bool amsgrad, double steps) {
    for (int64_t n : kTensors) add(param, grad, shadow, amsgrad, steps, n, 0);
    add(param, grad, shadow, amsgrad, steps, 70, 1);
    add(param, grad, shadow, amsgrad, steps, 70, 4);  // eight bytes off for 16-bit ones
  }
  void compare(const char* what, double ulps = 2) {
    for (size_t i = 0; i < on_device.size(); ++i) {
      on_device[i].fetch();
      check_close(device_buffers[i], cpu_buffers[i], ulps, ulps * 1e-7, what);
    }
  }
};

}  // namespace

TEST_CASE("check_finite sets the flag for inf and NaN anywhere, and never clears it") {
  for (DType t : kFloating) {
    for (int64_t n : kTensors) {
      for (int64_t shift : {0, 1}) {
        for (double bad : {0.0, kInfinity, -kInfinity, std::nan("")}) {
          const Buffer x = uniform(t, {n}, 1), other = uniform(DType::f16, {40}, 2), flag = scalar(0);
          if (n == 0) continue;
          if (bad != 0) set(x.view, n - 1, bad);
          if (bad != 0 && n > 31) set(other.view, 0, bad);  // two blocks raise the flag
          const OnDevice dev_x(x, shift), dev_other(other), dev_flag(flag);
          const TensorView list[] = {dev_other, dev_x};
          cuda::check_finite(queue(), list, dev_flag.as<float>());
          dev_flag.fetch();
          CHECK(flag[0] == (bad != 0 ? 1 : 0));
        }
      }
    }
  }
  const Buffer x = uniform(DType::f32, {40}, 1), flag = scalar(1);
  const OnDevice dev_x(x), dev_flag(flag);
  cuda::check_finite(queue(), std::span(&dev_x.view, 1), dev_flag.as<float>());
  dev_flag.fetch();
  CHECK(flag[0] == 1);
}

TEST_CASE("unscale multiplies by the inverse scale, dense and strided") {
  for (DType t : kFloating) {
    for (Layout layout : {Layout::dense, Layout::transposed, Layout::sliced}) {
      for (bool bad : {false, true}) {
        const Buffer x = uniform(t, {9, 33}, 1, -4, 4, layout), y = uniform(t, {9, 33}, 1, -4, 4, layout);
        const Buffer flag = scalar(0), want_flag = scalar(0), scale = scalar(1024);
        if (bad) set(x.view, 5, kInfinity), set(y.view, 5, kInfinity);
        cpu().unscale(std::span(&x.view, 1), scale.view.as<float>(), want_flag.view.as<float>());
        const OnDevice dev_y(y), dev_flag(flag), dev_scale(scale);
        cuda::unscale(queue(), std::span(&dev_y.view, 1), dev_scale.as<float>(), dev_flag.as<float>());
        dev_y.fetch();
        dev_flag.fetch();
        CHECK(y.values() == x.values());
        CHECK(flag[0] == want_flag[0]);
      }
    }
  }
}

TEST_CASE("sgd and adam: masters, 16-bit copies, unscaling and clipping on the way, skipped steps") {
  struct Types {
    DType param, grad, shadow;
  };
  for (const Types& t : {Types{DType::f32, DType::f32, DType::f32}, Types{DType::f32, DType::f16, DType::f16},
                         Types{DType::f32, DType::bf16, DType::bf16}, Types{DType::f32, DType::f32, DType::bf16},
                         Types{DType::f16, DType::f16, DType::f32}, Types{DType::f32, DType::f64, DType::f32},
                         Types{DType::f64, DType::f64, DType::f32}}) {
    for (double found : {0.0, 1.0}) {
      for (double norm : {0.0, 5.0}) {  // 0: not clipped
        for (bool write_back : {false, true}) {
          const Buffer flag = scalar(found), scale = scalar(64), whole = scalar(norm);
          const OnDevice dev_flag(flag), dev_scale(scale), dev_whole(whole);
          StepControl on_cpu{flag.view.as<float>(), scale.view.as<float>(), write_back};
          StepControl on_device{dev_flag.as<float>(), dev_scale.as<float>(), write_back};
          if (norm > 0) on_cpu.grad_norm = whole.view.as<float>(), on_device.grad_norm = dev_whole.as<float>();
          on_cpu.max_norm = on_device.max_norm = 1;
          Problem s(t.param, t.grad, t.shadow, false, write_back ? 0 : 3);
          const math::SgdRule sgd{0.1, 0.9, 0.1, 0.01, write_back, false};
          cpu().update(s.cpu_params, sgd, on_cpu);
          cuda::update(queue(), s.device_params, sgd, on_device);
          s.compare("sgd");
          Problem a(t.param, t.grad, t.shadow, write_back, 3);
          math::AdamRule adam;
          adam.weight_decay = 0.01;
          adam.decoupled = write_back;
          adam.amsgrad = write_back;
          cpu().update(a.cpu_params, adam, on_cpu);
          cuda::update(queue(), a.device_params, adam, on_device);
          a.compare("adam");
        }
      }
    }
  }
}

TEST_CASE("every rule gives what it gives on the CPU, packed and not, at a rate and a momentum on the device") {
  const UpdateRule rules[] = {
      math::SgdRule{.momentum = 0.5},
      math::NadamRule{.weight_decay = 0.1},
      math::NadamRule{.weight_decay = 0.1, .decoupled = true, .maximize = true},
      math::RadamRule{.weight_decay = 0.1},
      math::RadamRule{.beta2 = 0.5, .decoupled = true, .maximize = true},
      math::AdamaxRule{.weight_decay = 0.1, .maximize = true},
      math::LionRule{.weight_decay = 0.1},
      math::AdemamixRule{.weight_decay = 0.1, .alpha_warmup = 10, .beta3_warmup = 8},
      math::RmspropRule{.eps = 20},
      math::RmspropRule{.eps = 20, .momentum = 0.5, .with_momentum = true},
      math::RmspropRule{.eps = 20, .momentum = 0.5, .centered = true, .with_momentum = true, .maximize = true},
      math::AdagradRule{.lr_decay = 0.1, .weight_decay = 0.1, .initial_accumulator_value = 2, .eps = 1e-2},
      math::AdadeltaRule{.eps = 20},
      math::AsgdRule{.lambd = 0.1, .t0 = 2, .weight_decay = 0.1},
      math::RpropRule{},
      math::LambRule{.weight_decay = 0.1},
      math::MuonRule{},
      math::MuonRule{.nesterov = false, .maximize = true},
      math::ApplyRule{.weight_decay = 0.1},
      math::ApplyRule{.weight_decay = 0.1, .rate = math::ApplyRule::Rate::number},
      math::ApplyRule{.rate = math::ApplyRule::Rate::lr_times_number},
      math::AverageRule{},
      math::AverageRule{.equal = true, .start = 1, .every = 2},
      math::AverageRule{.start = 9},
      math::LookaheadRule{.k = 3},
      math::LookaheadRule{.k = 4},
  };
  const Buffer rate = make(DType::f64, {}, {0.03}), momentum = make(DType::f64, {}, {0.25});
  const OnDevice dev_rate(rate), dev_momentum(momentum);
  StepControl on_cpu{}, on_device{};
  on_cpu.lr = rate.view.as<double>(), on_cpu.momentum = momentum.view.as<double>();
  on_device.lr = dev_rate.as<double>(), on_device.momentum = dev_momentum.as<double>();
  for (const UpdateRule& rule : rules) {
    const char* const name = rule.visit([](const auto& r) { return r.kName; });
    for (const double steps : {0.0, 3.0}) {
      CAPTURE(rule.index());
      CAPTURE(steps);
      Problem p(DType::f32, DType::f32, DType::bf16, true, steps), q(DType::f16, DType::bf16, DType::f32, true, steps),
          wide(DType::f64, DType::f64, DType::f32, true, steps);
      for (Problem* problem : {&p, &q, &wide}) {
        cpu().update(problem->cpu_params, rule, on_cpu);
        cuda::update(queue(), problem->device_params, rule, on_device);
        problem->compare(name, 16);  // compilers join products and sums in ways of their own
      }
    }
  }
}

TEST_CASE("sgd and adam over more tensors than one launch takes, of several dtypes, at a rate on the device") {
  Problem s, a;
  for (int k = 0; k < 230; ++k) {
    const DType grad = kStored[k % 3], shadow = k % 2 ? DType::f16 : DType::bf16;
    const DType param = k % 23 == 0 ? DType::f64 : k % 29 == 0 ? DType::bf16 : DType::f32;
    for (Problem* p : {&s, &a}) p->add(param, grad, param == DType::f32 ? shadow : DType::f32, false, k % 5, k % 7, k % 11 == 0);
  }
  const Buffer rate = make(DType::f64, {}, {0.03});
  const OnDevice dev_rate(rate);
  StepControl on_cpu{}, on_device{};
  on_cpu.lr = rate.view.as<double>();
  on_device.lr = dev_rate.as<double>();
  const math::SgdRule sgd{0.5, 0.9, 0, 0, false, true};
  cpu().update(s.cpu_params, sgd, on_cpu);
  cuda::update(queue(), s.device_params, sgd, on_device);
  s.compare("sgd");
  const math::AdamRule adam{0.5};
  cpu().update(a.cpu_params, adam, on_cpu);
  cuda::update(queue(), a.device_params, adam, on_device);
  a.compare("adam");
}

TEST_CASE("a step that checks its gradients itself, counts and ends: as the check, the step and the end one by one") {
  struct Case {
    int tensors;  // up to 96 go in one launch
    int64_t n;    // elements of each
    DType param, grad;
  };
  for (const Case& c :
       {Case{3, 9001, DType::f32, DType::f16}, Case{1, 70000, DType::f32, DType::bf16}, Case{2, 0, DType::f32, DType::f32},
        Case{5, 33, DType::f32, DType::f64}, Case{2, 130, DType::f64, DType::f64}, Case{120, 40, DType::f32, DType::f16}}) {
    for (const int bad : {-1, 0, 1, 2}) {  // none, in the first tensor, in the last, in all
      if (bad >= 0 && c.n == 0) continue;
      CAPTURE(c.tensors);
      CAPTURE(name(c.grad));
      CAPTURE(bad);
      Problem s, a;
      for (Problem* p : {&s, &a}) {
        for (int k = 0; k < c.tensors; ++k) p->add(c.param, c.grad, DType::f32, false, 3, c.n, 0);
      }
      if (bad >= 0) {
        for (Problem* p : {&s, &a}) {
          for (size_t k = 0; k < size_t(c.tensors); ++k) {
            if ((bad == 0 && k > 0) || (bad == 1 && k + 1 < size_t(c.tensors))) continue;
            const TensorView& on_cpu = p->cpu_params[k].grad;
            set(on_cpu, c.n - 1, c.grad == DType::f64 ? 1e300 * 1e300 : kInfinity);
            REQUIRE(cudaMemcpy(p->device_params[k].grad.data, on_cpu.data, size_t(c.n) * size_of(c.grad), cudaMemcpyHostToDevice) ==
                    cudaSuccess);
          }
        }
      }
      const Buffer loss = scalar(0.75), losses = make(DType::f32, {4}), founds = make(DType::f32, {4});
      const OnDevice dev_loss(loss), dev_losses(losses), dev_founds(founds);
      for (const bool adam : {false, true}) {
        const Buffer flag = scalar(9), scale = scalar(64), tracker = make(DType::i32, {}, {2});  // a flag left by an earlier step
        const Buffer dev_flag_host = scalar(9), dev_scale_host = scalar(64), dev_tracker_host = make(DType::i32, {}, {2});
        const OnDevice dev_flag(dev_flag_host), dev_scale(dev_scale_host), dev_tracker(dev_tracker_host);
        const Buffer place = make(DType::i64, {3});
        const math::ResultRing ring{dev_losses.as<void>(), dev_founds.as<float>(), adam};
        std::memcpy(place.view.data, &ring, sizeof ring);
        const OnDevice dev_place(place);
        StepControl on_cpu{
            .found_inf = flag.view.as<float>(), .grad_scale = scale.view.as<float>(), .write_back = false, .test_gradients = true};
        StepControl on_device{
            .found_inf = dev_flag.as<float>(), .grad_scale = dev_scale.as<float>(), .write_back = false, .test_gradients = true};
        on_cpu.tail = {.scale = scale.view.as<float>(),
                       .tracker = tracker.view.as<int32_t>(),
                       .rule = {.growth = 2, .backoff = 0.5, .interval = 3}};
        on_device.tail = on_cpu.tail;
        on_device.tail.scale = dev_scale.as<float>();
        on_device.tail.tracker = dev_tracker.as<int32_t>();
        on_device.tail.ring = dev_place.as<math::ResultRing>();
        on_device.tail.loss = dev_loss.as<void>();
        if (adam) {
          cpu().update(a.cpu_params, math::AdamRule{}, on_cpu);
          cuda::update(queue(), a.device_params, math::AdamRule{}, on_device);
        } else {
          cpu().update(s.cpu_params, math::SgdRule{0.1, 0.9}, on_cpu);
          cuda::update(queue(), s.device_params, math::SgdRule{0.1, 0.9}, on_device);
        }
        (adam ? a : s).compare(adam ? "adam" : "sgd");
        for (const OnDevice* d : {&dev_flag, &dev_scale, &dev_tracker, &dev_losses, &dev_founds}) d->fetch();
        CHECK(dev_flag_host[0] == (bad >= 0 ? 1 : 0));
        CHECK(dev_flag_host[0] == flag[0]);
        CHECK(dev_scale_host[0] == scale[0]);
        CHECK(dev_tracker_host[0] == tracker[0]);
        CHECK(losses[adam] == 0.75);
        CHECK(founds[adam] == flag[0]);
      }
    }
  }
}

TEST_CASE("checks and unscaling over more tensors than one launch takes, and of several chunks") {
  for (double bad : {0.0, kInfinity}) {
    std::deque<Buffer> on_cpu, host;
    std::deque<OnDevice> device;
    std::vector<TensorView> cpu_list, list;
    for (int k = 0; k < 210; ++k) {
      const int64_t n = k == 100 ? 40001 : k % 9;
      for (auto* to : {&on_cpu, &host}) {
        to->push_back(uniform(kFloating[k % 4], {n}, unsigned(k), -4, 4));
        if (k == 200 && bad != 0) set(to->back().view, n - 1, bad);
      }
      cpu_list.push_back(on_cpu.back().view);
      list.push_back(device.emplace_back(host.back().view, k % 10 == 0).view);
    }
    const Buffer flag = scalar(0), check = scalar(0), want_flag = scalar(0), scale = scalar(8);
    const OnDevice dev_flag(flag), dev_check(check), dev_scale(scale);
    cpu().unscale(cpu_list, scale.view.as<float>(), want_flag.view.as<float>());
    cuda::check_finite(queue(), list, dev_check.as<float>());
    cuda::unscale(queue(), list, dev_scale.as<float>(), dev_flag.as<float>());
    dev_flag.fetch();
    dev_check.fetch();
    CHECK(flag[0] == want_flag[0]);
    CHECK(check[0] == want_flag[0]);
    for (size_t k = 0; k < list.size(); ++k) {
      device[k].fetch();
      const bool same = host[k].raw() == on_cpu[k].raw();
      CHECK(same);
    }
  }
}

TEST_CASE("the scale walks as on the CPU") {
  const Buffer scale = scalar(65536), tracker = make(DType::i32, {}, {0}), want = scalar(65536),
               want_tracker = make(DType::i32, {}, {0});
  const OnDevice dev_scale(scale), dev_tracker(tracker);
  const auto tail = [](const TensorView& s, const TensorView& t) {
    return math::StepTail{.scale = s.as<float>(),
                          .tracker = t.as<int32_t>(),
                          .rule = {.growth = 2, .backoff = 0.5, .interval = 3, .least = 4096, .most = 131072}};
  };
  for (int step = 0; step < 50; ++step) {
    const Buffer flag = scalar(step % 7 == 3 ? 1 : 0);
    const OnDevice dev_flag(flag);
    cpu().end_step(flag.view.as<float>(), tail(want, want_tracker));
    cuda::end_step(queue(), dev_flag.as<float>(), tail(dev_scale, dev_tracker));
    dev_scale.fetch();
    dev_tracker.fetch();
    CHECK(scale[0] == want[0]);
    CHECK(tracker[0] == want_tracker[0]);
  }
}
