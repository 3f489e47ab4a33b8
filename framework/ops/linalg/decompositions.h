// SPDX-License-Identifier: Apache-2.0
// Factors of matrices [..., M, N] and square matrices [..., N, N], f32 or f64 (16 bits are computed in float32 and rounded once).
// LAPACK computes on the host, also for a GPU tensor, which waits for it. autocast: f32. All gradients consist of differentiable
// ops; gradients of factors that are not unique, such as U for equal singular values, are not finite.
#pragma once

#include <string_view>
#include <tuple>
#include <utility>

#include "framework/tensor/results.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns L of x = L L^T, or U of x = U^T U if `upper`; reads only that triangle. Throws ValueError unless x is positive definite.
Tensor cholesky(const Tensor& x, bool upper = false);
struct QR : std::pair<Tensor, Tensor> {
  using Parts = std::pair<Tensor, Tensor>;
  QR(const Tensor& q, const Tensor& r) : Parts(q, r), q(q), r(r), Q(q), R(r) {}
  Tensor q, r, Q, R;
};
// Factorises x = q r: q^T q = 1, r upper triangular. mode "reduced": q [..., M, k], r [..., k, N], k = min(M, N); "complete": k =
// M, without gradient for M > N; "r": q is undefined.
QR qr(const Tensor& x, std::string_view mode = "reduced");

namespace linalg {

using halfstep::cholesky, halfstep::qr;

struct SVD : std::tuple<Tensor, Tensor, Tensor> {
  using Parts = std::tuple<Tensor, Tensor, Tensor>;
  SVD(const Tensor& u, const Tensor& s, const Tensor& vh) : Parts(u, s, vh), u(u), s(s), vh(vh), U(u), S(s), Vh(vh) {}
  Tensor u, s, vh, U, S, Vh;
};
// Factorises x = u diag(s) vh, s falling. With k = min(M, N): u [..., M, k], s [..., k], vh [..., k, N]; with full_matrices u [...,
// M, M] and vh [..., N, N].
SVD svd(const Tensor& x, bool full_matrices = true);
Tensor svdvals(const Tensor& x);  // s of svd
struct Eigh : std::pair<Tensor, Tensor> {
  using Parts = std::pair<Tensor, Tensor>;
  Eigh(const Tensor& values, const Tensor& vectors) : Parts(values, vectors), eigenvalues(values), eigenvectors(vectors) {}
  Tensor eigenvalues, eigenvectors;  // ascending [..., N]; as columns [..., N, N]
};
// Decomposes a symmetric matrix, reading the triangle uplo, "L" or "U". The gradient is that of the symmetric matrix.
Eigh eigh(const Tensor& x, std::string_view uplo = "L");
// Returns the eigenvalues of eigh.
Tensor eigvalsh(const Tensor& x, std::string_view uplo = "L");

}  // namespace linalg
}  // namespace halfstep
