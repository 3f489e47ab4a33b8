// SPDX-License-Identifier: Apache-2.0
// A convolution and the batch normalisation behind it: one convolution in InferenceMode, the two layers elsewhere.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "framework/autograd/autograd.h"
#include "framework/backend/op_log.h"
#include "framework/ops/window/laid_weights.h"
#include "layers/layers.h"
#include "optim/optimizers.h"

using namespace halfstep;

namespace {

using Ops = std::vector<std::string>;

template <class F>
Ops ops_in(const F& f) {
  const OpLogScope log(Device::cpu);
  f();
  Ops out;
  for (const LoggedCall& call : log.calls()) {
    const bool* const with = find_attribute<bool>(call.attributes, "relu");
    out.push_back(call.op + (with && *with ? "+relu" : ""));
  }
  return out;
}

Tensor inferred(Module& net, const Tensor& x) {
  const InferenceMode on;
  return net(x);
}
Tensor evaluated(Module& net, const Tensor& x) {
  const NoGrad off;
  return net(x);
}
// The ops of a second call: the first one makes the weights.
Ops inferred_ops(Module& net, const Tensor& x) {
  inferred(net, x);
  return ops_in([&] { inferred(net, x); });
}

// The greatest |a - b| / (1 + |b|).
double relative_error(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(DType::f64), y = b.to(DType::f64);
  return (abs(x - y) / (abs(y) + 1)).max().item<double>();
}
bool same_bits(const Tensor& a, const Tensor& b) { return a.dtype() == b.dtype() && equal(a, b); }

// Statistics and factors as of a trained net.
void vary(Module& net) {
  net.apply([](Module& m) {
    if (auto* const norm = dynamic_cast<RunningNorm*>(&m); norm && norm->running_mean.defined()) {
      const NoGrad off;
      normal_(norm->running_mean, 0, 0.3);
      uniform_(norm->running_var, 0.2, 2);
      if (norm->weight.defined()) uniform_(norm->weight, -1.5, 1.5);
      if (norm->bias.defined()) normal_(norm->bias, 0, 0.5);
    }
  });
}

std::shared_ptr<Module> conv3x3(int64_t in, int64_t out, const ConvLayerOptions& o = {.padding = 1}) {
  return std::make_shared<Conv2d>(in, out, 3, o);
}
std::shared_ptr<Module> norm_of(int64_t channels) { return std::make_shared<BatchNorm2d>(channels); }
std::shared_ptr<Module> relu_layer() { return std::make_shared<ReLU>(); }

Sequential conv_block() {
  const auto body = std::make_shared<Sequential>(conv3x3(6, 6), norm_of(6), relu_layer(), conv3x3(6, 6), norm_of(6));
  return Sequential(conv3x3(3, 6, {.padding = 1, .bias = false}), norm_of(6), relu_layer(), std::make_shared<Residual>(body),
                    relu_layer());
}

Sequential evaluated_block(uint64_t seed) {
  manual_seed(seed);
  Sequential net = conv_block();
  vary(net);
  net.eval();
  return net;
}

}  // namespace

TEST_CASE("InferenceMode makes one convolution of a convolution and its batch normalisation, in Sequential, Residual and Graph") {
  manual_seed(1);
  Sequential net = conv_block();
  Graph graph({{.name = "conv", .layer = conv3x3(3, 6)},
               {.name = "norm", .layer = norm_of(6)},
               {.name = "act", .layer = relu_layer()},
               {.name = "conv2", .layer = conv3x3(6, 6)},
               {.name = "norm2", .layer = norm_of(6)},
               {.name = "sum", .inputs = {"norm2", "act"}, .combine = Combine::add, .layer = relu_layer()}});
  for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const Tensor x = randn({2, 3, 9, 7}).to(format);
    for (Module* const m : {static_cast<Module*>(&net), static_cast<Module*>(&graph)}) {
      m->to(format);
      vary(*m);
      m->eval();
      CHECK(relative_error(inferred(*m, x), evaluated(*m, x)) < 1e-5);
      CHECK(inferred(*m, x).format() == evaluated(*m, x).format());
    }
    CHECK(inferred_ops(net, x) == Ops{"conv2d+relu", "conv2d+relu", "conv2d", "add_relu"});
    CHECK(inferred_ops(graph, x) == Ops{"conv2d+relu", "conv2d", "add_relu"});
    CHECK(ops_in([&] { evaluated(net, x); }) ==
          Ops{"conv2d", "batch_norm+relu", "conv2d", "batch_norm+relu", "conv2d", "batch_norm_add_relu"});
    CHECK(ops_in([&] { evaluated(graph, x); }) == Ops{"conv2d", "batch_norm+relu", "conv2d", "batch_norm_add_relu"});
    net.train(), graph.train();
    CHECK(inferred_ops(net, x) ==
          Ops{"conv2d", "batch_norm+relu", "conv2d", "batch_norm+relu", "conv2d", "batch_norm", "add_relu"});
    CHECK(inferred_ops(graph, x) == Ops{"conv2d", "batch_norm+relu", "conv2d", "batch_norm", "add_relu"});
  }
}

