// SPDX-License-Identifier: Apache-2.0
// What the op table cannot say of linear algebra: factors put together again, gradients of symmetric matrices, errors, sizes of 0.
#include "framework/ops/linalg/decompositions.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/autograd/autograd.h"
#include "framework/autograd/gradcheck.h"
#include "framework/base/check.h"
#include "framework/ops/linalg/inverse.h"
#include "framework/ops/ops.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

Tensor drawn(const Shape& shape) { return randn(shape, {.dtype = DType::f64}); }
Tensor one(int64_t n) { return eye(n, {.dtype = DType::f64}); }
double distance(const Tensor& a, const Tensor& b) { return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>(); }
Tensor mT(const Tensor& x) { return x.transpose(-1, -2); }
Tensor positive(const Tensor& x) { return matmul(x, mT(x)) + one(x.size(-1)) * 0.5; }

}  // namespace

TEST_CASE("svd, eigh, qr and cholesky: the factors give the matrix again") {
  manual_seed(3);
  for (const Shape& shape : {Shape{5, 3}, Shape{3, 5}, Shape{4, 4}, Shape{2, 3, 6, 2}, Shape{0, 3}, Shape{3, 0}, Shape{0, 2, 2}}) {
    CAPTURE(shape);
    const Tensor x = drawn(shape);
    const int64_t m = shape[shape.size() - 2], n = shape[shape.size() - 1], k = std::min(m, n);
    for (const bool full : {false, true}) {
      const auto [u, s, vh] = linalg::svd(x, full);
      CHECK(u.size(-1) == (full ? m : k));
      CHECK(vh.size(-2) == (full ? n : k));
      CHECK(distance(matmul(u.narrow(-1, 0, k) * s.unsqueeze(-2), vh.narrow(-2, 0, k)), x) < 1e-13);
      CHECK(distance(matmul(mT(u), u), one(u.size(-1))) < 1e-13);
      CHECK(distance(matmul(vh, mT(vh)), one(vh.size(-2))) < 1e-13);
      if (k > 1 && s.numel() > 0) CHECK((s.narrow(-1, 0, k - 1) >= s.narrow(-1, 1, k - 1)).all().item<bool>());
    }
    for (const char* mode : {"reduced", "complete"}) {
      const auto [q, r] = qr(x, mode);
      CHECK(distance(matmul(q, r), x) < 1e-13);
      CHECK(distance(matmul(mT(q), q), one(q.size(-1))) < 1e-13);
      CHECK(distance(triu(r), r) == 0);
    }
    if (m != n) continue;
    const Tensor spd = positive(x);
    const auto [w, v] = linalg::eigh(spd);
    CHECK(distance(matmul(v * w.unsqueeze(-2), mT(v)), spd) < 1e-12);
    CHECK(distance(matmul(cholesky(spd), mT(cholesky(spd))), spd) < 1e-12);
    CHECK(distance(matmul(mT(cholesky(spd, true)), cholesky(spd, true)), spd) < 1e-12);
    CHECK(distance(linalg::eigvalsh(tril(spd)), w) < 1e-12);  // the lower triangle is read
    CHECK(distance(linalg::eigvalsh(triu(spd), "U"), w) < 1e-12);
    CHECK(distance(matmul(inverse(spd), spd), one(n)) < 1e-12);
    CHECK(distance(cholesky_solve(x, cholesky(spd)), linalg::solve(spd, x)) < 1e-12);
    const auto [sign, logabs] = slogdet(x);
    CHECK(distance(sign * exp(logabs), det(x)) < 1e-12);
    CHECK(distance(matmul(matrix_exp(x), matrix_exp(-x)), one(n)) < 1e-9);
  }
}

