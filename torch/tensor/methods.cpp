// SPDX-License-Identifier: Apache-2.0
// What the rows of methods.def need.
#include "torch/tensor/network.h"

namespace torch {

namespace detail {
std::pair<hs::Tensor, hs::Tensor> sign_and_log(const hs::Tensor& x) {
  const hs::SignLogDet out = hs::slogdet(x);
  return {out.sign, out.logabsdet};
}
hs::Tensor gelu(const hs::Tensor& x, std::string_view approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh", "approximate argument must be either none or tanh, got ",
              approximate);
  return approximate == "tanh" ? hs::gelu_tanh(x) : hs::gelu(x);
}
template <class N>
hs::Tensor quotient_of(const hs::Tensor& x, const N& o, std::optional<std::string_view> mode) {
  if (!mode) return hs::div(x, o);
  TORCH_CHECK(*mode == "trunc" || *mode == "floor", "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '",
              *mode, "'");
  return hs::div(x, o, *mode == "trunc" ? hs::RoundingMode::trunc : hs::RoundingMode::floor);
}
hs::Tensor quotient(const hs::Tensor& x, const hs::Tensor& o, std::optional<std::string_view> mode) {
  return quotient_of(x, o, mode);
}
hs::Tensor quotient(const hs::Tensor& x, hs::Number o, std::optional<std::string_view> mode) { return quotient_of(x, o, mode); }
int64_t first_of_three(const hs::Tensor& x) {
  for (int d = 0; d < x.dim(); ++d)
    if (x.shape()[d] == 3) return d;
  fail("cross requires a dimension of size 3, got sizes ", Tensor(x).sizes());
}
hs::Tensors equal_parts(const hs::Tensor& x, int64_t n, int64_t d) {
  TORCH_CHECK(n > 0 && x.size(d) % n == 0, "the number of parts must divide the size ", x.size(d), " of dimension ", d, ", got ",
              n);
  return hs::tensor_split(x, n, d);
}
Tensor& store(const char* op, const Tensor& to, const hs::Tensor& value) { return to.stored(op, value); }
}  // namespace detail

std::tuple<Tensor, Tensor, Tensor> Tensor::svd(bool some, bool compute_uv) const {
  TORCH_CHECK(compute_uv, "svd without U and V is linalg_svdvals here");
  const hs::linalg::SVD parts = hs::linalg::svd(h_, !some);
  return {parts.u, parts.s, parts.vh.transpose(-2, -1)};
}

Tensor& Tensor::stored(const char* op, const hs::Tensor& value) const {
  const bool fits = h_.is_floating_point() || value.dtype() == hs::DType::boolean || value.dtype() == h_.dtype() ||
                    (!value.is_floating_point() && h_.dtype() != hs::DType::boolean);
  TORCH_CHECK(fits, "[", op, "_] result type ", Tensor(value).dtype(), " can't be cast to the desired output type ", dtype());
  TORCH_CHECK(value.shape() == h_.shape(), "[", op, "_] output with shape ", sizes(), " doesn't match the broadcast shape ",
              Tensor(value).sizes());
  h_.copy_(value);
  return self();
}

}  // namespace torch
