// SPDX-License-Identifier: Apache-2.0
// The pseudo-inverse, with the gradient of G. Golub and V. Pereyra (1973), and the ops that call it: pinv, lstsq, matrix_rank.
#include <algorithm>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/decompositions.h"
#include "framework/ops/linalg/inverse.h"
#include "framework/ops/linalg/lapack.h"
#include "framework/ops/linalg/matrices.h"

namespace halfstep {
namespace {

using namespace matrices;

double epsilon_of(DType dtype) { return dtype == DType::f64 ? 0x1p-52 : 0x1p-23; }

// Returns the bound up to which singular values s [..., k] of each matrix x count as 0, [..., 1].
Tensor bound_of(const Tensor& s, const Tensor& x, const Tolerance& rtol, const Tolerance& atol) {
  const auto each = [&](const Tolerance& t) { return t.tensor.detach().to(s.dtype()).unsqueeze(-1); };
  const double usual = double(std::max(x.size(-1), x.size(-2))) * epsilon_of(x.dtype());
  Tensor bound = s.amax(-1, true);
  if (rtol.tensor.defined())
    bound = bound * each(rtol);
  else if (rtol.number || !atol.tensor.defined())
    bound = bound * rtol.number.value_or(atol.number.value_or(0) > 0 ? 0 : usual);
  else
    bound = where(each(atol) > 0, 0.0, bound * usual);
  if (!atol.given()) return bound;
  return atol.number ? clamp_min(bound, *atol.number) : maximum(bound, each(atol));
}
// Broadcasts x to its common batch with the tolerances.
Tensor beside_tolerances(std::string_view op, const Tensor& x, const Tolerance& rtol, const Tolerance& atol) {
  check_same_device(op, {x, rtol.tensor, atol.tensor});
  Shape batch = batch_of(x);
  for (const Tolerance* t : {&rtol, &atol}) {
    if (!t->tensor.defined()) continue;
    check<DTypeError>(t->tensor.is_floating_point(), op, "tolerances must be floating, got ", t->tensor.dtype());
    try {
      batch = broadcast(batch, t->tensor.shape(), op);
    } catch (const ShapeError&) {
      fail<ShapeError>(op, "tolerances must be numbers, or tensors with one for each matrix of ", x.shape(), ", got ",
                       t->tensor.shape());
    }
  }
  if (batch == batch_of(x)) return x;
  batch.push_back(x.size(-2));
  batch.push_back(x.size(-1));
  return x.expand(batch);
}

struct Pinverse {
  struct Attr {
    Tolerance rtol = {}, atol = {};
  };
  static constexpr OpInfo info{.name = "pinverse", .policy = CastPolicy::f32, .doc = "Moore-Penrose inverse"};
  enum Saved : size_t { kX, kY };
  static Attributes describe(const Attr& attr) {
    Attributes out;
    if (attr.rtol.number) out.emplace_back("rcond", *attr.rtol.number);
    if (attr.atol.number) out.emplace_back("atol", *attr.atol.number);
    return out;
  }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor& x = in[0];
    ctx.save(x);
    Tensor y = Tensor::empty(mT(x).shape(), {.dtype = x.dtype(), .device = x.device()});
    if (x.numel() == 0) {
      y.fill_(0);
    } else {
      const Tensors factors = lapack::svd(info.name, x, false);
      const Tensor &u = factors[0], &s = factors[1], &vh = factors[2];
      const Tensor kept = s > bound_of(s, x, attr.rtol, attr.atol), inverse_s = where(kept, 1 / where(kept, s, 1.0), 0.0);
      y = matmul(mT(vh) * row(inverse_s), mT(u));
    }
    ctx.save_output(y);
    return y;
  }
  // Returns g^T y y^T - (y g^T y)^T - x y g^T y y^T + y^T y (g^T - g^T y x), or for more rows than columns the same from the other
  // side: y^T y g^T - (y g^T y)^T + (g^T - x y g^T) y y^T - y^T y g^T y x.
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor x = ctx.saved(kX), y = ctx.saved(kY), yt = mT(y), gt = mT(grads[0]);
    if (x.size(-2) <= x.size(-1)) {
      const Tensor k = matmul(gt, y), kyt = matmul(k, yt);
      return {kyt - mT(matmul(y, k)) - matmul(matmul(x, y), kyt) + matmul(matmul(yt, y), gt - matmul(k, x))};
    }
    const Tensor k = matmul(y, gt), ytk = matmul(yt, k);
    return {ytk - mT(matmul(k, y)) + matmul(matmul(gt - matmul(x, k), y), yt) - matmul(matmul(ytk, y), x)};
  }
};

