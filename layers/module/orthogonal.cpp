// SPDX-License-Identifier: Apache-2.0
#include "layers/module/orthogonal.h"

#include <algorithm>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/base/list_text.h"
#include "framework/ops/linalg/lapack.h"

namespace halfstep {
namespace {

// Returns the transposes of a batch of matrices.
Tensor mT(const Tensor& x) { return x.transpose(-1, -2); }
bool is_wide(const Tensor& x) { return x.size(-2) < x.size(-1); }
// Returns the shape of a batch of square matrices with the larger side of x's.
Shape square_shape(const Tensor& x) {
  Shape shape = x.shape();
  shape[x.dim() - 1] = shape[x.dim() - 2] = std::max(x.size(-2), x.size(-1));
  return shape;
}
Tensor identity(int64_t n, int64_t k, const Tensor& like) { return eye(n, k, {.dtype = like.dtype(), .device = like.device()}); }
Tensor signs(const Tensor& diagonal) { return where(diagonal < 0, full_like(diagonal, -1), ones_like(diagonal)); }
Tensor diagonal_of(const Tensor& x) { return diagonal(x, 0, -2, -1); }

// Returns the first columns of Q for a tall x, by the exponential or by Cayley's map.
Tensor by_skew_matrix(const Tensor& x, bool cayley) {
  const int64_t n = x.size(-2), k = x.size(-1);
  Tensor lower = tril(x);
  if (n != k) {
    Shape rest = x.shape();
    rest[x.dim() - 1] = n - k;
    lower = cat({lower, x.new_zeros(rest)}, -1);
  }
  const Tensor a = lower - mT(lower);
  Tensor q;
  if (cayley) {
    const Tensor one = identity(n, n, a);
    q = linalg::solve(one - a * 0.5, one + a * 0.5);
  } else {
    q = matrix_exp(a);
  }
  return n == k ? q : q.slice(-1, 0, k);
}

// Multiplies the reflections 1 - 2 v v^T / |v|^2 by the columns of V = tril(x, -1) + 1, in one product: 1 - V T V^T, where T^-1 is
// the upper triangle of V^T V with half its diagonal (Joffrain et al., "Accumulating Householder transformations, revisited",
// 2006).
Tensor by_reflections(const Tensor& x) {
  const int64_t n = x.size(-2), k = x.size(-1);
  const Tensor v = tril(x, -1) + identity(n, k, x), products = matmul(mT(v), v);
  const Tensor inverse_t = triu(products) - products * (identity(k, k, x) * 0.5);
  const Tensor q = identity(n, k, x) - matmul(v, linalg::solve_triangular(inverse_t, mT(v.slice(-2, 0, k)), /*upper=*/true));
  return q * signs(diagonal_of(x.detach())).unsqueeze(-2);
}

// Returns the Q of the decomposition Q R = x in which R has no negative numbers on its diagonal.
Tensor orthogonalized(const Tensor& x) {
  const QR made = qr(x);
  return made.q * signs(diagonal_of(made.r)).unsqueeze(-2);
}

bool is_orthogonal(const Tensor& x) {
  const double tolerance = 10 * double(x.size(-2)) * epsilon(x.dtype());
  return allclose(matmul(mT(x), x), identity(x.size(-1), x.size(-1), x).expand(square_shape(x)), 1e-5, tolerance);
}

// Returns a matrix that by_reflections maps to the orthogonalized x.
Tensor reflections_of(const Tensor& x) {
  const Tensors made = lapack::geqrf(x);
  const Tensor diagonal = diagonal_of(made[0]);
  // LAPACK omits a reflection that would only change a sign; its factor is then 0.
  const Tensor sign = where(made[1] == 0, neg(signs(diagonal)), signs(diagonal));
  return tril(made[0], -1) + triu(made[0], 1) + identity(x.size(-2), x.size(-1), x) * sign.unsqueeze(-2);
}

}  // namespace

Orthogonal::Orthogonal(const Tensor& weight, const OrthogonalOptions& o) : options_(o), shape_(weight.shape()) {
  check<DTypeError>(weight.is_floating_point(), "orthogonal", "needs a floating dtype, got ", weight.dtype());
  check<ShapeError>(weight.dim() >= 2, "orthogonal", "needs a matrix or a batch of matrices [..., m, n], got ", weight.shape());
  if (!o.orthogonal_map) options_.orthogonal_map = weight.size(-2) == weight.size(-1) ? "matrix_exp" : "householder";
  const std::vector<std::string> maps{"matrix_exp", "cayley", "householder"};
  const std::string& map = *options_.orthogonal_map;
  check<ValueError>(std::find(maps.begin(), maps.end(), map) != maps.end(), "orthogonal",
                    "orthogonal_map must be one of matrix_exp, cayley and householder, got ", map, [&] {
                      const std::string near = nearest_name(map, maps);
                      return near.empty() ? "" : "; did you mean " + near + '?';
                    }());
  if (!o.use_trivialization) return;
  const MemoryScope tag(MemoryTag::parameters);
  const int64_t n = std::max(weight.size(-2), weight.size(-1));
  base_ = register_buffer("base", identity(n, n, weight).expand(square_shape(weight)).clone());
}

Tensor Orthogonal::forward(const Tensor& original) {
  const autocast::Off full_precision;
  const bool half = is_half(original.dtype()), wide = is_wide(original);
  Tensor x = half ? original.to(DType::f32) : original;
  if (wide) x = mT(x);
  const std::string& map = *options_.orthogonal_map;
  Tensor q = map == "householder" ? by_reflections(x) : by_skew_matrix(x, map == "cayley");
  if (base_.defined()) q = matmul(half ? base_.to(DType::f32) : Tensor(base_), q);
  if (wide) q = mT(q);
  return half ? q.to(original.dtype()) : q;
}

Tensor Orthogonal::right_inverse(const Tensor& value) {
  check<ShapeError>(value.shape() == shape_, "orthogonal", "the value must have the weight's shape ", shape_, ", got ",
                    value.shape());
  const NoGrad off;
  const autocast::Off full_precision;
  const bool half = is_half(value.dtype());
  Tensor x = half ? value.to(DType::f32) : value;
  if (is_wide(value)) x = mT(x);
  if (!options_.use_trivialization) {
    const Tensor original = reflections_of(x);
    return (is_wide(value) ? mT(original) : original).to(value.dtype());
  }
  const int64_t n = x.size(-2), k = x.size(-1);
  if (n != k) {  // completes the basis by random directions
    Shape rest = x.shape();
    rest[x.dim() - 1] = n - k;
    x = cat({x, randn(rest, {.dtype = x.dtype(), .device = x.device()})}, -1);
  }
  const MemoryScope tag(MemoryTag::parameters);
  const bool is_base = n == k && !x.device().is_meta() && is_orthogonal(x);
  base_ = (is_base ? x.clone() : orthogonalized(x)).to(value.dtype()).contiguous();
  // The maps take -1 to 1, also by reflections.
  return neg(identity(value.size(-2), value.size(-1), value)).expand(value.shape()).clone();
}

}  // namespace halfstep
