// SPDX-License-Identifier: Apache-2.0
#include "layers/layers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "framework/tensor/memory.h"

using namespace halfstep;

TEST_CASE("Linear: PyTorch's shapes, initial distribution and value") {
  Generator generator(7);
  Linear layer(400, 300, LinearOptions{}, &generator);
  CHECK(layer.weight.shape() == Shape{300, 400});
  CHECK(layer.bias.shape() == Shape{300});
  const double bound = 1 / std::sqrt(400.0);
  for (const Tensor& p : layer.parameters()) {
    double sum = 0, squares = 0, lowest = 1, highest = -1;
    for (double v : p.to_vector<double>()) {
      sum += v, squares += v * v, lowest = std::min(lowest, v), highest = std::max(highest, v);
    }
    const double n = double(p.numel()), sigma = bound / std::sqrt(3.0);  // of U(-bound, bound)
    CAPTURE(p.label());
    CHECK(lowest >= -bound);
    CHECK(highest <= bound);
    CHECK(highest - lowest > 2 * bound * (1 - 10 / n));
    CHECK(std::abs(sum / n) < 4 * sigma / std::sqrt(n));
    CHECK(std::abs(squares / n - sigma * sigma) < 4 * sigma * sigma * std::sqrt(0.8 / n));  // var(u^2) = 0.8 sigma^4
  }
  Generator again(7);
  Linear twin(400, 300, LinearOptions{}, &again);
  CHECK(twin.weight.to_vector<float>() == layer.weight.to_vector<float>());

  const Tensor x = randn({2, 5, 400});
  const Tensor y = layer(x), want = matmul(x, layer.weight.t()) + layer.bias;
  CHECK(y.shape() == Shape{2, 5, 300});
  CHECK(max((y - want).abs()).item<float>() < 1e-5f);
  CHECK(layer.forward_relu(x).to_vector<float>() == relu(y).to_vector<float>());
  CHECK_THROWS_WITH_AS(Linear(0, 3), "[Linear] in_features must be >= 1, got 0", ValueError);
}

TEST_CASE("parameters are counted as parameter memory") {
  const auto live = [] { return allocator(Device::cpu).stats().live_by_tag[size_t(MemoryTag::parameters)]; };
  const size_t before = live();
  const Linear layer(64, 64);
  CHECK(live() - before >= (64 * 64 + 64) * 4);
}

TEST_CASE("init: kaiming and xavier bounds") {
  Generator generator(3);
  const Tensor w = empty({200, 50, 2});
  const auto largest = [&] { return w.abs().max().item<double>(); };
  init::kaiming_uniform_(w, std::sqrt(5.0), "fan_in", "leaky_relu", &generator);
  CHECK(largest() <= 0.1 * (1 + 1e-6));
  CHECK(largest() > 0.0995);
  init::kaiming_uniform_(w, 0, "fan_in", "leaky_relu", &generator);
  CHECK(std::abs(largest() - std::sqrt(6.0 / 100)) < 2e-3);
  init::xavier_uniform_(w, 2, &generator);
  CHECK(std::abs(largest() - 2 * std::sqrt(6.0 / 500)) < 2e-3);
  CHECK_THROWS_WITH_AS(init::kaiming_uniform_(ones({3})), "[kaiming_uniform_] needs at least 2 dimensions, [out, in, ...], got [3]",
                       ShapeError);
}

TEST_CASE("Sequential runs a Linear and the ReLU after it as one, with the same values and gradients") {
  manual_seed(5);
  const auto a = std::make_shared<Linear>(6, 5), b = std::make_shared<Linear>(5, 4), c = std::make_shared<Linear>(4, 3, false);
  Sequential seq(a, std::make_shared<ReLU>(), b, std::make_shared<Tanh>(), c, std::make_shared<ReLU>());
  const Tensor x = randn({7, 6});
  const Tensor fused = seq(x);
  fused.sum().backward();
  std::vector<std::vector<float>> grads;
  for (const Tensor& p : seq.parameters()) grads.push_back(p.grad().to_vector<float>());
  seq.zero_grad();
  const Tensor plain = relu((*c)(tanh((*b)(relu((*a)(x))))));
  plain.sum().backward();
  CHECK(fused.to_vector<float>() == plain.to_vector<float>());
  for (size_t i = 0; i < grads.size(); ++i) CHECK(seq.parameters()[i].grad().to_vector<float>() == grads[i]);
}

