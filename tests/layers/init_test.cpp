// SPDX-License-Identifier: Apache-2.0
#include "layers/module/init.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/ops/ops.h"
#include "layers/layers.h"

using namespace halfstep;

namespace {

struct Moments {
  double mean = 0, std = 0, largest = 0;
  explicit Moments(const Tensor& t) {
    const std::vector<double> v = t.to(DType::f64).to_vector<double>();
    for (double x : v) mean += x / double(v.size()), largest = std::max(largest, std::abs(x));
    for (double x : v) std += (x - mean) * (x - mean) / double(v.size());
    std = std::sqrt(std);
  }
};
bool near(double a, double b, double share) { return std::abs(a - b) <= share * std::abs(b); }

}  // namespace

TEST_CASE("calculate_gain: PyTorch's factors") {
  for (const char* name : {"linear", "conv1d", "conv3d", "conv_transpose2d", "sigmoid"}) CHECK(init::calculate_gain(name) == 1);
  CHECK(init::calculate_gain("tanh") == 5.0 / 3);
  CHECK(init::calculate_gain("relu") == std::sqrt(2.0));
  CHECK(init::calculate_gain("leaky_relu") == std::sqrt(2 / (1 + 1e-4)));
  CHECK(init::calculate_gain("leaky_relu", 0.5) == std::sqrt(2 / 1.25));
  CHECK(init::calculate_gain("selu") == 0.75);
  CHECK_THROWS_AS(init::calculate_gain("softmax"), ValueError);
}

TEST_CASE("random initialisers have the bounds and deviations of their fans") {
  Generator g(3);
  const Tensor w = empty({200, 50, 2});  // fan in 100, fan out 400
  const auto after = [&](const auto& fill) {
    fill();
    return Moments(w);
  };
  const double uniform = std::sqrt(3.0);  // a bound over its deviation
  const auto is_uniform = [&](const Moments& m, double std) {
    return near(m.std, std, 0.02) && m.largest <= std * uniform * (1 + 1e-6) && near(m.largest, std * uniform, 0.01);
  };
  const auto is_normal = [&](const Moments& m, double std) {
    return near(m.std, std, 0.02) && m.largest > 3 * std && std::abs(m.mean) < 0.05 * std;
  };
  CHECK(is_uniform(after([&] { init::kaiming_uniform_(w, 0, "fan_in", "relu", &g); }), std::sqrt(2.0) / 10));
  CHECK(is_uniform(after([&] { init::kaiming_uniform_(w, 0.5, "fan_out", "leaky_relu", &g); }), std::sqrt(2 / 1.25) / 20));
  CHECK(is_normal(after([&] { init::kaiming_normal_(w, 0, "fan_out", "linear", &g); }), 1.0 / 20));
  CHECK(is_normal(after([&] { init::kaiming_normal_(w, 0, "fan_in", "tanh", &g); }), 5.0 / 30));
  CHECK(is_uniform(after([&] { init::xavier_uniform_(w, 2, &g); }), 2 * std::sqrt(2.0 / 500)));
  CHECK(is_normal(after([&] { init::xavier_normal_(w, 1, &g); }), std::sqrt(2.0 / 500)));
  CHECK(is_normal(after([&] { init::normal_(w, 0, 3, &g); }), 3));
  const Moments m = after([&] { init::uniform_(w, 1, 3, &g); });
  CHECK((near(m.mean, 2, 0.01) && near(m.std, 1 / std::sqrt(3.0), 0.02) && m.largest <= 3));
  CHECK_THROWS_AS(init::kaiming_normal_(w, 0, "fan_both"), ValueError);
  CHECK_THROWS_AS(init::uniform_(w, 2, 1), ValueError);
  CHECK_THROWS_AS(init::normal_(w, 0, -1), ValueError);
}

