// SPDX-License-Identifier: Apache-2.0
// Inverses, determinants and linear equations of matrices [..., M, N] and square matrices [..., N, N], f32 or f64 (16 bits are
// computed in float32 and rounded once). LAPACK computes on the host, also for a GPU tensor, which waits for it. autocast: f32.
// All gradients consist of differentiable ops.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "framework/tensor/tensor.h"

namespace halfstep {

Tensor trace(const Tensor& x);    // the sum of the diagonal, of a matrix [N, M]
Tensor det(const Tensor& x);      // [..., N, N] -> [...]
Tensor inverse(const Tensor& x);  // throws ValueError for a singular matrix
struct SignLogDet {
  Tensor sign, logabsdet;  // [...]: det = sign e^logabsdet; 0 and -inf for a singular matrix
};
SignLogDet slogdet(const Tensor& x);
Tensor logdet(const Tensor& x);  // NaN for a negative determinant
Tensor cholesky_solve(const Tensor& b, const Tensor& factor, bool upper = false);  // x^-1 b, given the Cholesky factor of x
// Returns 1 + x + x x / 2 + x x x / 6 + ... by Higham's scaling and squaring, with a Pade approximant of degree 13.
Tensor matrix_exp(const Tensor& x);
Tensor matrix_power(const Tensor& x, int64_t n);  // powers of the inverse for negative n
// A bound for singular values: nothing, a number, or a tensor with one bound per matrix (of the shape of the batch, or one that
// broadcasts with it).
class Tolerance {
 public:
  Tolerance() = default;
  Tolerance(std::nullopt_t) {}
  Tolerance(double value) : number(value) {}
  Tolerance(std::optional<double> value) : number(value) {}
  Tolerance(const Tensor& values) : tensor(values) {}
  bool given() const { return number || tensor.defined(); }

  std::optional<double> number;
  Tensor tensor;
};
// Returns the Moore-Penrose inverse [..., N, M]; singular values up to max(atol, rtol times the largest) count as 0. atol: 0 by
// default; rtol: 0 if atol is above 0, else max(M, N) epsilon. Neither has a gradient.
Tensor pinverse(const Tensor& x, const Tolerance& rtol = {}, const Tolerance& atol = {});

// The names of torch.linalg.
namespace linalg {

using halfstep::det, halfstep::matrix_exp, halfstep::matrix_power, halfstep::slogdet;
inline Tensor inv(const Tensor& x) { return inverse(x); }
inline Tensor pinv(const Tensor& x, const Tolerance& rtol = {}, const Tolerance& atol = {}) { return pinverse(x, rtol, atol); }

// Returns a^-1 b: b [..., N, K], or [N] or [..., N] with a's batch; batches broadcast. left false: b a^-1. Throws ValueError for a
// singular a.
Tensor solve(const Tensor& a, const Tensor& b, bool left = true);
struct TriangularOptions {
  bool left = true;            // a^-1 b, or b a^-1
  bool unitriangular = false;  // whether the diagonal counts as ones
};
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, const TriangularOptions& options = {});
struct Lstsq {
  Tensor solution;         // [..., N, K], of least norm; [..., N] if b is
  Tensor residuals;        // [..., K]: |a x - b|^2, empty unless M > N
  Tensor rank;             // i64 [...]
  Tensor singular_values;  // [..., k]
};
// Solves min |a x - b|: a [..., M, N], b [..., M, K] or [..., M], by the pseudo-inverse, like PyTorch's driver gelsd. Other
// drivers ("gels", "gelsy", "gelss") have the same solution; as in PyTorch, gels returns neither rank nor singular values, and
// gelsy no singular values.
Lstsq lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond = {}, std::string_view driver = "gelsd");
// Returns i64 [...]: the number of singular values above pinverse's bound.
Tensor matrix_rank(const Tensor& x, const Tolerance& rtol = {}, const Tolerance& atol = {});

}  // namespace linalg
}  // namespace halfstep
