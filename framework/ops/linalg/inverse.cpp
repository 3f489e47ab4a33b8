// SPDX-License-Identifier: Apache-2.0
// Gradients: the formulas of M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
// differentiation" (2008). The exponential: N. Higham, "The scaling and squaring method for the matrix exponential revisited"
// (2005). With g the gradient of the result:
//
//   x = a^-1 b        gb = a^-T g, ga = -gb x^T; of a triangular a only that triangle
//   y = x^-1          gx = -y^T g y^T
//   det, slogdet      gx = g det(x) x^-T, and g x^-T for ln |det x|
//   matrix_exp        gx = the upper right block of the exponential of [[x^T, g], [0, x^T]]
#include "framework/ops/linalg/inverse.h"

#include <algorithm>
#include <cmath>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/decompositions.h"
#include "framework/ops/linalg/lapack.h"
#include "framework/ops/linalg/matrices.h"

namespace halfstep {
namespace {

using namespace matrices;

struct SolveOp {
  struct Attr {};
  static constexpr OpInfo info{.name = "linalg_solve", .policy = CastPolicy::f32, .doc = "x with a x = b"};
  enum Saved : size_t { kA, kX };
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    const Tensor x = lapack::solve(info.name, in[0], in[1]);
    ctx.save(in[0]);
    ctx.save_output(x);
    return x;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor gb = call<SolveOp>({mT(ctx.saved(kA)), grads[0]});
    return {ctx.needs(0) ? neg(matmul(gb, mT(ctx.saved(kX)))) : Tensor(), gb};
  }
};

struct SolveTriangularOp {
  struct Attr {
    bool upper, unit;
  };
  static constexpr OpInfo info{.name = "linalg_solve_triangular", .policy = CastPolicy::f32, .doc = "x with a x = b, a triangular"};
  enum Saved : size_t { kA, kX };
  static Attributes describe(const Attr& attr) { return {{"upper", attr.upper}, {"unitriangular", attr.unit}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor x = lapack::solve_triangular(in[0], in[1], attr.upper, attr.unit);
    ctx.save(in[0]);
    ctx.save_output(x);
    return x;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor gb = call<SolveTriangularOp>({mT(ctx.saved(kA)), grads[0]}, {!attr.upper, attr.unit});
    if (!ctx.needs(0)) return {Tensor(), gb};
    const Tensor ga = neg(matmul(gb, mT(ctx.saved(kX))));
    return {attr.upper ? triu(ga, attr.unit ? 1 : 0) : tril(ga, attr.unit ? -1 : 0), gb};
  }
};

struct Inverse {
  struct Attr {};
  static constexpr OpInfo info{.name = "inverse", .policy = CastPolicy::f32, .doc = "inverse of square matrices"};
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    const Tensor y = lapack::inverse(info.name, in[0]);
    ctx.save_output(y);
    return y;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor yt = mT(ctx.saved());
    return {neg(matmul(yt, matmul(grads[0], yt)))};
  }
};

// Returns det(x) inverse(x)^T, also for singular matrices: with x = U S V^T it is det(U) det(V) U diag(products of the other s)
// V^T.
Tensor cofactors(const Tensor& x) {
  if (!x.device().is_meta() && !isfinite(x).all().item<bool>()) return full_like(x, NAN);
  const Tensors factors = lapack::svd("det", x, false);
  const Tensor &u = factors[0], &s = factors[1], &vh = factors[2], one = identity_like(x);
  const Tensor others = prod(row(s) * (1 - one) + one, -1);  // row i has every s except its own
  const Tensor sign = lapack::determinant(u)[0] * lapack::determinant(vh)[0];
  return column(column(sign)) * matmul(u * row(others), vh);
}

struct Det {
  struct Attr {};
  static constexpr OpInfo info{.name = "det", .policy = CastPolicy::f32, .doc = "determinant of square matrices"};
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    ctx.save(in[0]);
    return lapack::determinant(in[0])[0];
  }
  // Computes by the inverse if recorded, which needs invertible matrices, because cofactors() has no derivative.
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor x = ctx.saved();
    if (x.numel() == 0) return {zeros_like(x)};
    if (grad_enabled() && x.requires_grad()) return {column(column(grads[0] * halfstep::det(x))) * mT(halfstep::inverse(x))};
    return {column(column(grads[0])) * cofactors(x)};
  }
};