TEST_CASE("eigh and cholesky: first and second derivatives along symmetric matrices") {
  manual_seed(5);
  const Tensor x = drawn({2, 3, 3}).set_requires_grad();
  const auto symmetric = [](const Tensor& t) { return (t + mT(t)) * 0.5; };
  const auto values_and_projections = [&](const Tensors& in) {
    const auto [w, v] = linalg::eigh(symmetric(in[0]));
    return Tensors{w, matmul(v * tanh(w).unsqueeze(-2), mT(v)), v};
  };
  CHECK_NOTHROW(gradcheck(values_and_projections, {x}));
  CHECK_NOTHROW(gradgradcheck(values_and_projections, {x}));
  for (const bool upper : {false, true}) {
    const auto factor = [&](const Tensors& in) { return Tensors{cholesky(positive(in[0]), upper)}; };
    CHECK_NOTHROW(gradcheck(factor, {x}));
    CHECK_NOTHROW(gradgradcheck(factor, {x}));
  }
}

TEST_CASE("solve, lstsq and pinverse agree with what they replace") {
  manual_seed(7);
  const Tensor a = drawn({3, 3}), b = drawn({3, 2}), tall = drawn({6, 3}), rhs = drawn({6, 2});
  CHECK(distance(matmul(a, linalg::solve(a, b)), b) < 1e-12);
  CHECK(distance(linalg::solve(a, b), matmul(inverse(a), b)) < 1e-12);
  CHECK(distance(linalg::solve(a, mT(b), false), matmul(mT(b), inverse(a))) < 1e-12);
  const linalg::Lstsq fit = linalg::lstsq(tall, rhs);
  CHECK(distance(fit.solution, linalg::solve(matmul(mT(tall), tall), matmul(mT(tall), rhs))) < 1e-12);
  CHECK(distance(fit.residuals, (matmul(tall, fit.solution) - rhs).square().sum(0)) < 1e-12);
  CHECK(fit.rank.item<int64_t>() == 3);
  // The residuals have gradients, too: twice what is left of the right-hand side.
  const auto misfit = [](const Tensors& in) { return Tensors{linalg::lstsq(in[0], in[1]).residuals}; };
  const Tensors inputs{tall.clone().set_requires_grad(), rhs.clone().set_requires_grad()};
  const Tensors gradients = grad(misfit(inputs)[0].sum(), inputs);
  CHECK(distance(gradients[1], 2 * (rhs - matmul(tall, fit.solution))) < 1e-12);
  CHECK(distance(gradients[0], -matmul(gradients[1], mT(fit.solution))) < 1e-12);
  CHECK_NOTHROW(gradcheck(misfit, inputs));
  CHECK_NOTHROW(gradgradcheck(misfit, inputs));
  const Tensor p = pinverse(tall);
  CHECK(distance(matmul(matmul(tall, p), tall), tall) < 1e-12);
  CHECK(distance(mT(matmul(tall, p)), matmul(tall, p)) < 1e-12);
  CHECK(linalg::matrix_rank(matmul(tall, mT(tall))).item<int64_t>() == 3);
  CHECK(distance(matrix_power(a, -2), inverse(matmul(a, a))) < 1e-11);
  CHECK(distance(matrix_power(a, 5), matmul(a, matmul(matmul(a, a), matmul(a, a)))) < 1e-12);
}

TEST_CASE("linear algebra in 16 bits is computed in float32 and rounded once") {
  manual_seed(9);
  const Tensor x = randn({4, 4}).to(DType::bf16);
  CHECK(linalg::svdvals(x).dtype() == DType::bf16);
  CHECK(equal(linalg::svdvals(x), linalg::svdvals(x.to(DType::f32)).to(DType::bf16)));
  CHECK(equal(linalg::solve(x, x), linalg::solve(x.to(DType::f32), x.to(DType::f32)).to(DType::bf16)));
}

