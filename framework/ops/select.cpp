// where, clamp and the tests on single values.
#include "framework/ops/call.h"
#include "framework/ops/ops.h"
#include "framework/ops/promotion.h"
#include "framework/ops/registry.h"

namespace halfstep {
namespace {

struct Where {
  struct Attr { Shape a_shape, b_shape; };
  static constexpr OpInfo info{.name = "where", .policy = CastPolicy::keep, .doc = "a where cond is true, else b"};

  static void check(const Attr&, const Tensors& in) {
    halfstep::check<DTypeError>(in[0].dtype() == DType::boolean, "where", "cond must be bool, got ", in[0].dtype());
  }
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    const Tensor &cond = in[0], &a = in[1], &b = in[2];
    const Shape shape = broadcast(cond.shape(), broadcast(a.shape(), b.shape(), "where"), "where");
    const Tensor out = Tensor::empty(shape, {.dtype = result_type({a, b}), .device = a.device()});
    backend_for(a.device()).where(broadcast_view(cond, shape), broadcast_view(a, shape), broadcast_view(b, shape), out.view());
    ctx.save(cond);
    return out;
  }
  static Tensors backward(const OpContext& ctx, const Attr& at, const Tensors& grads) {
    const Tensor cond = ctx.saved(0);
    Tensors result(3);
    if (ctx.needs(1)) result[1] = sum_to(where(cond, grads[0], 0.0), at.a_shape);
    if (ctx.needs(2)) result[2] = sum_to(where(cond, 0.0, grads[0]), at.b_shape);
    return result;
  }
};

}  // namespace

Tensor where(const Tensor& cond, const Tensor& a, const Tensor& b) { return call<Where>({cond, a, b}, {a.shape(), b.shape()}); }
Tensor where(const Tensor& cond, const Tensor& a, double b) { return where(cond, a, wrapped_number(b, a)); }
Tensor where(const Tensor& cond, double a, const Tensor& b) { return where(cond, wrapped_number(a, b), b); }

Tensor clamp(const Tensor& x, std::optional<double> lo, std::optional<double> hi) {
  check<ValueError>(lo || hi, "clamp", "needs a lower or an upper bound");
  // Values at a bound pass no gradient, as in PyTorch; NaN stays NaN. An upper bound below the lower one wins everywhere.
  Tensor y = x;
  if (lo) y = where(le(x, *lo), *lo, y);
  if (hi) y = where(ge(y, *hi), *hi, y);
  return y;
}
Tensor Tensor::clamp(std::optional<double> lo, std::optional<double> hi) const { return halfstep::clamp(*this, lo, hi); }

Tensor isnan(const Tensor& x) { return ne(x, x); }
Tensor isfinite(const Tensor& x) {
  // x - x is 0 for finite numbers only.
  return eq(sub(x.detach(), x.detach()), 0.0);
}

void add_select(OpList& list) {
  list.add(Where::info, [](Args& a) {
    const Tensor cond = a.tensor(0);
    if (!a.has_tensor(1)) return where(cond, a.number("input"), a.tensor(2));
    return a.has_tensor(2) ? where(cond, a.tensor(1), a.tensor(2)) : where(cond, a.tensor(1), a.number("other"));
  });
}

}  // namespace halfstep
