// SPDX-License-Identifier: Apache-2.0
// Gradients: the formulas of M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
// differentiation" (2008), and for qr of S. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions with
// application in optimum experimental design" (2010). gU is the gradient of U, and so on; * multiplies elements; V = Vh^T.
//
//   svd       E_ij = 1 / (s_j^2 - s_i^2), 0 on the diagonal; A = E * (U^T gU - gU^T U); B = E * (Vh gVh^T - gVh Vh^T)
//             gx = U (diag(gs) + A diag(s) + diag(s) B) Vh + (1 - U U^T) gU diag(1/s) Vh + U diag(1/s) gVh (1 - V Vh)
//   eigh      E_ij = 1 / (w_j - w_i), 0 on the diagonal; gx = V (diag(gw) + E * (V^T gV)) V^T
//   qr        M = R gR^T - gQ^T Q; gx = (gQ + Q mirrored(M)) R^-T, where mirrored copies the lower triangle to the upper one
//   cholesky  P = lower triangle of L^T gL, with half its diagonal; gx = the symmetric part of L^-T P L^-1
#include "framework/ops/linalg/decompositions.h"

#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/inverse.h"
#include "framework/ops/linalg/lapack.h"
#include "framework/ops/linalg/matrices.h"

namespace halfstep {
namespace {

using namespace matrices;

struct Svd {
  struct Attr {
    bool full;
  };
  static constexpr OpInfo info{.name = "linalg_svd", .policy = CastPolicy::f32, .doc = "U S Vh with x = U diag(S) Vh"};
  enum Saved : size_t { kU, kS, kVh };
  static Attributes describe(const Attr& attr) { return {{"full_matrices", attr.full}}; }
  static Tensors forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensors out = lapack::svd(info.name, in[0], attr.full);
    for (int i = 0; i < 3; ++i) ctx.save_output(out[size_t(i)], i);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor s = ctx.saved(kS);
    const int64_t k = s.size(-1);
    const auto first = [k](const Tensor& t, int dim) { return t.defined() && t.size(dim) > k ? t.narrow(dim, 0, k) : t; };
    const Tensor u = first(ctx.saved(kU), -1), vh = first(ctx.saved(kVh), -2), gu = first(grads[0], -1), gvh = first(grads[2], -2);
    if (!gu.defined() && !gvh.defined()) return {matmul(u * row(grads[1]), vh)};
    const Tensor s2 = s * s, gaps = row(s2) - column(s2) + eye(k, {.dtype = s.dtype(), .device = s.device()});
    const auto rotation = [&](const Tensor& t) { return (t - mT(t)) / gaps; };  // E * (t - t^T)
    Tensor core = grads[1].defined() ? diag_embed(grads[1]) : zeros_like(gaps);
    if (gu.defined()) core = core + rotation(matmul(mT(u), gu)) * row(s);
    if (gvh.defined()) core = core + column(s) * rotation(matmul(vh, mT(gvh)));
    Tensor gx = matmul(matmul(u, core), vh);
    if (gu.defined() && u.size(-2) > k) {  // part of U's gradient that is orthogonal to U
      const Tensor scaled = gu / row(s);
      gx = gx + matmul(scaled - matmul(u, matmul(mT(u), scaled)), vh);
    }
    if (gvh.defined() && vh.size(-1) > k) {
      const Tensor scaled = gvh / column(s);
      gx = gx + matmul(u, scaled - matmul(matmul(scaled, mT(vh)), vh));
    }
    return {gx};
  }
};

struct SymmetricEigen {
  struct Attr {
    bool lower;
  };
  static constexpr OpInfo info{
      .name = "linalg_eigh", .policy = CastPolicy::f32, .doc = "eigenvalues, rising, and eigenvectors of symmetric matrices"};
  enum Saved : size_t { kValues, kVectors };
  static Attributes describe(const Attr& attr) { return {{"UPLO", attr.lower ? "L" : "U"}}; }
  static Tensors forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensors out = lapack::eigh(info.name, in[0], attr.lower);
    ctx.save_output(out[0], 0);
    ctx.save_output(out[1], 1);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor w = ctx.saved(kValues), v = ctx.saved(kVectors), one = identity_like(v);
    Tensor core = grads[0].defined() ? diag_embed(grads[0]) : zeros_like(v);
    if (grads[1].defined()) core = core + matmul(mT(v), grads[1]) * (1 - one) / (row(w) - column(w) + one);
    return {matmul(matmul(v, core), mT(v))};
  }
};