TEST_CASE("Sequential runs several Linears as one mlp, with the values and gradients of the chain, bit for bit") {
  manual_seed(6);
  for (Activation act : {Activation::none, Activation::relu, Activation::gelu}) {
    for (bool last_too : {false, true}) {
      for (const Shape& shape : {Shape{19, 12}, Shape{3, 12}, Shape{4, 5, 12}}) {
        const auto a = std::make_shared<Linear>(12, 9), b = std::make_shared<Linear>(9, 7, false),
                   c = std::make_shared<Linear>(7, 5);
        const auto between = [&]() -> std::shared_ptr<Module> {
          if (act == Activation::relu) return std::make_shared<ReLU>();
          return std::make_shared<GELU>("tanh");
        };
        Sequential seq;
        for (const auto& layer : {a, b, c}) {
          seq.push_back(layer);
          if (act != Activation::none && (last_too || layer != c)) seq.push_back(between());
        }
        const auto chain = [&](Tensor x) {
          for (const auto& layer : {a, b, c}) {
            x = (*layer)(x);
            if (act != Activation::none && (last_too || layer != c)) x = act == Activation::relu ? relu(x) : gelu_tanh(x);
          }
          return x;
        };
        const Tensor x = randn(shape).set_requires_grad(), weight = randn({5});
        const auto run = [&](const auto& net) {
          seq.zero_grad();
          x.zero_grad();
          const Tensor y = net(x);
          (y * weight).sum().backward();
          std::vector<std::vector<float>> all{y.to_vector<float>(), x.grad().to_vector<float>()};
          for (const Tensor& p : seq.parameters()) all.push_back(p.grad().to_vector<float>());
          return all;
        };
        CHECK(run([&](const Tensor& in) { return seq(in); }) == run(chain));
      }
    }
  }
}

TEST_CASE("an mlp computes no gradient that is not wanted") {
  manual_seed(8);
  const Tensor x = randn({6, 4});
  for (int frozen = 0; frozen < 16; ++frozen) {
    Linear a(4, 5), b(5, 3);
    const Tensors all{a.weight, a.bias, b.weight, b.bias};
    for (int i = 0; i < 4; ++i) all[size_t(i)].set_requires_grad(!(frozen >> i & 1));
    const std::vector<MlpLayer> layers{{a.weight, a.bias, Activation::relu}, {b.weight, b.bias}};
    const Tensor y = mlp(x, layers);
    CHECK(y.requires_grad() == (frozen != 15));
    if (frozen == 15) continue;
    y.sum().backward();
    std::vector<std::vector<float>> got;
    for (const Tensor& t : all) {
      CHECK(t.grad().defined() == t.requires_grad());
      if (t.grad().defined()) got.push_back(t.grad().to_vector<float>());
      t.zero_grad();
    }
    linear(linear(x, a.weight, a.bias, true), b.weight, b.bias).sum().backward();
    for (const Tensor& t : all) {
      if (!t.requires_grad()) continue;
      CHECK(t.grad().to_vector<float>() == got.front());
      got.erase(got.begin());
    }
  }
  Linear a(4, 5), b(5, 3);
  const Tensor none = mlp(empty({0, 4}), {{a.weight, a.bias, Activation::gelu}, {b.weight, b.bias}});
  CHECK(none.shape() == Shape{0, 3});
  none.sum().backward();
  for (const Tensor& t : {a.weight, a.bias, b.weight, b.bias}) CHECK(t.grad().abs().max().item<float>() == 0);
  CHECK_THROWS_WITH_AS(mlp(x, {}), "[mlp] needs at least one layer", ValueError);
  const Tensor w = ones({3, 5});
  CHECK_THROWS_WITH_AS(mlp(x, {{w}}), "[mlp] weight 0 must be [out, 4] to match the input, got [3, 5]", ShapeError);
}

TEST_CASE("Sequential runs a convolution and the ReLU after it as one, with the same values and gradients") {
  manual_seed(7);
  const auto a = std::make_shared<Conv2d>(3, 6, 3, ConvLayerOptions{.padding = 1, .padding_mode = "circular"}),
             b = std::make_shared<Conv2d>(6, 4, 1, ConvLayerOptions{.bias = false});
  const auto pool = std::make_shared<MaxPool2d>(2);
  Sequential seq(a, std::make_shared<ReLU>(), std::make_shared<ReLU>(), pool, b, std::make_shared<ReLU>());
  const Tensor x = randn({2, 3, 6, 6});
  const auto trained = [&](const Tensor& y) {
    y.sum().backward();
    std::vector<std::vector<float>> out{y.to_vector<float>()};
    for (const Tensor& p : seq.parameters()) out.push_back(p.grad().to_vector<float>());
    seq.zero_grad();
    return out;
  };
  const auto plain = [&] { return relu((*b)((*pool)(relu(relu((*a)(x)))))); };
  CHECK(trained(seq(x)) == trained(plain()));
  // There is no memory for what lies between the two. A convolution that the library has no code for works in memory of its own.
  const auto peak = [](const auto& forward) {
    Allocator& memory = allocator(Device::cpu);
    const size_t before = memory.stats().live;
    memory.reset_peak();
    forward();
    return memory.stats().peak - before;
  };
  const Tensor image = randn({2, 6, 64, 64});
  const size_t result = 2 * 4 * 64 * 64 * sizeof(float);
  const size_t work = peak([&] { (*b)(image); }) - result;
  CHECK(peak([&] { b->relu(image); }) + result <= peak([&] { relu((*b)(image)); }) + std::min(work, result));

  struct Doubled : Conv2d {
    using Conv2d::Conv2d;
    Tensor forward(const Tensor& in) override { return Conv2d::forward(in) * 2.0; }
  };
  const auto doubled = std::make_shared<Doubled>(3, 2, 1);
  Sequential derived(doubled, std::make_shared<ReLU>());
  CHECK(derived(x).to_vector<float>() == relu(conv2d(x, doubled->weight, doubled->bias) * 2.0).to_vector<float>());
}

