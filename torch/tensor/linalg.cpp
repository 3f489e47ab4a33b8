// SPDX-License-Identifier: Apache-2.0
#include "torch/tensor/linalg.h"

namespace torch {
namespace {

Tensor in(const Tensor& x, const std::optional<ScalarType>& dtype) { return dtype ? x.to(*dtype) : x; }

// Returns the two dimensions over which a matrix's norm is computed, counted from the front.
std::array<int, 2> matrix_dims(const Tensor& x, IntArrayRef dim) {
  TORCH_CHECK(dim.size() == 2, "linalg.matrix_norm: dim must have two entries, got ", dim.size());
  const int rank = int(x.dim());
  const std::array<int, 2> at{hs::wrap_dim(dim[0], rank, "linalg.matrix_norm"), hs::wrap_dim(dim[1], rank, "linalg.matrix_norm")};
  TORCH_CHECK(at[0] != at[1], "linalg.matrix_norm: dims must be different, got ", dim);
  return at;
}
// Returns x with these dimensions last.
Tensor with_last(const Tensor& x, const std::array<int, 2>& at) {
  std::vector<int64_t> order;
  for (int i = 0; i < int(x.dim()); ++i)
    if (i != at[0] && i != at[1]) order.push_back(i);
  order.insert(order.end(), at.begin(), at.end());
  return x.permute(order);
}
// Returns y, a number for each matrix, with dimensions of size 1 where x has those of the matrices.
Tensor kept(const Tensor& y, const std::array<int, 2>& at) {
  return y.unsqueeze(std::min(at[0], at[1])).unsqueeze(std::max(at[0], at[1]));
}

}  // namespace

Tensor linalg_vector_norm(const Tensor& x, Scalar ord, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
  return in(x, dtype).norm(ord, dim, keepdim);
}

Tensor linalg_matrix_norm(const Tensor& x, Scalar ord, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
  const auto at = matrix_dims(x, dim);
  const Tensor m = with_last(in(x, dtype), at);
  const double p = ord.toDouble(), size = std::abs(p);
  Tensor y;
  if (size == 2) {
    const Tensor s = linalg_svdvals(m);
    y = p > 0 ? s.amax(-1) : s.amin(-1);
  } else {
    TORCH_CHECK(size == 1 || std::isinf(size), "linalg.matrix_norm: Order ", p, " not supported.");
    const Tensor sums = m.abs().sum(size == 1 ? -2 : -1);  // of columns, or of rows
    y = p > 0 ? sums.amax(-1) : sums.amin(-1);
  }
  return keepdim ? kept(y, at) : y;
}

Tensor linalg_matrix_norm(const Tensor& x, std::string_view ord, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
  TORCH_CHECK(ord == "fro" || ord == "nuc", "linalg.matrix_norm: Order ", ord, " not supported.");
  if (ord == "fro") return linalg_vector_norm(x, 2, dim, keepdim, dtype);
  const auto at = matrix_dims(x, dim);
  const Tensor y = linalg_svdvals(with_last(in(x, dtype), at)).sum(-1);
  return keepdim ? kept(y, at) : y;
}

Tensor linalg_norm(const Tensor& x, std::optional<Scalar> ord, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
  const int64_t over = dim.empty() ? x.dim() : int64_t(dim.size());
  TORCH_CHECK(!ord || over == 1 || over == 2, "linalg.norm: with ord, a norm is over 1 or 2 dimensions, got ", over);
  if (!ord || over == 1) return linalg_vector_norm(x, ord.value_or(2), dim, keepdim, dtype);
  return linalg_matrix_norm(x, *ord, dim.empty() ? IntArrayRef({0, 1}) : dim, keepdim, dtype);
}
Tensor linalg_norm(const Tensor& x, std::string_view ord, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
  TORCH_CHECK(!dim.empty() || x.dim() == 2, "linalg.norm: without dim, the input must be a matrix, got ", x.dim(), " dimensions");
  return linalg_matrix_norm(x, ord, dim.empty() ? IntArrayRef({0, 1}) : dim, keepdim, dtype);
}

}  // namespace torch
