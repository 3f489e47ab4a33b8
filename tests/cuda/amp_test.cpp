// SPDX-License-Identifier: Apache-2.0
// Mixed precision on the device: the law of autocast, shadow weights, the scaler's state, clipping.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/amp/autocast_calls.h"
#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Both within `ulps` of their dtype, with values near zero measured against the largest.
void check_near(const Tensor& got, const Tensor& want, double ulps) {
  REQUIRE(got.dtype() == want.dtype());
  REQUIRE(got.shape() == want.shape());
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  double largest = 0;
  for (double x : b) largest = std::max(largest, std::fabs(x));
  for (size_t k = 0; k < a.size(); ++k) {
    CHECK_MESSAGE(std::fabs(a[k] - b[k]) <= ulps * epsilon(want.dtype()) * (std::fabs(b[k]) + largest / 8) + 1e-7, "element ", k,
                  ": ", a[k], ", not ", b[k]);
  }
}

}  // namespace

TEST_CASE("a region's default dtype on the device is float16, and a CPU region does not reach there") {
  CHECK(autocast::dtype(Device::Type::cuda) == DType::f16);
  const Tensor x = ones({2, 3}, {.device = Device::cuda}), w = ones({4, 3}, {.device = Device::cuda});
  {
    const Autocast region(Device::cuda);
    CHECK(linear(x, w).dtype() == DType::f16);
    CHECK(linear(ones({2, 3}), ones({4, 3})).dtype() == DType::f32);
    CHECK(exp(x.to(DType::f16)).dtype() == DType::f32);
  }
  const Autocast region(Device::cpu);
  CHECK(linear(x, w).dtype() == DType::f32);
}

TEST_CASE("every op with a policy gives the dtype and the values of a CPU region") {
  manual_seed(5);
  for (const calls::OpCall& call : calls::all()) {
    if (find_op(call.op)->policy == CastPolicy::banned) continue;
    for (const DType low : {DType::f16, DType::bf16}) {
      for (const DType dtype : {DType::f32, low}) {
        CAPTURE(call.op);
        CAPTURE(name(low));
        CAPTURE(name(dtype));
        const Tensors in = calls::draw(call, dtype), there = moved(in, Device::cuda);
        Tensor want, got;
        {
          const Autocast region(Device::cpu, low);
          want = call.run(in);
        }
        {
          const Autocast region(Device::cuda, low);
          got = call.run(there);
        }
        CHECK(got.device() == Device::cuda);
        check_near(got, want, 16);
      }
    }
  }
}

TEST_CASE("shadow weights: written by the optimizer, never cast in a steady step") {
  for (const DType low : {DType::f16, DType::bf16}) {
    for (const bool adam : {false, true}) {
      const auto net = mlp_model(Device::cuda);
      const Batches batches(Device::cuda, 1);
      SGD sgd(net->parameters(), {.lr = 0.1, .momentum = 0.9});
      Adam other(net->parameters(), {.lr = 0.01});
      Optimizer& opt = adam ? static_cast<Optimizer&>(other) : sgd;
      const CrossEntropyLoss loss_fn;
      GradScaler scaler({.init_scale = 256, .enabled = low == DType::f16});
      const auto step = [&] {
        opt.zero_grad();
        Tensor loss;
        {
          const Autocast region(Device::cuda, low);
          loss = loss_fn((*net)(batches.inputs[0]), batches.targets[0]);
        }
        scaler.scale(loss).backward();
        scaler.step(opt);
        scaler.update();
      };
      step();
      const uint64_t casts = autocast::cast_count();
      step();
      const uint64_t in_one = autocast::cast_count() - casts;
      step();
      CHECK(autocast::cast_count() - casts == 2 * in_one);
      CHECK(in_one <= 2);  // the input, and the loss's input as float32
      int shadowed = 0;
      for (const Tensor& p : net->parameters()) {
        const Tensor shadow = autocast::shadow_of(p);
        if (!shadow.defined()) continue;
        ++shadowed;
        CHECK(shadow.device() == Device::cuda);
        CHECK(bytes(shadow) == bytes(p.detach().to(low)));
      }
      CHECK(shadowed == 6);
    }
  }
}

