// SPDX-License-Identifier: Apache-2.0
// Factorisations of batches of matrices [..., M, N] by LAPACK, on the host: without a graph, of tensors that are all f32 or all
// f64. A tensor of a GPU is computed on the host as well, with one warning; its results come back to it. On Device::meta results
// have no values. `op` names the caller in errors, which say which matrix of the batch failed.
#pragma once

#include <string_view>

#include "framework/tensor/tensor.h"

namespace halfstep::lapack {

// x = U diag(S) Vh with falling S. k = min(M, N): U [..., M, k], S [..., k], Vh [..., k, N]; `full`: U [..., M, M], Vh [..., N, N].
// Throws ValueError where it does not converge, as with NaN.
Tensors svd(std::string_view op, const Tensor& x, bool full);
// Symmetric x = V diag(w) V^T with rising w, of which the lower or the upper triangle is read. {w [..., N], V [..., N, N]}. Throws
// ValueError where it does not converge.
Tensors eigh(std::string_view op, const Tensor& x, bool lower);
// x = Q R. Q [..., M, k] and R [..., k, N] with k = min(M, N), or k = M when `complete`.
Tensors qr(const Tensor& x, bool complete);
// The same with Q as a product of reflections 1 - tau_i v_i v_i^T: R, and below its diagonal the rest of v_i, whose first element
// is 1, [..., M, N]; tau [..., min(M, N)].
Tensors geqrf(const Tensor& x);
// x = L L^T, or U^T U when `upper`, of which only that triangle of x is read. Throws ValueError unless x is positive definite.
Tensor cholesky(std::string_view op, const Tensor& x, bool upper);
// a^-1 b. a [..., N, N] and b [..., N, K] with the same batch. Throws ValueError for a singular matrix.
Tensor solve(std::string_view op, const Tensor& a, const Tensor& b);
// The same of a triangular matrix, of which the other triangle is not read, nor its diagonal where `unit`, which takes ones there.
// Not checked for zeros: the result is then infinite.
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool unit);
Tensor inverse(std::string_view op, const Tensor& x);  // throws ValueError for a singular matrix
// {det, sign of it (0 for a singular matrix), log |det|}, each [...].
Tensors determinant(const Tensor& x);

}  // namespace halfstep::lapack