TEST_CASE("trunc_normal_ stays within its bounds") {
  Generator g(4);
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor w = empty({20000}, {.dtype = dtype});
    init::trunc_normal_(w, 0, 1, -2, 2, &g);
    const Moments m(w);
    CHECK(m.largest <= 2);
    CHECK(m.largest > 1.9);
    CHECK(near(m.std, 0.8796, 0.02));  // of N(0, 1) within 2
    init::trunc_normal_(w, 1, 0.5, 0.75, 3, &g);
    const double least = w.min().to(DType::f64).item<double>();
    CHECK(least >= 0.75);
    CHECK(least < 0.76);
    init::trunc_normal_(w, 0.5, 0, -1, 1, &g);
    CHECK((w == 0.5).all().item<bool>());
  }
  CHECK_THROWS_AS(init::trunc_normal_(empty({2}), 0, 1, 2, 1), ValueError);
}

TEST_CASE("orthogonal_ makes orthonormal rows or columns, spread evenly over signs") {
  Generator g(5);
  for (const Shape& shape : {Shape{4, 4}, Shape{3, 7}, Shape{7, 3}, Shape{4, 2, 3}}) {
    CAPTURE(shape);
    const Tensor w = empty(shape, {.dtype = DType::f64});
    init::orthogonal_(w, 2, &g);
    const Tensor flat = w.reshape({shape[0], -1});
    const bool wide = flat.size(0) <= flat.size(1);
    const Tensor product = wide ? flat.mm(flat.t()) : flat.t().mm(flat);
    CHECK((product - eye(product.size(0), {.dtype = DType::f64}) * 4).abs().max().item<double>() < 1e-12);
  }
  double positive = 0;
  for (int i = 0; i < 200; ++i) {
    const Tensor w = empty({2, 2});
    init::orthogonal_(w, 1, &g);
    positive += w.select(0, 0).select(0, 0).item<float>() > 0;
  }
  CHECK(positive > 70);  // of 200, half expected: the signs of R are taken out
  CHECK(positive < 130);
}

TEST_CASE("constant, eye, dirac and sparse") {
  const Tensor w = empty({2, 3});
  init::constant_(w, 0.5);
  CHECK(w.to_vector<float>() == std::vector<float>(6, 0.5f));
  init::ones_(w);
  CHECK(w.to_vector<float>() == std::vector<float>(6, 1));
  init::zeros_(w);
  CHECK(w.to_vector<float>() == std::vector<float>(6, 0));
  init::eye_(w);
  CHECK(w.to_vector<float>() == std::vector<float>{1, 0, 0, 0, 1, 0});
  CHECK_THROWS_AS(init::eye_(ones({2})), ShapeError);

  // A convolution of a dirac's weight passes its input on.
  Conv2d same(4, 4, 3, {.padding = "same", .groups = 2, .bias = false});
  init::dirac_(same.weight, 2);
  const Tensor x = randn({1, 4, 5, 5});
  CHECK(same(x).to_vector<float>() == x.to_vector<float>());
  CHECK_THROWS_AS(init::dirac_(ones({3, 2, 2}), 2), ValueError);
  CHECK_THROWS_AS(init::dirac_(ones({3, 2})), ShapeError);

  Generator g(6);
  const Tensor sparse = empty({10, 40});
  init::sparse_(sparse, 0.25, 0.5, &g);
  for (int64_t c = 0; c < 40; ++c) CHECK((sparse.select(1, c) == 0.0).sum().item<int64_t>() == 3);  // 2.5 rounded up
  CHECK(near(Moments(sparse).std, 0.5 * std::sqrt(0.7), 0.2));
  CHECK_THROWS_AS(init::sparse_(sparse, 1.5), ValueError);
}

TEST_CASE("initialisers change a parameter in place, unrecorded, and pass over meta") {
  Linear layer(3, 4);
  init::zeros_(layer.weight);
  init::orthogonal_(layer.weight);
  CHECK(layer.weight.is_leaf());
  CHECK(layer.weight.requires_grad());
  CHECK(layer.weight.abs().max().item<float>() > 0);
  const Tensor there = empty({4, 3, 2}, {.device = Device::meta});
  for (const auto fill : {+[](const Tensor& w) { init::orthogonal_(w); }, +[](const Tensor& w) { init::dirac_(w); },
                          +[](const Tensor& w) { init::trunc_normal_(w); }, +[](const Tensor& w) { init::kaiming_normal_(w); }})
    CHECK_NOTHROW(fill(there));
}
