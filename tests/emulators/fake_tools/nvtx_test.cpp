// SPDX-License-Identifier: Apache-2.0
// What a profiler sees of a training step: its passes, and in them the calls with their layers.
#include "cuda/nvtx.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "cuda/backend.h"
#include "framework/backend/backend.h"
#include "halfstep.h"

using namespace halfstep;

extern "C" const char* recorded_ranges();
extern "C" int open_ranges();

namespace {

constexpr const char* kStep = R"(forward
  0: autocast
  0: autocast
  0: autocast
  0: linear
    0: permute
  1: tanh
  2: autocast
  2: autocast
  2: linear
    2: permute
  mse_loss
view
view
backward
  mse_loss
  2: linear
    2: permute
  accumulate_grad
  accumulate_grad
  1: tanh
  0: linear
    0: permute
  accumulate_grad
  accumulate_grad
update
  optimizer
)";

std::string ranges_of_a_step(Device device) {
  const DefaultDevice on(device);
  manual_seed(3);
  Sequential net{Linear(6, 8), Tanh(), Linear(8, 2)};
  MSELoss loss;
  SGD optimizer(net.parameters(), SGDOptions{.lr = 0.1});
  GradScaler scaler(GradScalerOptions{.enabled = false});
  TrainStep step(net, loss, optimizer, scaler, nullptr, {.device = device, .amp = DType::f16, .graph = GraphMode::off});
  const Tensor x = randn({5, 6}), y = randn({5, 2});
  const size_t before = std::string(recorded_ranges()).size();
  step(x, y);
  return recorded_ranges() + before;
}

}  // namespace

TEST_CASE("a watching profiler sees passes, and in them the calls with their layers") {
  REQUIRE(std::getenv("NVTX_INJECTION64_PATH"));
  cuda::show_ranges_to_profiler();  // where the framework is built without CUDA, nobody else does
  if (!has_backend(Device::Type::cuda)) cuda::register_backend();
  for (const Device device : {Device(Device::cpu), Device(Device::cuda)}) {
    CHECK(ranges_of_a_step(device) == kStep);
    CHECK(open_ranges() == 0);
  }
  CHECK_THROWS_AS(matmul(randn({2, 3}), randn({2, 3})), ShapeError);
  CHECK(open_ranges() == 0);
}

TEST_CASE("without a profiler there are no ranges" * doctest::test_suite("unwatched")) {
  REQUIRE_FALSE(std::getenv("NVTX_INJECTION64_PATH"));
  cuda::show_ranges_to_profiler();
  CHECK(ranges_of_a_step(Device::cpu) == "");
}
