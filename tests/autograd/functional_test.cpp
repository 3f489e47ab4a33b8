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

using Slopes = std::vector<double>;
Slopes slopes(const Tensor& t) { return t.to_vector<double>(); }
Tensor three() { return tensor({1.0, 2.0, 3.0}, {.dtype = DType::f64}); }
Tensor sum_of_cubes(const Tensor& x) { return (x * x * x).sum(); }

}  // namespace

TEST_CASE("a Jacobian has the shapes of result and argument one after the other") {
  const Tensor x = three(), m = tensor({{1.0, 0.0, 2.0}, {0.0, 3.0, 0.0}}, {.dtype = DType::f64});
  CHECK(slopes(jacobian([&](const Tensor& q) { return mv(m, q); }, x)) == Slopes{1, 0, 2, 0, 3, 0});
  CHECK(jacobian([](const Tensor& q) { return outer(q, q); }, x).shape() == Shape{3, 3, 3});
  CHECK(slopes(jacobian([](const Tensor& q) { return q.sum(); }, x)) == Slopes{1, 1, 1});
  const Tensors both = jacobian([](const Tensors& q) { return q[0] * q[1].sum(); }, Tensors{x, ones({2}, kFloat64)});
  CHECK(slopes(both[0]) == Slopes{2, 0, 0, 0, 2, 0, 0, 0, 2});
  CHECK(slopes(both[1]) == Slopes{1, 1, 2, 2, 3, 3});
  CHECK(both[1].shape() == Shape{3, 2});
  CHECK(jacobian([](const Tensor& q) { return q; }, ones({0})).shape() == Shape{0, 0});
}

TEST_CASE("derivatives of functions record whatever the mode, and leave no trace") {
  const NoGrad off;
  const Tensor x = three(), w = three().set_requires_grad();
  const Tensor j = jacobian([&](const Tensor& q) { return q * w; }, x);
  CHECK(slopes(j) == Slopes{1, 0, 0, 0, 2, 0, 0, 0, 3});
  CHECK(!j.requires_grad());
  CHECK(!x.requires_grad());
  CHECK(!w.grad().defined());
  const auto [y, slope] = vjp(sum_of_cubes, x);
  CHECK(y.item() == 36);
  CHECK(slopes(slope) == Slopes{3, 12, 27});
  CHECK(!y.requires_grad());
}

TEST_CASE("products with Jacobians and Hessians are those of the whole matrices") {
  const Tensor x = three(), v = tensor({1.0, -1.0, 0.5}, {.dtype = DType::f64});
  const auto f = [](const Tensor& q) { return (outer(q, q) * q).sum(0); };
  const Tensor j = jacobian(f, x), h = hessian(sum_of_cubes, x);
  CHECK(allclose(jvp(f, x, v).second, mv(j, v)));
  CHECK(allclose(vjp(f, x, v).second, mv(j.t(), v)));
  CHECK(slopes(h) == Slopes{6, 0, 0, 0, 12, 0, 0, 0, 18});
  CHECK(allclose(hvp(sum_of_cubes, x, v).second, mv(h, v)));
  CHECK(allclose(vhp(sum_of_cubes, x, v).second, mv(h, v)));
}

TEST_CASE("a function that does not depend on its argument, or is linear in it, has derivatives of 0") {
  const Tensor x = three();
  const auto fixed = [](const Tensor&) { return ones({}, kFloat64); };
  CHECK(slopes(jacobian(fixed, x)) == Slopes{0, 0, 0});
  CHECK(slopes(vjp(fixed, x).second) == Slopes{0, 0, 0});
  CHECK(slopes(jvp(fixed, x, x).second) == Slopes{0});
  CHECK(slopes(hvp([](const Tensor& q) { return q.sum(); }, x, x).second) == Slopes{0, 0, 0});
  CHECK(slopes(hessian([](const Tensor& q) { return q.sum(); }, x)) == Slopes(9));
}

TEST_CASE("derivatives of functions refuse what has none") {
  const Tensor x = three();
  refuses<DTypeError>("[jacobian] x must be a floating tensor, got int64", [] { jacobian(sum_of_cubes, arange(3)); });
  refuses<ShapeError>("[hessian] f must have one element, got [3]", [&] { hessian([](const Tensor& q) { return q * q; }, x); });
  refuses<ShapeError>("[vjp] v must have the shape of f(x), [3], got []", [&] { vjp([](const Tensor& q) { return q * q; }, x); });
  refuses<ShapeError>("[jvp] v must have the shape of x, [3], got [2]", [&] { jvp(sum_of_cubes, x, ones({2})); });
  refuses<ShapeError>("[hvp] v must have the shape of x, [3], got [2]", [&] { hvp(sum_of_cubes, x, ones({2})); });
}

TEST_CASE("vmap calls its function once a slice, and stacks") {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}).set_requires_grad(), y = tensor({1.0, 10.0, 100.0});
  const auto scaled = vmap([](const Tensor& row, const Tensor& factor) { return row * factor; });
  CHECK(slopes(scaled(x, y)) == Slopes{1, 2, 30, 40, 500, 600});
  scaled(x, y).sum().backward();
  CHECK(slopes(x.grad()) == Slopes{1, 1, 10, 10, 100, 100});
  refuses<ShapeError>("[vmap] all arguments must have one number of slices, above 0, got [2] beside [3, 2]",
                      [&] { scaled(x, ones({2})); });
  refuses<ShapeError>("[vmap] all arguments must have one number of slices, above 0, got [] beside []",
                      [&] { vmap([](const Tensor& q) { return q; })(tensor(1.0)); });
}