TEST_CASE("a folded convolution has the layers' options, in one, two and three dimensions") {
  manual_seed(2);
  const auto check = [](Sequential net, const Shape& input, const std::string& op) {
    vary(net);
    net.eval();
    const Tensor x = randn(input);
    CHECK(relative_error(inferred(net, x), evaluated(net, x)) < 1e-5);
    CHECK(inferred_ops(net, x).back() == op);
    Sequential wide(net);
    wide.to(DType::f64);
    CHECK(relative_error(inferred(wide, x.to(DType::f64)), evaluated(wide, x.to(DType::f64))) < 1e-14);
  };
  check(Sequential(Conv1d(4, 6, 3, {.stride = 2, .groups = 2}), BatchNorm1d(6, {.affine = false})), {2, 4, 11}, "conv1d");
  check(Sequential(Conv2d(4, 6, 3, {.padding = "same", .dilation = 2, .padding_mode = "reflect"}), BatchNorm2d(6, {.bias = false})),
        {2, 4, 11, 9}, "conv2d");
  check(Sequential(Conv3d(2, 3, 2, {.bias = false}), BatchNorm3d(3, {.eps = 1e-3}), ReLU()), {1, 2, 5, 4, 3}, "conv3d+relu");
  check(Sequential(Conv2d(4, 6, 1), SyncBatchNorm(6)), {2, 4, 5, 5}, "conv2d");
}

TEST_CASE("folded weights follow the layers") {
  Sequential net = evaluated_block(3);
  const Tensor x = randn({2, 3, 9, 7});
  const auto agrees = [&] { return relative_error(inferred(net, x), evaluated(net, x)) < 1e-5; };
  CHECK(agrees());

  SGD optimizer(net.parameters(), SGDOptions{.lr = 0.1});
  net.train();
  square(net(x)).mean().backward();
  optimizer.step();
  CHECK(same_bits(inferred(net, x), evaluated(net, x)));  // in training mode: the layers themselves
  net.eval();
  CHECK(agrees());

  auto& first = net.at<Conv2d>(0);
  auto& second = net.at<BatchNorm2d>(1);
  first.weight = randn({6, 3, 3, 3});
  CHECK(agrees());
  {
    const NoGrad off;
    second.running_var.fill_(0.5);
  }
  CHECK(agrees());
  StateDict state = net.state_dict();
  for (auto& [name, value] : state) value = value.clone();
  second.reset_running_stats();
  CHECK(agrees());
  net.load_state_dict(state);
  CHECK(agrees());
  net.to(DType::f16).to(DType::f32);
  CHECK(agrees());
  Sequential copy(net);
  second.weight = full({6}, 3.0);
  CHECK(agrees());
  CHECK(relative_error(inferred(copy, x), inferred(net, x)) > 0.1);
  net.to(DType::f64);
  CHECK(relative_error(inferred(net, x.to(DType::f64)), evaluated(net, x.to(DType::f64))) < 1e-14);
}

TEST_CASE("in a region the folded weights have its dtype, and differ by rounding") {
  Sequential net = evaluated_block(4);
  const Tensor x = randn({2, 3, 9, 7}), exact = evaluated(net, x);
  for (const auto& [low, bound] : {std::pair(DType::bf16, 0.04), std::pair(DType::f16, 0.005)}) {
    const Autocast region(Device::cpu, low);
    const Tensor folded = inferred(net, x), plain = evaluated(net, x);
    CHECK(folded.dtype() == plain.dtype());
    CHECK(relative_error(folded, exact) < bound);
    CHECK(relative_error(plain, exact) < bound);
    const uint64_t casts = autocast::cast_count();
    inferred(net, x);
    CHECK(autocast::cast_count() == casts + 1);  // of x
  }
  CHECK(relative_error(inferred(net, x), exact) < 1e-5);
}

