// SPDX-License-Identifier: Apache-2.0
// Every family of kernels once, at odd sizes: compute-sanitizer runs these, slowly.
//   compute-sanitizer --tool memcheck|racecheck|initcheck|synccheck test_cuda --test-suite=sanitize
#include <doctest/doctest.h>

#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

Tensor numbers(const Shape& shape, DType dtype) { return rand(shape, {.dtype = dtype, .device = Device::cuda}); }

}  // namespace

TEST_SUITE_BEGIN("sanitize");

TEST_CASE("elementwise, copies, tests and where, dense and strided") {
  manual_seed(1);
  for (DType dtype : kFloats) {
    const Tensor x = numbers({33, 37}, dtype).set_requires_grad(), y = numbers({37}, dtype).set_requires_grad();
    const Tensor z = where(x > 0.5, (x + y).gelu(), (x.t() * 2.0).t().exp()) / (y + 1.0);
    z.slice(1, 1, 37, 2).sum().backward();
    CHECK(x.grad().defined());
    CHECK(z.to(DType::f32).contiguous().t().clone().numel() == 33 * 37);
    CHECK(cat({x.detach(), z.detach()}, 1).size(1) == 74);
  }
}

TEST_CASE("reductions and rows") {
  manual_seed(2);
  for (DType dtype : kFloats) {
    const Tensor x = numbers({17, 1025}, dtype).set_requires_grad();
    (x.sum() + x.mean({0}).sum() + amax(x, {1}).sum() + softmax(x, 1).sum() + log_softmax(x, 0).sum()).backward();
    CHECK(argmax(x.detach(), 1).numel() == 17);
    CHECK(argmin(x.detach()).item<int64_t>() >= 0);
    CHECK(all(x.detach() >= 0.0).item<bool>());
    CHECK(arange(1000, {.dtype = DType::i64, .device = Device::cuda}).sum().item<int64_t>() == 499500);
  }
}

TEST_CASE("losses, indexing and random numbers") {
  manual_seed(3);
  for (DType dtype : kFloats) {
    const Tensor x = numbers({19, 33}, dtype).set_requires_grad();
    const Tensor target = randint(0, 33, {19}, {.dtype = DType::i64, .device = Device::cuda});
    (cross_entropy(x, target, {.label_smoothing = 0.1}) + mse_loss(x, numbers({19, 33}, dtype)) + dropout(x, 0.5, true).sum() +
     gather(x, 1, target.reshape({19, 1})).sum())
        .backward();
    CHECK(x.grad().shape() == x.shape());
    CHECK(randn({77}, {.dtype = dtype, .device = Device::cuda}).numel() == 77);
  }
}

TEST_CASE("products") {
  manual_seed(4);
  for (DType dtype : kFloats) {
    const Tensor x = numbers({9, 24}, dtype), w = numbers({16, 24}, dtype).set_requires_grad(),
                 b = numbers({16}, dtype).set_requires_grad();
    (mlp(x, {{w, b, Activation::relu}, {numbers({7, 16}, dtype), numbers({7}, dtype)}}).sum() + linear(x, w, b, true).sum() +
     bmm(numbers({2, 5, 24}, dtype), w.t().unsqueeze(0).expand({2, 24, 16})).sum())
        .backward();
    CHECK(w.grad().shape() == w.shape());
    CHECK(b.grad().shape() == b.shape());
  }
}

TEST_CASE("training steps with a scaler, clipping and both optimizers") {
  for (const bool adam : {false, true}) {
    for (const DType low : {DType::f16, DType::bf16}) {
      const auto net = mlp_model(Device::cuda, 0.1);
      const Batches batches(Device::cuda, 1);
      SGD sgd(net->parameters(), {.lr = 0.1, .momentum = 0.9});
      Adam other(net->parameters(), {.lr = 0.01, .amsgrad = true});
      Optimizer& opt = adam ? static_cast<Optimizer&>(other) : sgd;
      const CrossEntropyLoss loss;
      GradScaler scaler({.init_scale = 1024, .enabled = low == DType::f16});
      StepLR schedule(opt, 2);
      TrainStep step(*net, loss, opt, scaler, &schedule, {.device = Device::cuda, .amp = low, .clip_grad_norm = 1});
      for (int i = 0; i < 3; ++i) step(batches.inputs[0], batches.targets[0]);
      CHECK(schedule.count() == 3);
    }
  }
}

TEST_SUITE_END();
