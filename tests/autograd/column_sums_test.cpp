// SPDX-License-Identifier: Apache-2.0
// The sums of a gradient's columns, which travel with it to the op that added a bias.
#include "framework/autograd/column_sums.h"

#include <doctest/doctest.h>

#include <functional>

#include "framework/autograd/autograd.h"
#include "framework/ops/ops.h"
#include "tests/support/doubles.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

const TensorOptions kWide{.dtype = DType::f64};

// An op of x [2, 3, 4] and a bias [5].
using Layer = std::function<Tensor(const Tensor& x, const Tensor& bias)>;

// The gradient of the bias, for a gradient of ones with which sums of sevens were left, and `change` did something.
V bias_gradient(const Layer& layer, const std::function<void(const Tensor& g)>& change = {}) {
  const Tensor x = ones({2, 3, 4}, kWide).set_requires_grad(), bias = zeros({5}, kWide).set_requires_grad();
  const Tensor y = layer(x, bias), g = ones(y.shape(), kWide);
  leave_column_sums(g, full({y.size(-1)}, 7, kWide));
  if (change) change(g);
  y.backward(g);
  return values(bias.grad());
}

Tensor weight(int64_t rows, int64_t columns) { return ones({rows, columns}, kWide); }

const V kTaken(5, 7.0), kSummed(5, 6.0);

}  // namespace

TEST_CASE("sums are taken once, and only of a gradient that was not written to since") {
  const Tensor g = ones({2, 3}), sums = ones({3});
  CHECK(!take_column_sums(g).defined());
  leave_column_sums(g, sums);
  CHECK(take_column_sums(g).same(sums));
  CHECK(!take_column_sums(g).defined());
  leave_column_sums(g, Tensor());
  CHECK(!take_column_sums(g).defined());
  leave_column_sums(g, sums);
  g.mul_(2.0);
  CHECK(!take_column_sums(g).defined());
  leave_column_sums(g, sums);
  g.set_data(ones({2, 3}));
  CHECK(!take_column_sums(g).defined());
  leave_column_sums(g, sums);
  *g.data_ptr<float>() = 5;  // a caller that has the pointer may write
  CHECK(!take_column_sums(g).defined());
}

TEST_CASE("a bias that was added to each row takes the sums") {
  const Layer layers[] = {
      [](const Tensor& x, const Tensor& b) { return linear(x.flatten(0, 1), weight(5, 4), b); },
      [](const Tensor& x, const Tensor& b) { return linear(x, weight(5, 4), b); },  // through two views
      [](const Tensor& x, const Tensor& b) { return linear(x, weight(5, 4).set_requires_grad(), b); },
      [](const Tensor& x, const Tensor& b) { return linear(x, weight(5, 4), b).reshape({1, 6, 5}); },
      [](const Tensor& x, const Tensor& b) { return addmm(b, x.flatten(0, 1), weight(4, 5)); },
      [](const Tensor& x, const Tensor& b) { return addmm(b, x.flatten(0, 1), weight(4, 5).set_requires_grad()).unsqueeze(0); },
      [](const Tensor& x, const Tensor& b) {
        return mlp(x, {{weight(3, 4), zeros({3}, kWide), Activation::relu}, {weight(5, 3), b, Activation::none}});
      }};
  for (const Layer& layer : layers) {
    CHECK(bias_gradient(layer) == kTaken);
    CHECK(bias_gradient(layer, [](const Tensor& g) { take_column_sums(g); }) == kSummed);
    CHECK(bias_gradient(layer, [](const Tensor& g) { g.mul_(1.0); }) == kSummed);
  }
}

TEST_CASE("other ops do not take the sums, and a hook's tensor has none") {
  const Layer layers[] = {
      [](const Tensor& x, const Tensor& b) { return linear(x, weight(5, 4), b, /*relu=*/true); },
      [](const Tensor& x, const Tensor& b) { return addmm(b.expand({6, 5}), x.flatten(0, 1), weight(4, 5)); },
      [](const Tensor& x, const Tensor& b) { return linear(x, weight(5, 4), b).reshape({5, 6}); },
      [](const Tensor& x, const Tensor& b) { return linear(x, weight(5, 4), b) * ones({5}, kWide); },
      [](const Tensor& x, const Tensor& b) { return mlp(x, {{weight(5, 4), b, Activation::relu}}); },
      [](const Tensor& x, const Tensor& b) {
        const Tensor y = linear(x, weight(5, 4), b);
        y.register_hook([](const Tensor& g) { return g.clone(); });
        return y;
      },
      [](const Tensor& x, const Tensor& b) {
        const Tensor y = linear(x, weight(5, 4), b);
        y.register_hook([](const Tensor& g) {
          g.mul_(1.0);
          return Tensor();
        });
        return y;
      }};
  for (const Layer& layer : layers) CHECK(bias_gradient(layer) == kSummed);
  const Layer doubled = [](const Tensor& x, const Tensor& b) { return addmm(b, x.flatten(0, 1), weight(4, 5), 2.0); };
  CHECK(bias_gradient(doubled) == V(5, 12.0));
}

TEST_CASE("the sum of two gradients has no sums of its own") {
  const Tensor x = ones({3, 4}, kWide), bias = zeros({5}, kWide).set_requires_grad();
  const Tensor y = linear(x, weight(5, 4), bias), g = ones({3, 5}, kWide);
  leave_column_sums(g, full({5}, 7, kWide));
  backward({y, sum(y)}, {g, Tensor()});
  CHECK(values(bias.grad()) == V(5, 6.0));
}

TEST_CASE("a recorded backward computes the sums by ops, which can be differentiated") {
  const Tensor x = ones({3, 4}, kWide), bias = zeros({5}, kWide).set_requires_grad();
  const Tensor g = ones({3, 5}, kWide).set_requires_grad();
  leave_column_sums(g, full({5}, 7, kWide));
  const Tensor d = grad({linear(x, weight(5, 4), bias)}, {bias}, {g}, {.create_graph = true})[0];
  CHECK(values(d) == V(5, 3.0));
  sum(d).backward();
  CHECK(values(g.grad()) == V(15, 1.0));
}