TEST_CASE("the scaler's state is the CPU's, bit for bit, over 200 steps with overflows; a skipped step changes nothing") {
  struct Side {
    Tensor p, q;
    std::unique_ptr<Adam> opt;
    GradScaler scaler{{.init_scale = 65536, .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 7}};
    explicit Side(Device device)
        : p(full({33}, 0.5, {.device = device, .requires_grad = true})),
          q(full({4, 3}, -1.0, {.device = device, .requires_grad = true})) {
      opt = std::make_unique<Adam>(std::vector<Tensor>{p, q}, AdamOptions{.lr = 0.01});
    }
    std::string state() const { return bytes(p) + bytes(q) + bytes(*opt); }
    double found_inf_step(int i, bool separate) {
      const Device device = p.device();
      const Tensor loss = scaler.scale(ones({}, {.device = device}));
      const double scale = loss.item<double>();
      p.set_grad(full({33}, std::sin(i) * scale, {.device = device}));
      q.set_grad(full({4, 3}, std::cos(i) * scale, {.device = device}));
      if (i % 11 == 3) p.grad()[32].fill_(kInf);
      if (i % 17 == 5) q.grad()[1].fill_(std::nan(""));
      if (i == 120 || i == 121 || i == 122) q.grad().fill_(-kInf);
      if (separate) scaler.unscale_(*opt);
      const StepOutcome outcome = scaler.step(*opt);
      scaler.update();
      return outcome.applied();
    }
  };
  Side cpu(Device::cpu), cuda(Device::cuda);
  int skipped = 0;
  for (int i = 0; i < 200; ++i) {
    CAPTURE(i);
    const std::string before = cuda.state();
    const bool applied = cuda.found_inf_step(i, i % 2);
    CHECK(applied == bool(cpu.found_inf_step(i, i % 2)));
    CHECK((before == cuda.state()) == (!applied && i > 0));
    skipped += !applied;
    CHECK(cuda.scaler.get_scale() == cpu.scaler.get_scale());
    CHECK(cuda.scaler.get_growth_tracker() == cpu.scaler.get_growth_tracker());
    CHECK(cuda.scaler.state_dict() == cpu.scaler.state_dict());
  }
  CHECK(skipped > 25);
  check_near(cuda.p.detach().to(Device::cpu), cpu.p.detach(), 64);
}

TEST_CASE("a skipped step leaves weights, moments and shadows as they are") {
  const auto net = mlp_model(Device::cuda);
  const Batches batches(Device::cuda, 2);
  Adam opt(net->parameters(), {.lr = 0.01});
  const CrossEntropyLoss loss;
  GradScaler scaler({.init_scale = 1024});
  TrainStep step(*net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = DType::f16, .clip_grad_norm = 1});
  for (int i = 0; i < 3; ++i) CHECK(step(batches.inputs[0], batches.targets[0]).outcome.applied());
  const std::string before = bytes(*net) + bytes(opt) + shadow_bytes(*net);
  CHECK(!shadow_bytes(*net).empty());
  const Tensor bad = batches.inputs[1].clone();
  bad[3][2].fill_(kInf);
  CHECK(step(bad, batches.targets[1]).outcome.overflow());
  CHECK(bytes(*net) + bytes(opt) + shadow_bytes(*net) == before);
  CHECK(scaler.get_scale() == 1024);  // the loss was not finite either, which no scale mends
  CHECK(step(batches.inputs[1], batches.targets[1]).outcome.applied());
  CHECK(bytes(*net) != before);
}

TEST_CASE("amp 83: unscale_, a fused step and update read nothing back; asking for the scale or the outcome does") {
  const auto net = mlp_model(Device::cuda);
  const Batches batches(Device::cuda, 1);
  SGD sgd(net->parameters(), {.lr = 0.01, .momentum = 0.9});
  Adam adam(net->parameters(), {.lr = 0.01});
  GradScaler scaler({.init_scale = 1024});
  for (Optimizer* opt : {static_cast<Optimizer*>(&sgd), static_cast<Optimizer*>(&adam)}) {
    for (const bool unscales : {true, false}) {
      opt->zero_grad();
      const Autocast region(Device::cuda, DType::f16);
      const Tensor loss = CrossEntropyLoss()((*net)(batches.inputs[0]), batches.targets[0]);
      uint64_t reads = host_reads();
      scaler.scale(loss).backward();
      if (unscales) scaler.unscale_(*opt);
      const StepOutcome outcome = scaler.step(*opt);
      scaler.update();
      CHECK(host_reads() == reads);
      CHECK(outcome.applied());
      CHECK(host_reads() == ++reads);
      CHECK(scaler.get_scale() == 1024);
      CHECK(host_reads() == ++reads);
    }
  }
}

TEST_CASE("clip_grad_norm_ and clip_grad_value_ as on the CPU, without a host read") {
  for (const double p : {2.0, 1.0, kInf}) {
    for (const double bound : {0.5, 1e6}) {
      Tensor norm[2];
      Tensors grads[2];
      for (Device device : kBoth) {
        manual_seed(9);
        std::vector<Tensor> params;
        for (const Shape& shape : {Shape{3, 5}, Shape{1031}, Shape{}}) {
          params.push_back(zeros(shape, {.device = device, .requires_grad = true}));
          params.back().set_grad(randn(shape).to(device));
        }
        const uint64_t reads = host_reads();
        norm[device.is_cuda()] = clip_grad_norm_(params, bound, p);
        clip_grad_value_(params, 0.01);
        CHECK(host_reads() == reads);
        for (const Tensor& t : params) grads[device.is_cuda()].push_back(t.grad());
      }
      check_near(norm[1].to(Device::cpu), norm[0], 2);
      for (size_t k = 0; k < grads[0].size(); ++k) check_near(grads[1][k], grads[0][k], 4);
    }
  }
}
