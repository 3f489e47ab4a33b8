// SPDX-License-Identifier: Apache-2.0
// The log of op calls says what ran: dtypes and why, casts, products, bytes, where memory peaked.
#include "framework/backend/op_log.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "amp/step/train_step.h"
#include "framework/ops/ops.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

const LoggedCall& find(const std::vector<LoggedCall>& calls, std::string_view op, StepPass pass = StepPass::forward) {
  const auto it = std::find_if(calls.begin(), calls.end(), [&](const LoggedCall& c) { return c.op == op && c.pass == pass; });
  REQUIRE_MESSAGE(it != calls.end(), "no call of ", std::string(op));
  return *it;
}

int64_t real_casts(const LoggedCall& call) {
  return std::count_if(call.casts.begin(), call.casts.end(), [](const LoggedCast& c) { return !c.shadow; });
}

}  // namespace

TEST_CASE("a log of calls has nothing of what is outside of it") {
  const Tensor x = ones({4, 3}, {.device = Device::meta});
  const OpLogScope log;
  {
    const OpLogScope inner;
    exp(x);
    CHECK(inner.calls().size() == 1);
  }
  CHECK(log.calls().empty());
  exp(x);
  CHECK(log.calls().size() == 1);
  CHECK(log.calls()[0].op == "exp");
  CHECK(log.calls()[0].bytes_read == 48);
  CHECK(log.calls()[0].bytes_written == 48);
  CHECK(log.calls()[0].kernels == 1);
}

TEST_CASE("the log names dtype, reason, casts and kept copies of a linear layer") {
  const DefaultDevice on(Device::meta);
  Linear layer(24, 16);
  const Tensor x = empty({5, 24});
  for (const bool again : {false, true}) {
    CAPTURE(again);
    const Autocast region(Device::meta, DType::bf16);
    const OpLogScope log;
    const Tensor y = layer(x);
    REQUIRE(log.calls().size() == 1);
    const LoggedCall& call = log.calls()[0];
    CHECK(call.op == "linear");
    CHECK(call.policy == CastPolicy::low);
    CHECK(call.compute == DType::bf16);
    CHECK(call.reason == "computes in bfloat16 in a region");
    REQUIRE(call.inputs.size() == 3);
    CHECK(call.inputs[0].given == DType::f32);
    CHECK(call.inputs[0].dtype == DType::bf16);
    CHECK(call.inputs[1].shape == Shape{16, 24});
    REQUIRE(call.casts.size() == 3);
    CHECK(real_casts(call) == (again ? 1 : 3));  // the weight's copy and the bias's are kept
    REQUIRE(call.products.size() == 1);
    CHECK(call.products[0].m == 5);
    CHECK(call.products[0].n == 16);
    CHECK(call.products[0].k == 24);
    CHECK(call.flops() == 2 * 5 * 16 * 24);
    CHECK(call.flops(DType::bf16) == call.flops());
    const double casts = again ? 5 * 24 * 6 : (5 * 24 + 16 * 24 + 16) * 6;
    CHECK(call.bytes_read + call.bytes_written == casts + 2 * (5 * 24 + 16 * 24 + 16 + 5 * 16));
    CHECK(call.saved.size() == 2);  // x and the weight
    REQUIRE(call.outputs.size() == 1);
    CHECK(call.outputs[0].shape == Shape{5, 16});
    CHECK(call.outputs[0].dtype == DType::bf16);
  }
}

TEST_CASE("reasons of the other policies") {
  const DefaultDevice on(Device::meta);
  const Autocast region(Device::meta, DType::bf16);
  const Tensor low = empty({6, 6}, {.dtype = DType::bf16}), wide = empty({6, 6}), exact = empty({6, 6}, {.dtype = DType::f64});
  const OpLogScope log;
  mm(exact, exact);
  CHECK(log.calls().back().reason == "no cast: float64");
  CHECK(log.calls().back().compute == DType::f64);
  relu(low);
  CHECK(log.calls().back().reason == "takes the dtype it is given");
  CHECK(log.calls().back().compute == DType::bf16);
  atan2(low, wide);
  CHECK(log.calls().back().reason == "takes the widest dtype of its inputs");
  sum(low);
  CHECK(log.calls().back().reason == "its result is float32 in a region");
  CHECK(log.calls().back().outputs[0].dtype == DType::f32);
  cross_entropy(low, empty({6}, {.dtype = DType::i64}));
  CHECK(find(log.calls(), "cross_entropy").compute == DType::f32);
  CHECK(find(log.calls(), "cross_entropy").reason == "computes in float32 and reads 16 bits");
}