TEST_CASE("Sequential leaves a class derived from Linear to its own forward") {
  struct Doubled : Linear {
    using Linear::Linear;
    Tensor forward(const Tensor& x) override { return Linear::forward(x) * 2.0; }
  };
  const auto layer = std::make_shared<Doubled>(3, 3);
  Sequential seq(layer, std::make_shared<ReLU>());
  const Tensor x = randn({2, 3});
  CHECK(seq(x).to_vector<float>() == relu(linear(x, layer->weight, layer->bias) * 2.0).to_vector<float>());
  CHECK(Sequential()(x).to_vector<float>() == x.to_vector<float>());
}

TEST_CASE("Dropout: training zeroes a share p and scales the rest, eval passes through") {
  manual_seed(11);
  Dropout layer(0.25);
  const Tensor x = ones({200, 100});
  int64_t zeros = 0;
  for (float v : layer(x).to_vector<float>()) {
    if (v == 0)
      ++zeros;
    else
      CHECK(v == doctest::Approx(1 / 0.75));
  }
  CHECK(std::abs(double(zeros) / 20000 - 0.25) < 4 * std::sqrt(0.25 * 0.75 / 20000));
  layer.eval();
  CHECK(layer(x).to_vector<float>() == x.to_vector<float>());
  CHECK_THROWS_WITH_AS(Dropout(1.5), "[Dropout] p must be in [0, 1], got 1.5", ValueError);
}

TEST_CASE("layers without parameters are their ops") {
  const Tensor x = randn({2, 3, 4});
  const auto same = [](const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && a.to_vector<float>() == b.to_vector<float>();
  };
  CHECK(same(GELU()(x), gelu(x)));
  CHECK(same(GELU("tanh")(x), gelu_tanh(x)));
  CHECK(same(Tanh()(x), tanh(x)));
  CHECK(same(Sigmoid()(x), sigmoid(x)));
  CHECK(same(SiLU()(x), silu(x)));
  CHECK(same(Identity()(x), x));
  CHECK(same(Softmax(1)(x), softmax(x, 1)));
  CHECK(same(Flatten()(x), x.reshape({2, 12})));
  CHECK(GELU("tanh").describe() == "GELU(approximate='tanh')");
  CHECK_THROWS_WITH_AS(GELU("fast"), "[GELU] approximate must be \"none\" or \"tanh\", got \"fast\"", ValueError);
  CHECK(MSELoss()(x, x * 0.0).item<float>() == doctest::Approx((x * x).mean().item<float>()));
  const Tensor logits = randn({4, 3}), target = tensor({0, 2, 1, 1}, {.dtype = DType::i64});
  CHECK(CrossEntropyLoss()(logits, target).item<float>() == cross_entropy(logits, target).item<float>());
  // A loss that knows where backward begins makes the same gradient in its own pass.
  const CrossEntropyLoss smoothed({.reduction = Reduction::sum, .label_smoothing = 0.1});
  const Tensor scores = logits.clone().set_requires_grad(), seed = full({}, 3.0);
  const auto gradient = [&](const Tensor& loss) {
    scores.zero_grad();
    loss.backward(seed);
    return scores.grad().to_vector<float>();
  };
  CHECK(gradient(smoothed.with_seed(scores, target, seed)) == gradient(smoothed(scores, target)));
  // A class that derives from one of these and computes something else is never passed over.
  struct Focal : CrossEntropyLoss {
    Tensor operator()(const Tensor& output, const Tensor& y) const override {
      const Tensor loss = CrossEntropyLoss::operator()(output, y);
      return loss * loss;
    }
  };
  struct Scaled : FunctionLoss {
    Scaled()
        : FunctionLoss("Scaled()", [](const Tensor& a, const Tensor& b, const Tensor& s) { return mse_loss(a, b, "mean", s); }) {}
    Tensor operator()(const Tensor& output, const Tensor& y) const override { return FunctionLoss::operator()(output, y) * 3; }
  };
  CHECK(gradient(Focal().with_seed(scores, target, seed)) == gradient(Focal()(scores, target)));
  CHECK(Focal().with_seed(scores, target, seed).item() == Focal()(scores, target).item());
  const Tensor ones = ones_like(scores);
  CHECK(gradient(Scaled().with_seed(scores, ones, seed)) == gradient(Scaled()(scores, ones)));
}