struct QrOp {
  struct Attr {
    bool complete;
  };
  static constexpr OpInfo info{.name = "linalg_qr", .policy = CastPolicy::f32, .doc = "Q R with x = Q R, R upper triangular"};
  enum Saved : size_t { kX, kQ, kR };
  static Attributes describe(const Attr& attr) { return {{"mode", attr.complete ? "complete" : "reduced"}}; }
  static Tensors forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensors out = lapack::qr(in[0], attr.complete);
    ctx.save(in[0]);
    ctx.save_output(out[0], 0);
    ctx.save_output(out[1], 1);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor x = ctx.saved(kX), q = ctx.saved(kQ), r = ctx.saved(kR);
    const int64_t m = x.size(-2), n = x.size(-1);
    halfstep::check<AutogradError>(!attr.complete || m <= n, info.name,
                                   "has no gradient in mode complete for more rows than columns");
    if (m >= n) return {of_tall(q, r, grads[0], grads[1])};
    // x = [left, right], r = [square, rest]: right = q rest.
    Tensor gq = grads[0], gr_left, g_right = zeros_like(x.narrow(-1, m, n - m));
    if (grads[1].defined()) {
      const Tensor gr_right = grads[1].narrow(-1, m, n - m), onto_q = matmul(x.narrow(-1, m, n - m), mT(gr_right));
      gr_left = grads[1].narrow(-1, 0, m);
      gq = gq.defined() ? gq + onto_q : onto_q;
      g_right = matmul(q, gr_right);
    }
    return {cat({of_tall(q, r.narrow(-1, 0, m), gq, gr_left), g_right}, -1)};
  }

 private:
  // Returns the gradient of x with at least as many rows as columns.
  static Tensor of_tall(const Tensor& q, const Tensor& r, const Tensor& gq, const Tensor& gr) {
    Tensor m = zeros_like(r);
    if (gr.defined()) m = m + matmul(r, mT(gr));
    if (gq.defined()) m = m - matmul(mT(gq), q);
    const Tensor mirrored = tril(m) + mT(tril(m, -1));
    Tensor right = matmul(q, mirrored);
    if (gq.defined()) right = right + gq;
    return mT(linalg::solve_triangular(r, mT(right), /*upper=*/true));  // right r^-T
  }
};

struct CholeskyOp {
  struct Attr {
    bool upper;
  };
  static constexpr OpInfo info{.name = "cholesky", .policy = CastPolicy::f32, .doc = "L with x = L L^T, lower triangular"};
  static Attributes describe(const Attr& attr) { return {{"upper", attr.upper}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor y = lapack::cholesky(info.name, in[0], attr.upper);
    ctx.save_output(y);
    return y;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor l = attr.upper ? mT(ctx.saved()) : ctx.saved(), g = attr.upper ? mT(grads[0]) : grads[0];
    const Tensor inner = matmul(mT(l), g), half = tril(inner, -1) + diag_embed(inner.diagonal(0, -2, -1)) * 0.5;
    const Tensor left = linalg::solve_triangular(mT(l), half, /*upper=*/true);  // l^-T half
    return {symmetric(mT(linalg::solve_triangular(mT(l), mT(left), /*upper=*/true)))};
  }
};

bool uplo_is_lower(std::string_view op, std::string_view uplo) {
  check<ValueError>(uplo == "L" || uplo == "U", op, "'UPLO' must be L or U, got '", uplo, "'");
  return uplo == "L";
}

}  // namespace

Tensor cholesky(const Tensor& x, bool upper) {
  check_square(CholeskyOp::info.name, x);
  return composite(CholeskyOp::info, {x}, [&](const Tensors& in) { return call<CholeskyOp>(in, {upper}); });
}

Tensor Tensor::cholesky(bool upper) const { return halfstep::cholesky(*this, upper); }

QR qr(const Tensor& x, std::string_view mode) {
  constexpr std::string_view op = QrOp::info.name;
  check_matrices(op, x);
  check<ValueError>(mode == "reduced" || mode == "complete" || mode == "r", op, "'mode' must be reduced, complete or r, got '",
                    mode, "'");
  const Tensors out = several(QrOp::info, {x}, [&](const Tensors& in) { return call<QrOp>(in, {mode == "complete"}); });
  return {mode == "r" ? Tensor() : out[0], out[1]};
}

namespace linalg {

SVD svd(const Tensor& x, bool full_matrices) {
  check_matrices(Svd::info.name, x);
  const Tensors out = several(Svd::info, {x}, [&](const Tensors& in) { return call<Svd>(in, {full_matrices}); });
  return {out[0], out[1], out[2]};
}
Tensor svdvals(const Tensor& x) {
  return under_name("linalg_svdvals", [&] { return svd(x, /*full_matrices=*/false).s; });
}

Eigh eigh(const Tensor& x, std::string_view uplo) {
  check_square(SymmetricEigen::info.name, x);
  const bool lower = uplo_is_lower(SymmetricEigen::info.name, uplo);
  const Tensors out = several(SymmetricEigen::info, {x}, [&](const Tensors& in) { return call<SymmetricEigen>(in, {lower}); });
  return {out[0], out[1]};
}
Tensor eigvalsh(const Tensor& x, std::string_view uplo) {
  return under_name("linalg_eigvalsh", [&] { return eigh(x, uplo).eigenvalues; });
}

}  // namespace linalg

void add_decompositions(OpList& list) {
  list.add(CholeskyOp::info, [](Args& a) { return cholesky(a.tensor(0), a.flag("upper", false)); });
  list.alias("linalg_cholesky", "cholesky");
  list.add(QrOp::info, [](Args& a) {
    const QR out = qr(a.tensor(0), a.text("mode", "reduced"));
    return out.q.defined() ? Tensors{out.q, out.r} : Tensors{out.r};
  });
  list.add(Svd::info, [](Args& a) {
    const linalg::SVD out = linalg::svd(a.tensor(0), a.flag("full_matrices", true));
    return Tensors{out.u, out.s, out.vh};
  });
  list.alias("linalg_svdvals", "linalg_svd", [](Args& a) { return Tensors{linalg::svdvals(a.tensor(0))}; });
  list.add(SymmetricEigen::info, [](Args& a) {
    const linalg::Eigh out = linalg::eigh(a.tensor(0), a.text("UPLO", "L"));
    return Tensors{out.eigenvalues, out.eigenvectors};
  });
  list.alias("linalg_eigvalsh", "linalg_eigh", [](Args& a) { return Tensors{linalg::eigvalsh(a.tensor(0), a.text("UPLO", "L"))}; });
}

}  // namespace halfstep