TEST_CASE("a step's passes, layers and products") {
  const DefaultDevice on(Device::meta);
  Sequential net;
  net.push_back("body", std::make_shared<Sequential>(std::make_shared<Linear>(8, 8), std::make_shared<Tanh>(),
                                                     std::make_shared<Linear>(8, 8)));
  net.push_back("head", std::make_shared<Linear>(8, 4));
  const MSELoss loss;
  SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  GradScaler scaler({.enabled = false});
  TrainStep step(net, loss, optimizer, scaler, nullptr, {.device = Device::meta, .amp = DType::bf16});
  const OpLogScope log;
  step(empty({3, 8}), empty({3, 4}));
  const auto& calls = log.calls();
  CHECK(find(calls, "tanh").layer == "body.1");
  CHECK(find(calls, "tanh", StepPass::backward).layer == "body.1");
  CHECK(find(calls, "linear").layer == "body.0");
  CHECK(find(calls, "sgd", StepPass::update).bytes_read > 0);
  double forward = 0, backward = 0;
  for (const LoggedCall& c : calls) (c.pass == StepPass::forward ? forward : backward) += c.flops();
  CHECK(forward == 2 * 3 * (8 * 8 + 8 * 8 + 8 * 4));
  CHECK(backward == 2 * forward - 2 * 3 * 8 * 8);  // the input wants no gradient
  CHECK(std::is_sorted(calls.begin(), calls.end(), [](const LoggedCall& a, const LoggedCall& b) { return a.peak < b.peak; }));
}

TEST_CASE("a log of the cpu has calls and dtypes") {
  const Tensor x = ones({2, 2}).set_requires_grad();
  const OpLogScope log(Device::cpu);
  sum(exp(x)).backward();
  CHECK(find(log.calls(), "exp").outputs[0].shape == Shape{2, 2});
  CHECK(find(log.calls(), "exp", StepPass::backward).kernels == 0);
  CHECK(x.grad().defined());
}

TEST_CASE("an error of the backward pass names the layer and the op") {
  struct Overwrites : Module {
    Tensor forward(const Tensor& x) override {
      const Tensor y = exp(x), z = mul(y, y);
      y.detach().fill_(0);
      return z;
    }
  };
  Sequential net;
  net.push_back("inner", std::make_shared<Sequential>(std::make_shared<Overwrites>()));
  const Tensor y = sum(net(ones({3}).set_requires_grad()));
  std::string error;
  try {
    y.backward();
  } catch (const AutogradError& e) { error = e.what(); }
  CHECK(error.find("layer: inner.0, backward of mul") != std::string::npos);
}

TEST_CASE("tensors are made on the default device of the thread") {
  CHECK(default_device() == Device::cpu);
  {
    const DefaultDevice on(Device::meta);
    CHECK(zeros({2}).device() == Device::meta);
    CHECK(Linear(3, 2).weight.device() == Device::meta);
    CHECK(zeros({}, {.device = Device::cpu}).item<double>() == 0);
    CHECK(tensor({1.0, 2}).device() == Device::meta);
    CHECK(tensor({1.0, 2}, {.device = Device::cpu}).to_vector<int>() == std::vector<int>{1, 2});
  }
  CHECK(zeros({2}).device() == Device::cpu);
}

TEST_CASE("on meta a kernel's bytes follow from the types of its parameters") {
  Backend& meta = backend_for(Device::meta);
  float memory = 0;  // of all views: a kernel of meta looks at their sizes only
  const auto there = [&](DType dtype, const Shape& shape) {
    return TensorView{&memory, dtype, shape, contiguous_strides(shape)};
  };
  const TensorView wide = there(DType::f32, {4, 8}), half = there(DType::bf16, {4, 8}), index = there(DType::i64, {4, 8});
  const auto bytes = [&](const auto& run) {
    const OpLogScope log;
    run();
    REQUIRE(log.calls().size() == 1);
    return std::pair{log.calls()[0].bytes_read, log.calls()[0].bytes_written};
  };
  CHECK(bytes([&] { meta.softmax_backward(wide, half, half, 1, false); }) == std::pair{128.0 + 64, 64.0});
  CHECK(bytes([&] { meta.fill(wide, 0); }) == std::pair{0.0, 128.0});
  CHECK(bytes([&] { meta.arg_reduce(true, wide, 1, {}, index); }) == std::pair{128.0, 256.0});
  CHECK(bytes([&] { meta.pointwise(Pointwise::lerp, std::array{wide, half, wide}, 0, 0, half); }) == std::pair{320.0, 64.0});
  CHECK(bytes([&] { meta.mse(wide, wide, Reduction::mean, there(DType::f32, {}), {there(DType::f32, {}), half}); }) ==
        std::pair{260.0, 68.0});
  CHECK(bytes([&] { meta.unscale(std::vector{wide, half}, &memory, &memory); }) == std::pair{192.0, 192.0});
  CHECK(bytes([&] { meta.copy_all(std::vector{wide, half}, std::vector{wide, half}, &memory); }) == std::pair{192.0, 192.0});
  CHECK(bytes([&] { meta.scatter_add(wide, 0, there(DType::i64, {2, 8}), there(DType::f32, {2, 8})); }) ==
        std::pair{128.0 + 2 * 64, 64.0});
}
