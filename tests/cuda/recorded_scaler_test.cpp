// SPDX-License-Identifier: Apache-2.0
// Loss scaling inside a recording made by hand: the scale is read when the work runs, not when it was recorded.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("amp 82: scale and backward, recorded once, follow the scale") {
  Backend& backend = backend_for(Device::cuda);
  const Tensor weight = ones({100}, {.device = Device::cuda}).set_requires_grad();
  const Tensor input = full({}, 1, {.dtype = DType::f16, .device = Device::cuda});
  SGD opt({weight}, {.lr = 0.1});
  GradScaler scaler({.init_scale = 4});
  const auto forward_and_backward = [&] { scaler.scale((weight.to(DType::f16) * input).sum()).backward(); };
  forward_and_backward();  // places the scaler's state
  scaler.step(opt);
  scaler.update(4.0);
  opt.zero_grad();

  const int64_t tracker = scaler.get_growth_tracker();
  backend.begin_recording(default_generator());
  forward_and_backward();
  const auto recording = backend.end_recording();

  struct Step {
    double input, gradient, scale;
    int64_t tracker;
  };
  const double inf = std::numeric_limits<double>::infinity();
  for (const Step& s : {Step{5, 20, 4, tracker + 1}, Step{20000, inf, 2, 0}, Step{5, 10, 2, 1}, Step{40000, inf, 1, 0}}) {
    CAPTURE(s.input);
    input.fill_(s.input);
    recording->replay();
    for (double g : weight.grad().to_vector<double>()) CHECK(g == s.gradient);
    scaler.step(opt);
    scaler.update();
    CHECK(scaler.get_scale() == s.scale);
    CHECK(scaler.get_growth_tracker() == s.tracker);
  }
}
