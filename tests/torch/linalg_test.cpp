// SPDX-License-Identifier: Apache-2.0
// The functions of torch/tensor/linalg.h: what libtorch 2.15 prints for the same lines.
#include <doctest/doctest.h>

#include "tests/torch/support.h"

using torch::Tensor;

namespace {
struct Matrices {
  Tensor a = torch::tensor({{1.0, -2.5, 3.25}, {0.5, 4.0, -1.0}}), v = torch::tensor({1.0, 2.0, 3.0}),
         q = torch::tensor({{2.0, 1.0, 0.0}, {1.0, 3.0, 0.5}, {0.0, 0.5, 4.0}}), b = torch::arange(12.0).view({2, 3, 2}) - 5;
  double inf = std::numeric_limits<double>::infinity();
};
}  // namespace

TEST_CASE_FIXTURE(Matrices, "torch linalg: norms") {
  ROW(torch::linalg_norm(a), "[] float: 5.921");
  ROW(torch::linalg_norm(a, 2), "[] float: 5.503");
  ROW(torch::linalg_norm(a, -2), "[] float: 2.186");
  ROW(torch::linalg_norm(a, 1), "[] float: 6.5");
  ROW(torch::linalg_norm(a, -1), "[] float: 1.5");
  ROW(torch::linalg_norm(a, inf), "[] float: 6.75");
  ROW(torch::linalg_norm(a, -inf), "[] float: 5.5");
  ROW(torch::linalg_norm(a, "fro"), "[] float: 5.921");
  ROW(torch::linalg_norm(a, "nuc"), "[] float: 7.689");
  ROW(torch::linalg_norm(v, 3), "[] float: 3.302");
  ROW(torch::linalg_norm(v, inf), "[] float: 3");
  ROW(torch::linalg_norm(v, 0.5), "[] float: 17.19");
  ROW(torch::linalg_norm(a, 1, {1}), "[2] float: 6.75 5.5");
  ROW(torch::linalg_norm(a, 2, {0}, true), "[1, 3] float: 1.118 4.717 3.4");
  ROW(torch::linalg_norm(b), "[] float: 12.08");
  ROW(torch::linalg_norm(b, 1), "throws");
  ROW(torch::linalg_norm(b, 1, {0, 2}, true), "[1, 3, 1] float: 6 6 6");
  ROW(torch::linalg_norm(b, 2, {2, 0}), "[3] float: 6.723 6.085 7.837");
  ROW(torch::linalg_norm(b, "nuc", {-1, 1}, true), "[2, 1, 1] float: 8.05 10.04");
  ROW(torch::linalg_norm(a, 3), "throws");
  ROW(torch::linalg_norm(b, "fro"), "throws");
  ROW(torch::linalg_norm(a, std::nullopt, {1}, false, torch::kDouble), "[2] double: 4.22 4.153");
  ROW(torch::linalg_vector_norm(a), "[] float: 5.921");
  ROW(torch::linalg_vector_norm(a, 1, {0}, true), "[1, 3] float: 1.5 6.5 4.25");
  ROW(torch::linalg_matrix_norm(a), "[] float: 5.921");
  ROW(torch::linalg_matrix_norm(b, inf), "[2] float: 9 11");
  ROW(torch::linalg_matrix_norm(b, "nuc", {0, 1}, true), "[1, 1, 2] float: 11.35 11.61");
  ROW(torch::linalg_matrix_norm(a, "x"), "throws");
}

TEST_CASE_FIXTURE(Matrices, "torch linalg: factors, solutions and products") {
  ROW(torch::linalg_inv(q), "[3, 3] float: 0.6026 -0.2051 0.02564 -0.2051 0.4103 -0.05128 0.02564 -0.05128 0.2564");
  ROW(torch::linalg_det(q), "[] float: 19.5");
  ROW(torch::linalg_slogdet(q), "[] float: 1 | [] float: 2.97");
  ROW(torch::slogdet(-q), "[] float: -1 | [] float: 2.97");
  ROW(q.slogdet(), "[] float: 1 | [] float: 2.97");
  ROW(torch::linalg_cholesky(q), "[3, 3] float: 1.414 0 0 0.7071 1.581 0 0 0.3162 1.975");
  ROW(torch::linalg_cholesky(q, true), "[3, 3] float: 1.414 0.7071 0 0 1.581 0.3162 0 0 1.975");
  ROW(torch::linalg_svdvals(a), "[2] float: 5.503 2.186");
  ROW(std::get<1>(torch::linalg_svd(a, false)), "[2] float: 5.503 2.186");
  ROW(std::get<2>(torch::linalg_svd(a)).abs(), "[3, 3] float: 0.06637 0.833 0.5492 0.4834 0.5084 0.7126 0.8729 0.2182 0.4364");
  ROW(std::get<2>(torch::svd(a)).abs(), "[3, 2] float: 0.06637 0.4834 0.833 0.5084 0.5492 0.7126");
  ROW(torch::linalg_eigh(q),
      "[3] float: 1.355 3.353 4.292 | [3, 3] float: 0.836 -0.5049 0.2149 -0.5392 -0.6831 0.4927 0.1019 0.5277 0.8433");
  ROW(torch::linalg_eigvalsh(q), "[3] float: 1.355 3.353 4.292");
  ROW(std::get<1>(torch::linalg_qr(a)).abs(), "[2, 3] float: 1.118 0.4472 2.46 0 4.696 2.348");
  ROW(std::get<0>(torch::linalg_qr(a.t(), "complete")).abs().slice(1, 0, 2),
      "[3, 2] float: 0.2369 0.4266 0.5923 0.7756 0.7701 0.4653");
  ROW(torch::linalg_solve(q, v), "[3] float: 0.2692 0.4615 0.6923");
  ROW(torch::linalg_solve(q, a, false), "[2, 3] float: 1.199 -1.397 0.9872 -0.5449 1.59 -0.4487");
  ROW(torch::linalg_solve_triangular(q, v.view({3, 1}), true), "[3, 1] float: 0.2292 0.5417 0.75");
  ROW(torch::linalg_solve_triangular(q, a, false, false, true), "[2, 3] float: 5.125 -4.125 3.25 -4 4.5 -1");
  ROW(std::get<0>(torch::linalg_lstsq(a.t(), v.view({3, 1}))), "[2, 1] float: 1.17 1.184");
  ROW(torch::linalg_matrix_power(q, 2), "[3, 3] float: 5 5 0.5 5 10.25 3.5 0.5 3.5 16.25");
  ROW(torch::linalg_matrix_exp(q / 10), "[3, 3] float: 1.228 0.1287 0.003381 0.1287 1.358 0.07113 0.003381 0.07113 1.494");
  ROW(torch::linalg_matrix_rank(torch::ones({3, 3})), "[] long int: 1");
  ROW(torch::linalg_pinv(a), "[3, 2] float: 0.1633 0.1497 0.05442 0.2721 0.2993 0.1633");
  ROW(torch::linalg_multi_dot({a, q, v}), "[2] float: 25 23");
  ROW(torch::linalg_cross(v, v.flip(0)), "[3] float: -4 8 -4");
  ROW(torch::linalg_vecdot(a, a), "[2] float: 17.81 17.25");
  ROW(torch::linalg_matmul(a, q), "[2, 3] float: -0.5 -4.875 11.75 5 12 -2");
  ROW(torch::linalg_diagonal(q), "[3] float: 2 3 4");
  ROW(q.cholesky(), outcome([&] { return torch::linalg::cholesky(q); }));
  ROW(q.qr(), outcome([&] { return torch::linalg::qr(q); }));
}