TEST_CASE("the bias of a folded convolution in 16 bits is not rounded to them") {
  // The product is -8, exactly, and the result 1/256, as each layer alone makes it: the bias 8 + 1/256 has 12 bits.
  const auto check = [](Sequential net, const Shape& input) {
    {
      const NoGrad off;
      net.at<ConvNd>(0).weight.fill_(1);
      net.at<BatchNormNd>(1).bias.fill_(8 + 1.0 / 256);
      net.at<BatchNormNd>(1).running_var.fill_(1);
    }
    net.eval();
    const Tensor x = full(input, -8.0);
    for (DType low : {DType::f16, DType::bf16}) {
      for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        if (format == MemoryFormat::channels_last && input.size() < 4) continue;
        net.to(format);
        const Autocast region(Device::cpu, low);
        const Tensor y = inferred(net, x.to(format));
        CHECK(y.dtype() == low);
        CHECK(equal(y.to(DType::f32), full(y.shape(), 1.0 / 256)));
        CHECK(same_bits(y, evaluated(net, x.to(format))));
      }
      Sequential narrow(net);
      narrow.to(low);
      CHECK(equal(inferred(narrow, x.to(low)), evaluated(narrow, x.to(low))));
    }
  };
  check(Sequential(Conv1d(1, 8, 1, {.bias = false}), BatchNorm1d(8, {.eps = 0})), {2, 1, 5});
  check(Sequential(Conv2d(1, 1, 1, {.bias = false}), BatchNorm2d(1, {.eps = 0}), ReLU()), {2, 1, 3, 4});
  check(Sequential(Conv2d(4, 4, 1, {.groups = 4, .bias = false}), BatchNorm2d(4, {.eps = 0})), {1, 4, 6, 6});
  check(Sequential(Conv3d(1, 2, 1, {.bias = false}), BatchNorm3d(2, {.eps = 0})), {1, 1, 2, 2, 3});
}

TEST_CASE("in float16 on the CPU a folded weight is not rounded, and beside inputs of another dtype nothing is folded") {
  manual_seed(8);
  const auto check = [](Sequential net, const Shape& input) {
    vary(net);
    net.eval();
    const Tensor x = randn(input).to(DType::f16).to(DType::f32), exact = evaluated(net, x);
    const auto error = [&](const Tensor& y) { return sqrt(square(y.to(DType::f64) - exact.to(DType::f64)).mean()).item<double>(); };
    {
      const Autocast region(Device::cpu, DType::f16);
      const Tensor y = inferred(net, x);
      CHECK(y.dtype() == DType::f16);
      CHECK(error(y) < 0.9 * error(evaluated(net, x)));      // the weight of the layers is rounded
      CHECK(error(y) < 1.01 * error(exact.to(DType::f16)));  // this is only the result's rounding
      CHECK(same_bits(inferred(net, x.to(DType::f16)), y));
    }
    const NoGrad off;
    CHECK_THROWS_AS(inferred(net, x.to(DType::f16)), DTypeError);
  };
  check(Sequential(Conv1d(16, 24, 5, {.padding = 2}), BatchNorm1d(24), ReLU()), {2, 16, 30});
  check(Sequential(Conv2d(8, 32, 3, {.bias = false}), BatchNorm2d(32)), {2, 8, 9, 9});
  check(Sequential(Conv2d(16, 16, 3, {.padding = 1, .groups = 16, .padding_mode = "reflect"}), BatchNorm2d(16)), {2, 16, 9, 9});
  check(Sequential(Conv3d(4, 8, 2), BatchNorm3d(8)), {1, 4, 5, 5, 5});
}

TEST_CASE("the layers run one after the other where folding would change more than rounding") {
  manual_seed(5);
  const Tensor x = randn({2, 3, 6, 6});
  const Ops two{"conv2d", "batch_norm"};
  const auto runs_both = [&](Sequential& net) {
    CHECK(inferred_ops(net, x) == two);
    CHECK(same_bits(inferred(net, x), evaluated(net, x)));
  };
  Sequential untracked(conv3x3(3, 6), BatchNorm2d(6, {.track_running_stats = false}));
  untracked.eval();
  runs_both(untracked);
  Sequential net(conv3x3(3, 6), norm_of(6));
  net.eval();
  CHECK(inferred_ops(net, x) == Ops{"conv2d"});
  auto& second = net.at<BatchNorm2d>(1);
  {  // a factor beyond float32
    const NoGrad off;
    second.running_var.fill_(1e-30);
    second.weight.fill_(1e38);
    const Autocast region(Device::cpu, DType::f16);
    CHECK(inferred_ops(net, x) == two);
    second.weight.fill_(1e5);
  }
  CHECK(inferred_ops(net, x) == Ops{"conv2d"});
  second.weight = full({6}, std::numeric_limits<double>::infinity());
  runs_both(net);
  second.weight = full({6}, 1.0);
  net[1]->set_precision(DType::f32);
  runs_both(net);
  net[1]->clear_precision();
  {
    const Autocast region(Device::cpu,
                          AutocastOptions{.dtype = DType::bf16, .policies = OpPolicies{{"batch_norm", CastPolicy::f32}}});
    CHECK(inferred_ops(net, x) == two);
  }
  const uint64_t key = net[0]->register_forward_hook([](Module&, const Tensors&, const Tensors&) {});
  runs_both(net);
  net[0]->remove_hook(key);
  CHECK(inferred_ops(net, x) == Ops{"conv2d"});
}

