// SPDX-License-Identifier: Apache-2.0
// Views share memory with their base, read and write through it, and pass gradients back.
#include <doctest/doctest.h>

#include "framework/autograd/autograd.h"
#include "framework/ops/ops.h"
#include "tests/support/doubles.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

Tensor iota(const Shape& shape) { return arange(double(numel(shape)), {.dtype = DType::f32}).reshape(shape); }

}  // namespace

TEST_CASE("every view shares memory, and writes go both ways") {
  const Tensor t = iota({2, 3});
  const Tensor views[] = {t.view({3, 2}), t.t(),       t.permute({1, 0}),   t.unsqueeze(1), t.narrow(1, 1, 2), t.slice(1, 0, 3, 2),
                          t.select(0, 1), t.flatten(), t.expand({4, 2, 3}), t.squeeze(0),   t.detach(),        t.reshape({6, 1})};
  for (const Tensor& v : views) CHECK(v.shares_memory_with(t));
  t.fill_(5);
  for (const Tensor& v : views)
    for (double x : values(v)) CHECK(x == 5);
  t.select(0, 1).narrow(0, 0, 1).fill_(9);
  CHECK(values(t) == V{5, 5, 5, 9, 5, 5});
}

TEST_CASE("shapes and strides of views") {
  const Tensor t = iota({2, 3, 4});
  CHECK(t.permute({2, 0, 1}).shape() == Shape{4, 2, 3});
  CHECK(t.permute({2, 0, 1}).strides() == Strides{1, 12, 4});
  CHECK(t.transpose(-1, 0).shape() == Shape{4, 3, 2});
  CHECK(t.flatten(1).shape() == Shape{2, 12});
  CHECK(t.flatten(0, 1).shape() == Shape{6, 4});
  CHECK(t.unsqueeze(-1).shape() == Shape{2, 3, 4, 1});
  CHECK(t.unsqueeze(0).squeeze(0).shape() == t.shape());
  CHECK(t.squeeze(1).shape() == t.shape());
  CHECK(t.select(1, -1).shape() == Shape{2, 4});
  CHECK(values(t.select(1, -1)) == V{8, 9, 10, 11, 20, 21, 22, 23});
  CHECK(t[1][2][3].item<float>() == 23);
  CHECK(t.slice(2, -3, -1).shape() == Shape{2, 3, 2});
  CHECK(t.slice(2, 1, 100).shape() == Shape{2, 3, 3});
  CHECK(t.slice(2, 3, 1).shape() == Shape{2, 3, 0});
  CHECK(values(t[0][0].slice(0, 0, 4, 3)) == V{0, 3});
  CHECK(t.expand({5, -1, -1, 4}).shape() == Shape{5, 2, 3, 4});
  CHECK(scalar(3).expand({2, 2}).strides() == Strides{0, 0});
  CHECK(t.reshape({4, -1}).shape() == Shape{4, 6});
  CHECK(scalar(1).t().dim() == 0);
  CHECK(scalar(1).flatten().shape() == Shape{1});
}

TEST_CASE("reshape copies only where strides force it, and view refuses to") {
  const Tensor t = iota({4, 6});
  CHECK(t.slice(0, 0, 4, 2).reshape({2, 2, 3}).shares_memory_with(t));
  CHECK(t.t().unsqueeze(1).reshape({6, 4}).shares_memory_with(t));
  CHECK(t.transpose(0, 1).reshape({3, 2, 4}).shares_memory_with(t));
  const Tensor copy = t.t().reshape({24});
  CHECK(!copy.shares_memory_with(t));
  CHECK(values(copy)[1] == 6);
  CHECK_THROWS_WITH_AS(t.t().view({24}),
                       "[view] shape [6, 4] with strides [1, 6] cannot be seen as [24] without a copy\nhelp: use reshape",
                       ShapeError);
  CHECK_THROWS_WITH_AS(t.reshape({5, 5}), "[reshape] shape [4, 6] (24 elements) cannot become [5, 5]", ShapeError);
  CHECK_THROWS_WITH_AS(t.reshape({-1, -1}), "[reshape] only one size may be -1, got [-1, -1]", ShapeError);
  CHECK_THROWS_AS(t.reshape({-1, 5}), ShapeError);
}

TEST_CASE("reshape of any strided layout reads the same elements as of a copy") {
  const Tensor base = iota({4, 6, 2});
  const Tensor layouts[] = {base,
                            base.transpose(0, 1),
                            base.permute({2, 0, 1}),
                            base.slice(1, 0, 6, 2),
                            base.narrow(0, 1, 2),
                            base.slice(1, 1, 5).transpose(1, 2),
                            base.select(2, 1),
                            base.select(2, 1).t(),
                            base.unsqueeze(2).expand({4, 6, 3, 2}),
                            base.slice(0, 0, 4, 3).slice(1, 0, 6, 5)};
  for (const Tensor& t : layouts) {
    const int64_t n = t.numel();
    for (const Shape& shape : {Shape{n}, Shape{2, n / 2}, Shape{n / 2, 1, 2}, Shape{1, n, 1}, Shape{2, 2, n / 4}}) {
      const Tensor r = t.reshape(shape);
      CHECK(r.shape() == shape);
      CHECK(values(r) == values(t));
    }
  }
}

