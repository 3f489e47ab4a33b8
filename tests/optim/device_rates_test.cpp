// SPDX-License-Identifier: Apache-2.0
// Rates and counts in device memory, here the CPU's: the same rates as a schedule that the host steps.
#include "optim/device_rates.h"

#include <doctest/doctest.h>

#include <optional>
#include <vector>

#include "halfstep.h"

using namespace halfstep;

namespace {

// A parameter, its optimizer with two groups, and a schedule.
struct Setup {
  Tensor a = ones({3}, {.requires_grad = true}), b = ones({2}, {.requires_grad = true});
  SGD optimizer{std::vector<ParamGroup>{{{a}, 0.5, {}}, {{b}, 0.25, {}}}, {.lr = 1}};
  CosineAnnealingLR schedule{optimizer, 3000, 0.01, 20};

  void one_step(const Tensor& found_inf) {
    for (const Tensor& p : {a, b}) p.set_grad(full(p.shape(), 0.01));
    optimizer.checked_amp() = {found_inf, {}};
    optimizer.step();
    optimizer.checked_amp() = {};
  }
};

// The end of a step whose optimizer did not take the schedule's part.
void advance(DeviceRates& rates, const Tensor& found_inf) {
  math::StepTail tail;
  rates.add_to(tail);
  backend_for(Device::cpu).end_step(found_inf.defined() ? found_inf.data_ptr<float>() : nullptr, tail);
  rates.note_step();
}

}  // namespace

TEST_CASE("device rates give the updates of a schedule stepped by the host, over windows and skipped steps") {
  Setup host, device;
  const Tensor clean = zeros({}), inf = ones({});
  DeviceRates rates(device.optimizer, &device.schedule, Device::cpu);
  for (int i = 0; i < 2600; ++i) {
    const bool skip = i % 7 == 3;
    host.one_step(skip ? inf : clean);
    host.schedule.step(!skip);
    rates.prepare();
    device.one_step(skip ? inf : clean);
    advance(rates, skip ? inf : clean);
    if (i % 1300 == 5) CHECK(device.schedule.count() == host.schedule.count());  // asks in between
  }
  CHECK(device.a.to_vector<float>() == host.a.to_vector<float>());
  CHECK(device.b.to_vector<float>() == host.b.to_vector<float>());
  CHECK(device.optimizer.lr(1) == host.optimizer.lr(1));
  CHECK(device.schedule.count() == host.schedule.count());
}

TEST_CASE("what the host sets reaches the device, and without a found_inf every step counts") {
  Setup s;
  {
    DeviceRates rates(s.optimizer, &s.schedule, Device::cpu);
    s.schedule.set_count(100);  // as resuming does
    rates.prepare();
    s.one_step({});
    advance(rates, {});
    CHECK(s.schedule.count() == 101);
    CHECK(s.optimizer.lr(0) == s.schedule.rate(0.5, 101));
    s.optimizer.set_lr(0.125, 0);
    const float before = s.a[0].item<float>();
    rates.prepare();
    s.one_step({});
    advance(rates, {});
    CHECK(s.a[0].item<float>() == before - 0.125f * 0.01f);
  }
  CHECK(s.schedule.count() == 102);  // settled on the way out
  s.schedule.step(true);
  CHECK(s.schedule.count() == 103);
}

TEST_CASE("without a schedule the optimizer's own rate is used, as last set") {
  Tensor p = ones({1}, {.requires_grad = true});
  SGD optimizer({p}, {.lr = 0.5});
  DeviceRates rates(optimizer, nullptr, Device::cpu);
  for (const double lr : {0.5, 0.25}) {
    optimizer.set_lr(lr, 0);
    const float before = p.item<float>();
    p.set_grad(ones({1}));
    rates.prepare();
    optimizer.step();
    advance(rates, {});
    CHECK(p.item<float>() == before - float(lr));
    CHECK(optimizer.lr() == lr);
  }
}