TEST_CASE("errors of folded layers are those of the layers") {
  Sequential net(conv3x3(3, 6), norm_of(5));
  net.eval();
  const Tensor x = randn({2, 3, 6, 6});
  CHECK_THROWS_WITH_AS(inferred(net, x), doctest::Contains("needs 5 channels"), ShapeError);
  Sequential fits(conv3x3(3, 6), norm_of(6));
  fits.eval();
  CHECK_THROWS_AS(inferred(fits, randn({2, 4, 6, 6})), ShapeError);
  CHECK_THROWS_WITH_AS(inferred(fits, randn({3, 6, 6})), doctest::Contains("BatchNorm2d"), ShapeError);  // no batch
}

TEST_CASE("in InferenceMode a convolution keeps what its kernel makes of the weight, and follows the weight") {
  manual_seed(7);
  Conv2d layer(32, 32, 3, {.padding = 1});
  const auto agrees = [&](int64_t images, int64_t size) {
    const Tensor x = randn({images, 32, size, size});
    const double first = relative_error(inferred(layer, x), evaluated(layer, x));
    return std::max(first, relative_error(inferred(layer, x), evaluated(layer, x))) < 1e-5;
  };
  for (int round = 0; round < 2; ++round)
    for (int64_t images : {1, 3, 2}) CHECK(agrees(images, 6));
  for (int round = 0; round < 2; ++round)
    for (int64_t size : {7, 5, 9, 12, 30}) CHECK(agrees(1, size));
  {
    const NoGrad off;
    layer.weight.mul_(-2);
  }
  CHECK(agrees(1, 6));
  Conv2d copy(layer);
  copy.weight = randn({32, 32, 3, 3}) * 0.1;
  const Tensor x = randn({1, 32, 6, 6});
  CHECK(relative_error(inferred(copy, x), evaluated(copy, x)) < 1e-5);
  CHECK(agrees(1, 6));
  set_num_threads(1);
  CHECK(agrees(1, 6));
  set_num_threads(0);
  layer.to(MemoryFormat::channels_last);
  CHECK(agrees(1, 6));
  const Autocast region(Device::cpu, DType::bf16);
  const Tensor y = inferred(layer, x), plain = evaluated(layer, x);
  CHECK(relative_error(y, plain) < 0.01);
  CHECK(same_bits(inferred(layer, x), y));
  {
    const NoGrad off;
    layer.weight.mul_(0.5);
  }
  CHECK(relative_error(inferred(layer, x), evaluated(layer, x)) < 0.01);
}

TEST_CASE("images of many sizes do not have a weight laid out again and again") {
  const Tensor weight = randn({64, 64, 3, 3});
  const Window window{.dims = 2, .size = {3, 3, 1}, .padding = {1, 1, 0}};
  LaidWeights laid;
  const auto find = [&](int64_t size) {
    const Tensor x = zeros({1, 64, size, size}), y = zeros({1, 64, size, size});
    return laid.find_or_lay(weight, ConvArgs{x.view(), weight.view(), {}, window, 1, false, y.view()});
  };
  const std::vector<int64_t> sizes{6, 10, 14, 20, 28};
  std::vector<Tensor> first;
  for (int64_t size : sizes) first.push_back(find(size));
  for (int round = 0; round < 2; ++round)
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Tensor again = find(sizes[i]);
      CHECK(again.defined() == first[i].defined());
      if (again.defined()) CHECK(again.data_ptr() == first[i].data_ptr());
    }
  // Twice in a row: laid out, unless that gains nothing.
  const bool gains = find(6).defined() || find(6).defined();
  for (int64_t size : sizes) {
    find(size);
    CHECK(find(size).defined() == gains);
  }
  if (gains) {
    const NoGrad off;
    find(6);
    const Tensor before = find(6);
    weight.mul_(2);
    CHECK(find(6).data_ptr() != before.data_ptr());
  }
}

TEST_CASE("threads may run one model in InferenceMode") {
  Sequential net = evaluated_block(6);
  const Tensor x = randn({2, 3, 9, 7}), expected = inferred(net, x);
  Sequential fresh(net);
  std::vector<Tensor> results(4);
  std::vector<std::thread> threads;
  for (Tensor& result : results) threads.emplace_back([&] { result = inferred(fresh, x); });
  for (std::thread& t : threads) t.join();
  for (const Tensor& result : results) CHECK(same_bits(result, expected));
}