TEST_CASE("wrong view arguments are refused with the shape in the text") {
  const Tensor t = iota({2, 3});
  CHECK_THROWS_WITH_AS(t.permute({0}), "[permute] needs one entry per dimension of [2, 3], got [0]", ShapeError);
  CHECK_THROWS_WITH_AS(t.permute({0, 0}), "[permute] dimension 0 appears twice in [0, 0]", ValueError);
  CHECK_THROWS_WITH_AS(t.expand({2, 4}), "[expand] shape [2, 3] cannot be expanded to [2, 4]", ShapeError);
  CHECK_THROWS_WITH_AS(t.expand({3}), "[expand] shape [2, 3] has more dimensions than [3]", ShapeError);
  CHECK_THROWS_WITH_AS(t.expand({-1, 2, 3}), "[expand] shape [2, 3] cannot be expanded to [-1, 2, 3]", ShapeError);
  CHECK_THROWS_WITH_AS(t.narrow(1, 2, 2), "[narrow] [2, 4) must lie inside dimension 1 of [2, 3]", IndexError);
  CHECK_THROWS_WITH_AS(t[2], "[select] index 2 is outside dimension 0 of [2, 3]", IndexError);
  CHECK_THROWS_WITH_AS(t.slice(0, 0, 2, 0), "[slice] step must be positive, got 0", ValueError);
  CHECK_THROWS_WITH_AS(t.transpose(0, 2), "[transpose] dim must lie in [-2, 1], got 2", IndexError);
  CHECK_THROWS_WITH_AS(iota({2, 2, 2}).t(), "[t] needs at most 2 dimensions, got [2, 2, 2]", ShapeError);
  CHECK_THROWS_AS(scalar(1)[0], ShapeError);
}

TEST_CASE("gradients of views land where the view took from") {
  const Tensor x = iota({2, 3}).set_requires_grad();
  auto gradient = [&](const Tensor& v) { return values(grad({sum(v * iota(v.shape()))}, {x})[0]); };
  CHECK(gradient(x.t()) == V{0, 2, 4, 1, 3, 5});
  CHECK(gradient(x.slice(1, 0, 3, 2)) == V{0, 0, 1, 2, 0, 3});
  CHECK(gradient(x[1]) == V{0, 0, 0, 0, 1, 2});
  CHECK(gradient(x.expand({2, 2, 3})) == V{6, 8, 10, 12, 14, 16});
  CHECK(gradient(x.t().reshape({6})) == V{0, 2, 4, 1, 3, 5});
  CHECK(gradient(x.unsqueeze(0).flatten(0, 1).narrow(0, 0, 1)) == V{0, 1, 2, 0, 0, 0});
}

TEST_CASE("a view outlives its base") {
  Tensor v;
  {
    const Tensor t = iota({4});
    v = t.narrow(0, 2, 2);
  }
  CHECK(values(v) == V{2, 3});
}

TEST_CASE("gradients of parts that lie side by side are the whole's without a copy, and only those") {
  for (const int64_t dim : {0, 1, 2}) {
    CAPTURE(dim);
    const Tensor x = randn({4, 6, 5}).set_requires_grad(), g = randn({4, 6, 5});
    const Tensors parts = split(x, {1, 2, x.size(dim) - 3}, dim), of_g = split(g, {1, 2, x.size(dim) - 3}, dim);
    const Tensor whole = grad(parts, {x}, of_g)[0];
    CHECK(whole.shares_memory_with(g));
    CHECK(equal(whole, g));
    // In another order, of several tensors, or one of them alone.
    const Tensor moved = grad(split(x, 2, 0), {x}, {split(g, 2, 0)[1], split(g, 2, 0)[0]})[0];
    CHECK(equal(moved, cat({g.narrow(0, 2, 2), g.narrow(0, 0, 2)}, 0)));
    Tensors apart;
    for (const Tensor& p : of_g) apart.push_back(p.clone());
    CHECK(equal(grad(split(x, {1, 2, x.size(dim) - 3}, dim), {x}, apart)[0], g));
    const Tensor alone = grad({split(x, 2, 0)[1]}, {x}, {g.narrow(0, 2, 2)})[0];
    CHECK(equal(alone, cat({zeros({2, 6, 5}), g.narrow(0, 2, 2)}, 0)));
  }
  const Tensor x = randn({3, 4}).set_requires_grad(), g = randn({3, 4});
  CHECK(grad(unbind(x, 0), {x}, unbind(g, 0))[0].shares_memory_with(g));
  CHECK(equal(grad(unbind(x, 1), {x}, unbind(g, 1))[0], g));
  // A leaf's gradient is its own: what is added to it later changes nobody's.
  cat(split(x, 1, 0), 0).backward(g);
  const Tensor before = g.clone();
  cat(split(x, 1, 0), 0).backward(g);
  CHECK(equal(g, before));
  CHECK(equal(x.grad(), g * 2));
}