struct Slogdet {
  struct Attr {};
  static constexpr OpInfo info{
      .name = "slogdet", .policy = CastPolicy::f32, .doc = "sign, and logarithm of the absolute value, of the determinant"};
  static Tensors forward(OpContext& ctx, const Attr&, const Tensors& in) {
    ctx.save(in[0]);
    const Tensors out = lapack::determinant(in[0]);
    return {out[1], out[2]};
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor x = ctx.saved();
    if (!grads[1].defined()) return {zeros_like(x)};
    return {column(column(grads[1])) * mT(under_name(info.name, [&] { return halfstep::inverse(x); }))};
  }
};

struct MatrixExp {
  struct Attr {};
  static constexpr OpInfo info{.name = "matrix_exp", .policy = CastPolicy::f32, .doc = "1 + x + x x / 2 + ..., of square matrices"};
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    const Tensor& x = in[0];
    ctx.save(x);
    if (x.numel() == 0 || x.device().is_meta()) return Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
    const double norm = x.abs().sum(-2).max().item<double>();
    if (!std::isfinite(norm)) return full_like(x, NAN);
    const int squarings = norm > kRadius ? int(std::ceil(std::log2(norm / kRadius))) : 0;
    Tensor y = pade(x * std::ldexp(1.0, -squarings));
    for (int i = 0; i < squarings; ++i) y = matmul(y, y);
    return y;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor xt = mT(ctx.saved());
    const int64_t n = xt.size(-1);
    if (xt.numel() == 0) return {zeros_like(xt)};
    const Tensor block = cat({cat({xt, grads[0]}, -1), cat({zeros_like(xt), xt}, -1)}, -2);
    return {halfstep::matrix_exp(block).narrow(-2, 0, n).narrow(-1, n, n)};
  }

 private:
  static constexpr double kRadius = 5.371920351148152;  // up to this 1-norm the approximant reaches double precision
  // Returns r(a) = (v - u)^-1 (v + u), where u has the odd powers of a polynomial with coefficients b, and v the even ones.
  static Tensor pade(const Tensor& a) {
    constexpr double b[] = {64764752532480000,
                            32382376266240000,
                            7771770303897600,
                            1187353796428800,
                            129060195264000,
                            10559470521600,
                            670442572800,
                            33522128640,
                            1323241920,
                            40840800,
                            960960,
                            16380,
                            182,
                            1};
    const Tensor one = identity_like(a), a2 = matmul(a, a), a4 = matmul(a2, a2), a6 = matmul(a4, a2);
    const Tensor u = matmul(a, matmul(a6, a6 * b[13] + a4 * b[11] + a2 * b[9]) + a6 * b[7] + a4 * b[5] + a2 * b[3] + one * b[1]);
    const Tensor v = matmul(a6, a6 * b[12] + a4 * b[10] + a2 * b[8]) + a6 * b[6] + a4 * b[4] + a2 * b[2] + one * b[0];
    return lapack::solve(info.name, v - u, v + u);
  }
};

constexpr OpInfo kTrace{.name = "trace", .doc = "the sum of a matrix's diagonal", .dtypes = DTypeSet::any};
constexpr OpInfo kMatrixPower{.name = "matrix_power", .policy = CastPolicy::f32, .doc = "x^n of square matrices"};
constexpr OpInfo kCholeskySolve{.name = "cholesky_solve", .policy = CastPolicy::f32, .doc = "x^-1 b from the Cholesky factor of x"};

// Broadcasts a and b to one batch.
std::pair<Tensor, Tensor> broadcast_batches(std::string_view op, const Tensor& a, const Tensor& b) {
  const Shape batch = broadcast(batch_of(a), batch_of(b), op);
  const auto with = [&](const Tensor& t) {
    Shape shape = batch;
    shape.push_back(t.size(-2));
    shape.push_back(t.size(-1));
    return t.shape() == shape ? t : t.expand(shape);
  };
  return {with(a), with(b)};
}

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
SignLogDet slogdet(const Tensor& x) {
  check_square(Slogdet::info.name, x);
  const Tensors out = several(Slogdet::info, {x}, [](const Tensors& in) { return call<Slogdet>(in, {}); });
  return {out[0], out[1]};
}
Tensor logdet(const Tensor& x) {
  const SignLogDet d = slogdet(x);
  return where(d.sign < 0, NAN, d.logabsdet);
}

Tensor matrix_exp(const Tensor& x) {
  check_square(MatrixExp::info.name, x);
  return composite(MatrixExp::info, {x}, [](const Tensors& in) { return call<MatrixExp>(in, {}); });
}

Tensor matrix_power(const Tensor& x, int64_t n) {
  check_square(kMatrixPower.name, x);
  return composite(kMatrixPower, {x}, [&](const Tensors& in) {
    Tensor power = n < 0 ? call<Inverse>(in, {}) : in[0], out;
    for (uint64_t left = n < 0 ? 0 - uint64_t(n) : uint64_t(n); left > 0; left /= 2) {
      if (left % 2 == 1) out = out.defined() ? matmul(out, power) : power;
      if (left > 1) power = matmul(power, power);
    }
    return out.defined() ? out : identity_like(power).expand(power.shape()).contiguous();
  });
}