TEST_CASE("a schedule that moves the momentum does the same from the device, and leaves Muon's AdamW its own") {
  const auto run = [](bool on_device) {
    const Tensor matrix = full({3, 4}, 0.5), bias = full({3}, 0.5);
    matrix.set_requires_grad(), bias.set_requires_grad();
    Muon optimizer({matrix, bias}, {.lr = 0.1});
    OneCycleLR schedule(optimizer, {.total_steps = 12});
    std::optional<DeviceRates> rates;
    if (on_device) rates.emplace(optimizer, &schedule, Device::cpu);
    for (int i = 0; i < 12; ++i) {
      if (rates) rates->prepare();
      for (const Tensor& p : {matrix, bias}) p.set_grad(arange(p.numel()).to(DType::f32).reshape(p.shape()) * 0.1 + 0.01 * i);
      optimizer.step();
      if (rates)
        advance(*rates, Tensor());
      else
        schedule.step();
    }
    std::vector<float> out = matrix.to_vector<float>(), rest = bias.to_vector<float>();
    out.insert(out.end(), rest.begin(), rest.end());
    out.push_back(float(optimizer.momentum()));
    return out;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("what is written into groups counts on the device as on the host, also by a reference that is kept over steps") {
  for (const bool keeps : {false, true}) {
    CAPTURE(keeps);
    Setup host, device;
    DeviceRates rates(device.optimizer, &device.schedule, Device::cpu);
    ParamGroup &kept_host = host.optimizer.param_groups()[1], &kept_device = device.optimizer.param_groups()[1];
    for (int i = 0; i < 60; ++i) {
      const Tensor found = i % 7 == 3 ? ones({}) : zeros({});
      if (i == 10 || i == 31 || i == 40) {
        const double rate = i == 40 ? 0.75 : i == 31 ? 0.25 : 0.125;
        (keeps ? kept_host : host.optimizer.param_groups()[1]).lr = rate;
        (keeps ? kept_device : device.optimizer.param_groups()[1]).lr = rate;
      }
      host.one_step(found);
      host.schedule.step(i % 7 != 3);
      rates.prepare();
      device.one_step(found);
      advance(rates, found);
    }
    CHECK(device.a.to_vector<float>() == host.a.to_vector<float>());
    CHECK(device.b.to_vector<float>() == host.b.to_vector<float>());
    CHECK(device.optimizer.lr(0) == host.optimizer.lr(0));
    CHECK(device.optimizer.lr(1) == host.optimizer.lr(1));
    CHECK(device.optimizer.lr(1) > device.optimizer.lr(0));  // it continued from 0.75
    CHECK(device.schedule.state_dict() == host.schedule.state_dict());
  }
}

TEST_CASE("a schedule on the device ends as on the host") {
  const Tensor p = ones({2}, {.requires_grad = true});
  SGD optimizer({p}, {.lr = 0.1, .momentum = 0.9});
  OneCycleLR schedule(optimizer, {.total_steps = 4});
  DeviceRates rates(optimizer, &schedule, Device::cpu);
  const auto step = [&] {
    p.set_grad(ones({2}));
    rates.prepare();
    optimizer.step();
    advance(rates, Tensor());
  };
  for (int i = 0; i < 5; ++i) step();
  CHECK_THROWS_WITH_AS(step(), doctest::Contains("has ended"), ValueError);
}

TEST_CASE("the options that a recording has in it: all but the rates, and momenta that the device reads") {
  const Tensor p = ones({2}, {.requires_grad = true});
  AdamW optimizer({p}, {.lr = 0.1});
  const std::vector<double> before = optimizer.recorded_options();
  optimizer.set_lr(0.2);
  CHECK(optimizer.recorded_options() == before);
  for (const auto change : {+[](AdamWOptions& o) { o.betas[0] = 0.5; }, +[](AdamWOptions& o) { o.betas[1] = 0.5; },
                            +[](AdamWOptions& o) { o.eps = 0.5; }, +[](AdamWOptions& o) { o.weight_decay = 0.5; },
                            +[](AdamWOptions& o) { o.amsgrad = true; }}) {
    const AdamWOptions kept = optimizer.options();
    change(optimizer.options());
    CHECK(optimizer.recorded_options() != before);
    optimizer.options() = kept;
    CHECK(optimizer.recorded_options() == before);
  }
  optimizer.param_groups()[0].weight_decay = 0.25;
  CHECK(optimizer.recorded_options() != before);
  OneCycleLR schedule(optimizer, {.total_steps = 12});
  const DeviceRates rates(optimizer, &schedule, Device::cpu);
  const std::vector<double> moving = optimizer.recorded_options();
  optimizer.set_momentum(0.5, 0);
  CHECK(optimizer.recorded_options() == moving);
}
