// SPDX-License-Identifier: Apache-2.0
// Derivatives of functions: shapes, modes, functions that do not depend on their argument, errors. tests/docs/guesses.txt compares
// values with PyTorch's.
#include "framework/autograd/functional.h"

#include <doctest/doctest.h>

#include <vector>

#include "framework/ops/ops.h"
#include "framework/ops/spellings.h"
#include "tests/support/errors.h"

using namespace halfstep;
using testing::refuses;

namespace {

using Doubles = std::vector<double>;
Doubles values(const Tensor& t) { return t.to_vector<double>(); }
Tensor numbers() { return tensor({1.0, 2.0, 3.0}, {.dtype = DType::f64}); }
Tensor cubes(const Tensor& x) { return (x * x * x).sum(); }

}  // namespace

TEST_CASE("a Jacobian has the shapes of result and argument one after the other") {
  const Tensor x = numbers(), m = tensor({{1.0, 0.0, 2.0}, {0.0, 3.0, 0.0}}, {.dtype = DType::f64});
  CHECK(values(jacobian([&](const Tensor& q) { return mv(m, q); }, x)) == Doubles{1, 0, 2, 0, 3, 0});
  CHECK(jacobian([](const Tensor& q) { return outer(q, q); }, x).shape() == Shape{3, 3, 3});
  CHECK(values(jacobian([](const Tensor& q) { return q.sum(); }, x)) == Doubles{1, 1, 1});
  const Tensors both = jacobian([](const Tensors& q) { return q[0] * q[1].sum(); }, Tensors{x, ones({2}, kFloat64)});
  CHECK(values(both[0]) == Doubles{2, 0, 0, 0, 2, 0, 0, 0, 2});
  CHECK(values(both[1]) == Doubles{1, 1, 2, 2, 3, 3});
  CHECK(both[1].shape() == Shape{3, 2});
  CHECK(jacobian([](const Tensor& q) { return q; }, ones({0})).shape() == Shape{0, 0});
}

TEST_CASE("derivatives of functions record whatever the mode, and leave no trace") {
  const NoGrad off;
  const Tensor x = numbers(), w = numbers().set_requires_grad();
  const Tensor j = jacobian([&](const Tensor& q) { return q * w; }, x);
  CHECK(values(j) == Doubles{1, 0, 0, 0, 2, 0, 0, 0, 3});
  CHECK(!j.requires_grad());
  CHECK(!x.requires_grad());
  CHECK(!w.grad().defined());
  const auto [y, slope] = vjp(cubes, x);
  CHECK(y.item() == 36);
  CHECK(values(slope) == Doubles{3, 12, 27});
  CHECK(!y.requires_grad());
}

TEST_CASE("products with Jacobians and Hessians are those of the whole matrices") {
  const Tensor x = numbers(), v = tensor({1.0, -1.0, 0.5}, {.dtype = DType::f64});
  const auto f = [](const Tensor& q) { return (outer(q, q) * q).sum(0); };
  const Tensor j = jacobian(f, x), h = hessian(cubes, x);
  CHECK(allclose(jvp(f, x, v).second, mv(j, v)));
  CHECK(allclose(vjp(f, x, v).second, mv(j.t(), v)));
  CHECK(values(h) == Doubles{6, 0, 0, 0, 12, 0, 0, 0, 18});
  CHECK(allclose(hvp(cubes, x, v).second, mv(h, v)));
  CHECK(allclose(vhp(cubes, x, v).second, mv(h, v)));
}

TEST_CASE("a function that does not depend on its argument, or is linear in it, has derivatives of 0") {
  const Tensor x = numbers();
  const auto fixed = [](const Tensor&) { return ones({}, kFloat64); };
  CHECK(values(jacobian(fixed, x)) == Doubles{0, 0, 0});
  CHECK(values(vjp(fixed, x).second) == Doubles{0, 0, 0});
  CHECK(values(jvp(fixed, x, x).second) == Doubles{0});
  CHECK(values(hvp([](const Tensor& q) { return q.sum(); }, x, x).second) == Doubles{0, 0, 0});
  CHECK(values(hessian([](const Tensor& q) { return q.sum(); }, x)) == Doubles(9));
}

TEST_CASE("derivatives of functions refuse what has none") {
  const Tensor x = numbers();
  refuses<DTypeError>("[jacobian] x must be a floating tensor, got int64", [] { jacobian(cubes, arange(3)); });
  refuses<ShapeError>("[hessian] f must have one element, got [3]", [&] { hessian([](const Tensor& q) { return q * q; }, x); });
  refuses<ShapeError>("[vjp] v must have the shape of f(x), [3], got []", [&] { vjp([](const Tensor& q) { return q * q; }, x); });
  refuses<ShapeError>("[jvp] v must have the shape of x, [3], got [2]", [&] { jvp(cubes, x, ones({2})); });
  refuses<ShapeError>("[hvp] v must have the shape of x, [3], got [2]", [&] { hvp(cubes, x, ones({2})); });
}

TEST_CASE("vmap calls its function once a slice, and stacks") {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}).set_requires_grad(), y = tensor({1.0, 10.0, 100.0});
  const auto scaled = vmap([](const Tensor& row, const Tensor& factor) { return row * factor; });
  CHECK(values(scaled(x, y)) == Doubles{1, 2, 30, 40, 500, 600});
  scaled(x, y).sum().backward();
  CHECK(values(x.grad()) == Doubles{1, 1, 10, 10, 100, 100});
  refuses<ShapeError>("[vmap] all arguments must have one number of slices, above 0, got [2] beside [3, 2]",
                      [&] { scaled(x, ones({2})); });
  refuses<ShapeError>("[vmap] all arguments must have one number of slices, above 0, got [] beside []",
                      [&] { vmap([](const Tensor& q) { return q; })(tensor(1.0)); });
}