Tensor cholesky_solve(const Tensor& b, const Tensor& factor, bool upper) {
  check_square(kCholeskySolve.name, factor);
  check_matrices(kCholeskySolve.name, b);
  return composite(kCholeskySolve, {b, factor}, [&](const Tensors& in) {
    check_same_dtype(kCholeskySolve.name, in);
    const Tensor l = upper ? mT(in[1]) : in[1];
    return linalg::solve_triangular(mT(l), linalg::solve_triangular(l, in[0], /*upper=*/false), /*upper=*/true);
  });
}

Tensor Tensor::logdet() const { return halfstep::logdet(*this); }
Tensor Tensor::matrix_exp() const { return halfstep::matrix_exp(*this); }
Tensor Tensor::matrix_power(int64_t n) const { return halfstep::matrix_power(*this, n); }

namespace linalg {

Tensor solve(const Tensor& a, const Tensor& b, bool left) {
  constexpr std::string_view op = SolveOp::info.name;
  check_square(op, a);
  check_floating(op, {b});
  const bool is_vector = b.dim() == 1 || (b.dim() == a.dim() - 1 && b.shape() == without_last(a));
  if (!is_vector) check_matrices(op, b);
  check<ShapeError>(b.size(is_vector || !left ? -1 : -2) == a.size(-1), op, "a and b must have as many rows, got ", a.shape(),
                    " and ", b.shape());
  return composite(SolveOp::info, {a, b}, [&](const Tensors& in) {
    check_same_dtype(op, in);
    const Tensor rhs = is_vector ? column(in[1]) : left ? in[1] : mT(in[1]);
    const auto [wide_a, wide_b] = broadcast_batches(op, left ? in[0] : mT(in[0]), rhs);
    const Tensor x = call<SolveOp>({wide_a, wide_b}, {});
    return is_vector ? x.squeeze(-1) : left ? x : mT(x);
  });
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, const TriangularOptions& options) {
  constexpr std::string_view op = SolveTriangularOp::info.name;
  check_square(op, a);
  check_floating(op, {b});
  check_matrices(op, b);
  check<ShapeError>(b.size(options.left ? -2 : -1) == a.size(-1), op, "a and b do not fit, got ", a.shape(), " and ", b.shape());
  return composite(SolveTriangularOp::info, {a, b}, [&](const Tensors& in) {
    check_same_dtype(op, in);
    const auto [wide_a, wide_b] = broadcast_batches(op, options.left ? in[0] : mT(in[0]), options.left ? in[1] : mT(in[1]));
    const Tensor x = call<SolveTriangularOp>({wide_a, wide_b}, {options.left == upper, options.unitriangular});
    return options.left ? x : mT(x);
  });
}

}  // namespace linalg

void add_inverse(OpList& list) {
  list.add(kTrace, [](Args& a) { return trace(a.tensor(0)); });
  list.add(Det::info, [](Args& a) { return det(a.tensor(0)); });
  list.add(Inverse::info, [](Args& a) { return inverse(a.tensor(0)); });
  list.alias("linalg_det", "det");
  list.alias("linalg_inv", "inverse");
  list.add(Slogdet::info, [](Args& a) {
    const SignLogDet d = slogdet(a.tensor(0));
    return Tensors{d.sign, d.logabsdet};
  });
  list.alias("linalg_slogdet", "slogdet");
  list.alias("logdet", "slogdet", [](Args& a) { return Tensors{logdet(a.tensor(0))}; });
  list.add(MatrixExp::info, [](Args& a) { return matrix_exp(a.tensor(0)); });
  list.alias("linalg_matrix_exp", "matrix_exp");
  list.add(kMatrixPower, [](Args& a) { return matrix_power(a.tensor(0), a.integer("n")); });
  list.alias("linalg_matrix_power", "matrix_power");
  list.add(SolveOp::info, [](Args& a) { return linalg::solve(a.tensor(0), a.tensor(1), a.flag("left", true)); });
  list.add(SolveTriangularOp::info, [](Args& a) {
    return linalg::solve_triangular(a.tensor(0), a.tensor(1), a.flag("upper"),
                                    {.left = a.flag("left", true), .unitriangular = a.flag("unitriangular", false)});
  });
  list.add(kCholeskySolve, [](Args& a) { return cholesky_solve(a.tensor(0), a.tensor(1), a.flag("upper", false)); });
}

}  // namespace halfstep