TEST_CASE("linear algebra of values that are not finite ends, with an error or with NaN for that matrix alone") {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {inf, -inf, std::nan("")}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      Tensor x = eye(3, {.dtype = dtype}).expand({2, 3, 3}).clone() * 2;
      x[1][2][0] = bad;
      const auto says = [&](const auto& f) {
        return contains(message_of<ValueError>([&] { f(x); }), "matrix 1 of the batch has none at [2, 0]");
      };
      CHECK(says([](const Tensor& t) { linalg::svd(t); }));
      CHECK(says([](const Tensor& t) { linalg::svdvals(t); }));
      CHECK(says([](const Tensor& t) { linalg::eigh(t); }));
      CHECK(says([](const Tensor& t) { linalg::cholesky(t); }));
      CHECK(says([](const Tensor& t) { linalg::pinv(t); }));
      linalg::eigh(x, "U"), linalg::cholesky(x, true);  // which do not read that part
      for (const Tensor& t :
           {linalg::inv(x), linalg::det(x), linalg::solve(x, ones({2, 3, 1}, {.dtype = dtype})), linalg::qr(x).q}) {
        CHECK(t[0].isfinite().all().item<bool>());
        CHECK(t[1].isnan().all().item<bool>());
      }
    }
  }
}

TEST_CASE("linear algebra: errors name the matrix and the cure") {
  const Tensor singular = tensor({{{2.0, 0.0}, {0.0, 1.0}}, {{1.0, 2.0}, {2.0, 4.0}}});
  CHECK(contains(message_of<ValueError>([&] { inverse(singular); }), "[inverse] matrix 1 of the batch is singular"));
  CHECK(contains(message_of<ValueError>([&] { linalg::solve(singular, ones({2, 2, 1})); }), "matrix 1 of the batch is singular"));
  CHECK(contains(message_of<ValueError>([&] { cholesky(neg(singular)); }), "matrix 0 of the batch is not positive definite"));
  const Tensor nan = full({2, 2}, std::nan(""));
  CHECK(contains(message_of<ValueError>([&] { linalg::svd(nan); }), "matrix 0 of the batch has none at [0, 0]"));
  CHECK(matrix_exp(nan).isnan().all().item<bool>());
  CHECK(contains(message_of<ShapeError>([&] { det(ones({2, 3})); }), "[det] needs square matrices [..., N, N], got [2, 3]"));
  CHECK(contains(message_of<ShapeError>([&] { linalg::solve(ones({2, 2}), ones({3, 1})); }), "as many rows"));
  CHECK_THROWS_AS(qr(ones({2, 2}), "thin"), ValueError);
  CHECK_THROWS_AS(linalg::eigh(ones({2, 2}), "l"), ValueError);
  CHECK_THROWS_AS(linalg::svd(ones({2})), ShapeError);
  CHECK_THROWS_AS(inverse(ones({2, 2}, {.dtype = DType::i64})), DTypeError);
  const Tensor wide = drawn({4, 2}).set_requires_grad();
  CHECK_THROWS_AS(qr(wide, "complete").q.sum().backward(), AutogradError);
  CHECK(logdet(tensor({{-1.0, 0.0}, {0.0, 1.0}})).isnan().item<bool>());
  CHECK(slogdet(tensor({{1.0, 2.0}, {2.0, 4.0}})).sign.item<double>() == 0);
  // A triangular matrix with a zero on its diagonal gives infinities, as in PyTorch.
  CHECK(linalg::solve_triangular(tensor({{0.0, 1.0}, {0.0, 1.0}}), ones({2, 1}), true).isinf().any().item<bool>());
}

TEST_CASE("linear algebra on meta: shapes without values") {
  const Tensor x = zeros({3, 5, 4}, {.device = "meta"});
  CHECK(linalg::svd(x).u.shape() == Shape{3, 5, 5});
  CHECK(qr(x).r.shape() == Shape{3, 4, 4});
  CHECK(pinverse(x).shape() == Shape{3, 4, 5});
  CHECK(matrix_exp(zeros({2, 2}, {.device = "meta"})).device() == Device::meta);
}
