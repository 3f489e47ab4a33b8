// SPDX-License-Identifier: Apache-2.0
// torch::linalg_norm and so on, and those of them that libtorch also has in torch::linalg.
#pragma once

#include "torch/tensor/functions.h"

namespace torch {

// Norms over the dimensions `dim` (empty: all), in `dtype` if given; `keepdim`: reduced dimensions stay with size 1. Without
// `ord`, the 2-norm of the elements. With a number, a vector's norm for one dimension, and for two a matrix's: 1, -1, 2, -2, inf or
// -inf. With a text, a matrix's: "fro" or "nuc".
Tensor linalg_norm(const Tensor& x, std::optional<Scalar> ord = {}, IntArrayRef dim = {}, bool keepdim = false,
                   std::optional<ScalarType> dtype = {});
Tensor linalg_norm(const Tensor& x, std::string_view ord, IntArrayRef dim = {}, bool keepdim = false,
                   std::optional<ScalarType> dtype = {});
Tensor linalg_vector_norm(const Tensor& x, Scalar ord = 2, IntArrayRef dim = {}, bool keepdim = false,
                          std::optional<ScalarType> dtype = {});
Tensor linalg_matrix_norm(const Tensor& x, Scalar ord, IntArrayRef dim = {-2, -1}, bool keepdim = false,
                          std::optional<ScalarType> dtype = {});
Tensor linalg_matrix_norm(const Tensor& x, std::string_view ord = "fro", IntArrayRef dim = {-2, -1}, bool keepdim = false,
                          std::optional<ScalarType> dtype = {});

inline Tensor linalg_inv(const Tensor& x) { return x.inverse(); }
inline Tensor linalg_det(const Tensor& x) { return x.det(); }
inline std::tuple<Tensor, Tensor> linalg_slogdet(const Tensor& x) { return x.slogdet(); }
inline Tensor linalg_cholesky(const Tensor& x, bool upper = false) { return x.cholesky(upper); }
inline std::tuple<Tensor, Tensor> linalg_qr(const Tensor& x, std::string_view mode = "reduced") {
  const hs::QR parts = hs::qr(x.h(), mode);
  return {parts.q, parts.r};
}
inline std::tuple<Tensor, Tensor, Tensor> linalg_svd(const Tensor& x, bool full_matrices = true) {  // the last one is V^T
  const hs::linalg::SVD parts = hs::linalg::svd(x.h(), full_matrices);
  return {parts.u, parts.s, parts.vh};
}
inline Tensor linalg_svdvals(const Tensor& x) { return hs::linalg::svdvals(x.h()); }
inline std::tuple<Tensor, Tensor> linalg_eigh(const Tensor& x, std::string_view uplo = "L") {
  const hs::linalg::Eigh parts = hs::linalg::eigh(x.h(), uplo);
  return {parts.eigenvalues, parts.eigenvectors};
}
inline Tensor linalg_eigvalsh(const Tensor& x, std::string_view uplo = "L") { return hs::linalg::eigvalsh(x.h(), uplo); }
inline Tensor linalg_solve(const Tensor& a, const Tensor& b, bool left = true) { return hs::linalg::solve(a.h(), b.h(), left); }
inline Tensor linalg_solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left = true, bool unitriangular = false) {
  return hs::linalg::solve_triangular(a.h(), b.h(), upper, {.left = left, .unitriangular = unitriangular});
}
// Returns solution, residuals, rank and singular values.
inline std::tuple<Tensor, Tensor, Tensor, Tensor> linalg_lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond = {},
                                                               std::optional<std::string_view> driver = {}) {
  const hs::linalg::Lstsq out = hs::linalg::lstsq(a.h(), b.h(), rcond, driver.value_or("gelsy"));
  return {out.solution, out.residuals, out.rank, out.singular_values};
}
inline Tensor linalg_matrix_power(const Tensor& x, int64_t n) { return x.matrix_power(n); }
inline Tensor linalg_matrix_exp(const Tensor& x) { return x.matrix_exp(); }
inline Tensor linalg_matrix_rank(const Tensor& x, std::optional<double> atol = {}, std::optional<double> rtol = {}) {
  return hs::linalg::matrix_rank(x.h(), rtol, atol);
}
inline Tensor linalg_pinv(const Tensor& x, std::optional<double> atol = {}, std::optional<double> rtol = {}) {
  return hs::pinverse(x.h(), rtol, atol);
}
inline Tensor linalg_multi_dot(TensorList xs) { return hs::multi_dot(detail::H(xs)); }
inline Tensor linalg_cross(const Tensor& a, const Tensor& b, int64_t dim = -1) { return a.cross(b, dim); }
inline Tensor linalg_vecdot(const Tensor& a, const Tensor& b, int64_t dim = -1) { return hs::linalg_vecdot(a.h(), b.h(), dim); }
inline Tensor linalg_matmul(const Tensor& a, const Tensor& b) { return a.matmul(b); }
inline Tensor linalg_diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1) {
  return x.diagonal(offset, dim1, dim2);
}

namespace linalg {
#define HS_TORCH_LINALG(name)                    \
  template <class... A>                          \
  decltype(auto) name(A&&... a) {                \
    return linalg_##name(std::forward<A>(a)...); \
  }
HS_TORCH_LINALG(norm)
HS_TORCH_LINALG(vector_norm)
HS_TORCH_LINALG(matrix_norm)
HS_TORCH_LINALG(inv)
HS_TORCH_LINALG(det)
HS_TORCH_LINALG(slogdet)
HS_TORCH_LINALG(cholesky)
HS_TORCH_LINALG(qr)
HS_TORCH_LINALG(svd)
HS_TORCH_LINALG(svdvals)
HS_TORCH_LINALG(eigh)
HS_TORCH_LINALG(eigvalsh)
HS_TORCH_LINALG(solve)
HS_TORCH_LINALG(solve_triangular)
HS_TORCH_LINALG(lstsq)
HS_TORCH_LINALG(matrix_power)
HS_TORCH_LINALG(matrix_exp)
HS_TORCH_LINALG(matrix_rank)
HS_TORCH_LINALG(pinv)
inline Tensor multi_dot(TensorList xs) { return linalg_multi_dot(xs); }
#undef HS_TORCH_LINALG
}  // namespace linalg

}  // namespace torch
