// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/linalg/inverse.h"

#include <Eigen/Dense>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void check_square(std::string_view op, const Tensor& x) {
  check_floating(op, {x});
  check<ShapeError>(x.dim() >= 2 && x.size(-1) == x.size(-2), op, "needs square matrices [..., N, N], got ", x.shape());
}

// f(matrix i, result i, i) on the host, for each matrix of x; result i has `size` elements of `out`, which comes back on x's
// device.
template <class T, class F>
Tensor each_matrix_of(const Tensor& x, const Shape& out_shape, F f) {
  const TensorOptions like{.dtype = x.dtype(), .device = x.device()};
  if (x.device().is_meta()) return Tensor::empty(out_shape, like);
  const Tensor host = x.detach().to(Device::cpu).contiguous(),
               out = Tensor::empty(out_shape, {.dtype = x.dtype(), .device = Device::cpu});
  const int64_t n = x.size(-1), count = n == 0 ? out.numel() : x.numel() / (n * n), size = count == 0 ? 0 : out.numel() / count;
  for (int64_t i = 0; i < count; ++i)
    f(Eigen::Map<const Matrix<T>>(host.data_ptr<T>() + i * n * n, n, n), out.data_ptr<T>() + i * size, i);
  return out.to(x.device());
}
template <class F>
Tensor each_matrix(const Tensor& x, const Shape& out_shape, F f) {
  return x.dtype() == DType::f64 ? each_matrix_of<double>(x, out_shape, f) : each_matrix_of<float>(x, out_shape, f);
}

Shape batch_of(const Tensor& x) {
  Shape shape = x.shape();
  shape.erase(x.dim() - 1);
  shape.erase(x.dim() - 2);
  return shape;
}

bool has_zero(const auto& pivots) { return (pivots.array() == 0).any(); }

struct Inverse {
  struct Attr {};
  static constexpr OpInfo info{.name = "inverse", .policy = CastPolicy::f32, .doc = "inverse of square matrices"};
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    const Tensor y = each_matrix(in[0], in[0].shape(), [&]<class M, class T>(const M& a, T* out, int64_t i) {
      if (a.rows() == 0) return;
      const Eigen::PartialPivLU<Matrix<T>> lu(a);
      halfstep::check<ValueError>(!has_zero(lu.matrixLU().diagonal()), "inverse", "matrix ", i, " of the batch is singular");
      Eigen::Map<Matrix<T>>(out, a.rows(), a.cols()) = lu.inverse();
    });
    ctx.save_output(y);
    return y;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor t = ctx.saved().transpose(-1, -2);
    return {neg(matmul(t, matmul(grads[0], t)))};
  }
};

// det(x) inverse(x)^T, also of singular matrices: from x = U S V^T it is det(U) det(V) U diag(products of the other s) V^T.
Tensor cofactors(const Tensor& x) {
  return each_matrix(x, x.shape(), []<class M, class T>(const M& a, T* out, int64_t) {
    Eigen::Map<Matrix<T>> to(out, a.rows(), a.cols());
    const Eigen::PartialPivLU<Matrix<T>> lu(a);
    if (!has_zero(lu.matrixLU().diagonal())) {
      to = lu.determinant() * lu.inverse().transpose();
      return;
    }
    const Eigen::JacobiSVD<Matrix<T>> svd(a, Eigen::ComputeFullU | Eigen::ComputeFullV);
    Eigen::Matrix<T, Eigen::Dynamic, 1> others(a.rows());
    for (Eigen::Index i = 0; i < others.size(); ++i) {
      others[i] = 1;
      for (Eigen::Index k = 0; k < others.size(); ++k) others[i] *= k == i ? T(1) : svd.singularValues()[k];
    }
    to = svd.matrixU().determinant() * svd.matrixV().determinant() *
         (svd.matrixU() * others.asDiagonal() * svd.matrixV().transpose());
  });
}

struct Det {
  struct Attr {};
  static constexpr OpInfo info{.name = "det", .policy = CastPolicy::f32, .doc = "determinant of square matrices"};
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    ctx.save(in[0]);
    return each_matrix(in[0], batch_of(in[0]), []<class M, class T>(const M& a, T* out, int64_t) {
      *out = a.rows() == 0 ? T(1) : Eigen::PartialPivLU<Matrix<T>>(a).determinant();
    });
  }
  // A derivative of the cofactors themselves exists, by this formula, for invertible matrices.
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor x = ctx.saved();
    const auto spread = [](const Tensor& t) { return t.unsqueeze(-1).unsqueeze(-1); };
    if (x.numel() == 0) return {zeros_like(x)};
    if (grad_enabled() && x.requires_grad()) return {spread(grads[0] * halfstep::det(x)) * halfstep::inverse(x).transpose(-1, -2)};
    return {spread(grads[0]) * cofactors(x)};
  }
};

constexpr OpInfo kTrace{.name = "trace", .doc = "the sum of a matrix's diagonal", .takes = Takes::any};

}  // namespace

Tensor trace(const Tensor& x) {
  check<ShapeError>(x.dim() == 2, "trace", "needs a matrix, got ", x.shape());
  return composite(kTrace, {x}, [](const Tensors& in) { return sum(diagonal(in[0])); });
}
Tensor Tensor::trace() const { return halfstep::trace(*this); }
Tensor det(const Tensor& x) {
  check_square(Det::info.name, x);
  return composite(Det::info, {x}, [](const Tensors& in) { return call<Det>(in, {}); });
}
Tensor Tensor::det() const { return halfstep::det(*this); }
Tensor inverse(const Tensor& x) {
  check_square(Inverse::info.name, x);
  return composite(Inverse::info, {x}, [](const Tensors& in) { return call<Inverse>(in, {}); });
}
Tensor Tensor::inverse() const { return halfstep::inverse(*this); }

void add_inverse(OpList& list) {
  list.add(kTrace, [](Args& a) { return trace(a.tensor(0)); });
  list.add(Det::info, [](Args& a) { return det(a.tensor(0)); });
  list.add(Inverse::info, [](Args& a) { return inverse(a.tensor(0)); });
  list.alias("linalg_det", "det");
  list.alias("linalg_inv", "inverse");
}

}  // namespace halfstep
