// SPDX-License-Identifier: Apache-2.0
// Factorises batches of matrices [..., M, N] by LAPACK on the host, without a graph; tensors must be all f32 or all f64. A GPU
// tensor is also computed on the host, with one warning; its results return to the GPU. On Device::meta results have no values.
// `op` names the caller in errors, which say which matrix of the batch failed.
#pragma once

#include <string_view>

#include "framework/tensor/tensor.h"

namespace halfstep::lapack {

// Returns U, S, Vh of x = U diag(S) Vh with descending S. k = min(M, N): U [..., M, k], S [..., k], Vh [..., k, N]; `full`: U
// [..., M, M], Vh [..., N, N]. Throws ValueError if it does not converge, as with NaN.
Tensors svd(std::string_view op, const Tensor& x, bool full);
// Returns {w [..., N], V [..., N, N]} of symmetric x = V diag(w) V^T with ascending w; reads the lower or upper triangle. Throws
// ValueError if it does not converge.
Tensors eigh(std::string_view op, const Tensor& x, bool lower);
// Returns Q [..., M, k] and R [..., k, N] of x = Q R, with k = min(M, N), or k = M if `complete`.
Tensors qr(const Tensor& x, bool complete);
// Factorises like qr, with Q as a product of reflections 1 - tau_i v_i v_i^T: returns R, and below its diagonal the rest of v_i,
// whose first element is 1, [..., M, N]; and tau [..., min(M, N)].
Tensors geqrf(const Tensor& x);
// Returns L of x = L L^T, or U of U^T U if `upper`; reads only that triangle of x. Throws ValueError unless x is positive
// definite.
Tensor cholesky(std::string_view op, const Tensor& x, bool upper);
// Returns a^-1 b. a [..., N, N] and b [..., N, K] must have the same batch. Throws ValueError for a singular matrix.
Tensor solve(std::string_view op, const Tensor& a, const Tensor& b);
// Returns the same for a triangular matrix. Does not read the other triangle, nor with `unit` the diagonal, which then counts as
// ones. Does not check for zeros: the result is then infinite.
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool unit);
Tensor inverse(std::string_view op, const Tensor& x);  // throws ValueError for a singular matrix
// Returns {det, its sign (0 for a singular matrix), log |det|}, each [...].
Tensors determinant(const Tensor& x);

}  // namespace halfstep::lapack
