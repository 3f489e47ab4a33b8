// SPDX-License-Identifier: Apache-2.0
// Products with vectors (autocast: low; dot and vdot promote; outer keeps).
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

Tensor mv(const Tensor& mat, const Tensor& vec);  // [N, M] [M] -> [N]
Tensor dot(const Tensor& a, const Tensor& b);     // [N] [N] -> []
Tensor vdot(const Tensor& a, const Tensor& b);    // as dot, because the numbers are real
// Returns dot products along a dimension of the broadcast shape; floating only. Also registered as vecdot.
Tensor linalg_vecdot(const Tensor& x, const Tensor& y, int64_t dim = -1);
Tensor outer(const Tensor& a, const Tensor& b);  // [N] [M] -> [N, M]; promotes. Also registered as ger
// Returns the Kronecker product: blocks a[i, j, ..] b, of shape [a0 b0, a1 b1, ..]; the shorter shape gets leading ones. Promotes.
Tensor kron(const Tensor& a, const Tensor& b);
// Return beta input + alpha mat vec, and beta input + alpha a b^T; input broadcasts, and beta 0 ignores it, including NaN.
Tensor addmv(const Tensor& input, const Tensor& mat, const Tensor& vec, double beta = 1, double alpha = 1);
Tensor addr(const Tensor& input, const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1);  // promotes

}  // namespace halfstep