constexpr OpInfo kMatrixRank{.name = "linalg_matrix_rank",
                             .policy = CastPolicy::f32,
                             .doc = "number of singular values above a bound",
                             .differentiable = false};
constexpr OpInfo kLstsq{.name = "linalg_lstsq", .policy = CastPolicy::f32, .doc = "x with the smallest |a x - b|"};
}  // namespace

Tensor pinverse(const Tensor& x, const Tolerance& rtol, const Tolerance& atol) {
  check_matrices(Pinverse::info.name, x);
  return composite(Pinverse::info, {beside_tolerances(Pinverse::info.name, x, rtol, atol)}, [&](const Tensors& in) {
    return call<Pinverse>(in, {rtol, atol});
  });
}

Tensor Tensor::pinverse() const { return halfstep::pinverse(*this); }

namespace linalg {

Lstsq lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond, std::string_view driver) {
  constexpr std::string_view op = kLstsq.name, kDrivers[] = {"gels", "gelsy", "gelsd", "gelss"};
  check<ValueError>(std::ranges::find(kDrivers, driver) != std::end(kDrivers), op,
                    "driver must be gels, gelsy, gelsd or gelss, got \"", driver, '"');
  check_matrices(op, a);
  check_floating(op, {b});
  const bool is_vector = b.dim() == a.dim() - 1 && b.shape() == without_last(a);
  if (!is_vector) check_matrices(op, b);
  check<ShapeError>(is_vector || b.size(-2) == a.size(-2), op, "a and b must have as many rows, got ", a.shape(), " and ",
                    b.shape());
  const double cut = rcond.value_or(double(std::max(a.size(-1), a.size(-2))) * epsilon_of(a.dtype()));
  Lstsq out;
  const Tensors results = several(kLstsq, {a, b}, [&](const Tensors& in) {
    check_same_dtype(op, in);
    const Tensor rhs = is_vector ? column(in[1]) : in[1], x = matmul(call<Pinverse>({in[0]}, {cut, {}}), rhs);
    const bool tall = a.size(-2) > a.size(-1);
    const Tensor residuals = tall ? square(matmul(in[0], x) - rhs).sum(-2) : x.new_zeros({0});
    const NoGrad quiet;
    const Tensor s = svdvals(in[0].detach()), rank = (s > s.amax(-1, true) * cut).sum(-1);
    return Tensors{is_vector ? x.squeeze(-1) : x, residuals, rank, s};
  });
  const auto none = [](const Tensor& t) { return t.new_zeros({0}); };
  return {results[0], results[1], driver == "gels" ? none(results[2]) : results[2],
          driver == "gelsy" || driver == "gels" ? none(results[3]) : results[3]};
}

Tensor matrix_rank(const Tensor& given, const Tolerance& rtol, const Tolerance& atol) {
  check_matrices(kMatrixRank.name, given);
  const NoGrad quiet;
  const Tensor x = beside_tolerances(kMatrixRank.name, given.detach(), rtol, atol),
               s = under_name(kMatrixRank.name, [&] { return svdvals(x); });
  if (s.numel() == 0) return zeros(batch_of(x), {.dtype = DType::i64, .device = x.device()});
  return (s > bound_of(s, x.to(s.dtype()), rtol, atol)).sum(-1);
}

}  // namespace linalg

void add_pseudo_inverse(OpList& list) {
  // Reads a tolerance: a number by name, or a tensor at a position.
  const auto tolerance = [](Args& a, size_t position, const char* name) {
    return a.has_tensor(position) ? Tolerance(a.tensor(position)) : Tolerance(a.number_or_none(name));
  };
  list.add(Pinverse::info, [tolerance](Args& a) { return pinverse(a.tensor(0), tolerance(a, 1, "rcond")); });
  list.alias("linalg_pinv", "pinverse",
             [tolerance](Args& a) { return Tensors{pinverse(a.tensor(0), tolerance(a, 2, "rtol"), tolerance(a, 1, "atol"))}; });
  list.add(kMatrixRank,
           [tolerance](Args& a) { return linalg::matrix_rank(a.tensor(0), tolerance(a, 2, "rtol"), tolerance(a, 1, "atol")); });
  list.add(kLstsq, [](Args& a) {
    const linalg::Lstsq out = linalg::lstsq(a.tensor(0), a.tensor(1), a.number_or_none("rcond"), a.text("driver", "gelsd"));
    return Tensors{out.solution, out.residuals, out.rank, out.singular_values};
  });
}

}  // namespace halfstep
