// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/elementwise/where.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "framework/ops/core/in_place.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/elementwise/pointwise.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

struct Where {
  struct Attr {
    Shape a_shape, b_shape;
  };
  static constexpr OpInfo info{.name = "where", .policy = CastPolicy::keep, .doc = "a where cond is true, else b"};

  static void check(const Attr&, const Tensors& in) {
    halfstep::check<DTypeError>(in[0].dtype() == DType::boolean, "where", "cond must be bool, got ", in[0].dtype());
  }
  static Attributes describe(const Attr&) { return {}; }  // nothing besides the name
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    const Tensor &cond = in[0], &a = in[1], &b = in[2];
    const Shape shape = broadcast(cond.shape(), broadcast(a.shape(), b.shape(), "where"), "where");
    const MemoryFormat format = format_of(shape, in);
    const Tensor out = Tensor::empty(shape, {.dtype = result_type({a, b}), .device = device_of(in), .format = format});
    backend_for(out.device())
        .where(broadcast_view(cond, shape, format), broadcast_view(a, shape, format), broadcast_view(b, shape, format),
               ordered(out, format));
    ctx.save(cond);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor cond = ctx.saved();
    Tensors result(3);
    if (ctx.needs(1)) result[1] = sum_to(where(cond, grads[0], 0.0), attr.a_shape);
    if (ctx.needs(2)) result[2] = sum_to(where(cond, 0.0, grads[0]), attr.b_shape);
    return result;
  }
};

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

constexpr OpInfo kClampMinInfo{.name = "clamp_min", .doc = "x, from a lower bound on", .dtypes = DTypeSet::numbers};
constexpr OpInfo kClampMaxInfo{.name = "clamp_max", .doc = "x, up to an upper bound", .dtypes = DTypeSet::numbers};
constexpr OpInfo kIsNanInfo{.name = "isnan", .doc = "is it NaN?", .differentiable = false, .dtypes = DTypeSet::any};
constexpr OpInfo kIsInfInfo{.name = "isinf", .doc = "is it infinite?", .differentiable = false, .dtypes = DTypeSet::any};
constexpr OpInfo kIsFiniteInfo{
    .name = "isfinite", .doc = "is it neither infinite nor NaN?", .differentiable = false, .dtypes = DTypeSet::any};
constexpr OpInfo kNanToNumInfo{
    .name = "nan_to_num", .doc = "x, with numbers in place of NaN, inf and -inf", .dtypes = DTypeSet::any};

// Also refuses a bound that no number of x's dtype meets, where the result keeps the dtype. (uint8 holds -1 as another number.)
void check_bounds(const Tensor& x, std::optional<Number> lo, std::optional<Number> hi) {
  check<ValueError>(x.defined(), "clamp", "the input is undefined");
  check<ValueError>(lo || hi, "clamp", "needs a lower or an upper bound");
  const auto is_number_of_x = [&](Number bound) {
    if (!x.is_floating_point() && bound.is_floating()) return true;  // the result is float32
    return x.dtype() == DType::u8 ? bound.whole() >= 0 && bound.whole() <= 255 : fits(bound, x.dtype());
  };
  check<ValueError>(!lo || lo->floating() < 0 || is_number_of_x(*lo), "clamp", "the lower bound is above every number of ",
                    x.dtype(), ", got ", lo.value_or(0).floating());
  check<ValueError>(!hi || hi->floating() > 0 || is_number_of_x(*hi), "clamp", "the upper bound is below every number of ",
                    x.dtype(), ", got ", hi.value_or(0).floating());
}

// Returns the result's dtype; integers with integer bounds stay integers.
DType bounded_dtype(const Tensor& x, std::optional<Number> lo, std::optional<Number> hi) {
  const auto is_integer = [](std::optional<Number> v) { return !v || !v->is_floating(); };
  return x.is_floating_point() ? x.dtype() : is_integer(lo) && is_integer(hi) ? DType::i64 : DType::f32;
}

// Returns the row's p and q, the lower and upper bound: NaN for no bound, so that comparisons are false. If the upper bound is
// below the lower one, both are the upper one.
std::pair<double, double> interval(std::optional<Number> lo, std::optional<Number> hi) {
  const double p = lo.value_or(kNan).floating(), q = hi.value_or(kNan).floating();
  return {q < p ? q : p, q};
}
bool is_nan(std::optional<Number> v) { return v && std::isnan(v->floating()); }

double largest_finite(DType t) {
  switch (t) {
    case DType::f16: return 65504;
    case DType::bf16: return 0x1.fep127;
    case DType::f32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

// Returns a named number as a 0-dim tensor of its own kind: bool, int64 or float32.
Tensor number_tensor(Args& a, std::string_view name, const Tensor& like) {
  const Number value = a.scalar(name);
  check_fits(a.op(), value, value.natural_dtype());
  return full({}, value, {.device = like.device()});
}

// Makes an operand of where from a number, which must fit the result, as in PyTorch: what is beyond a 16-bit dtype is infinite.
Tensor choice(Number value, const Tensor& beside) {
  const Tensor number = wrapped_number(value, beside);
  const DType dtype = result_type({beside, number});
  if (!is_half(dtype)) check_fits("where", value, dtype);
  return number;
}

// Clamps x; an undefined bound means none.
Tensor bounded(std::string_view op, const Tensor& x, const Tensor& lo, const Tensor& hi) {
  check<ValueError>(x.defined() && (lo.defined() || hi.defined()), op, "needs a tensor and a lower or an upper bound");
  check_same_device(op, {x, lo, hi});
  Shape shape = x.shape();
  for (const Tensor& bound : {lo, hi})
    if (bound.defined()) shape = broadcast(shape, bound.shape(), op);
  if (!hi.defined()) return maximum(x, lo);
  if (!lo.defined()) return minimum(x, hi);
  if (is_floating(result_type({x, lo, hi}))) return call_pointwise(Pointwise::clamp_between, {x, lo, hi});
  return minimum(maximum(x, lo), hi);
}

}  // namespace

Tensor where(const Tensor& cond, const Tensor& a, const Tensor& b) { return call<Where>({cond, a, b}, {a.shape(), b.shape()}); }
Tensor where(const Tensor& cond, const Tensor& a, Number b) { return where(cond, a, choice(b, a)); }
Tensor where(const Tensor& cond, Number a, const Tensor& b) { return where(cond, choice(a, b), b); }

Tensor clamp(const Tensor& x, std::optional<Number> lo, std::optional<Number> hi) {
  check_bounds(x, lo, hi);
  if (!is_floating(bounded_dtype(x, lo, hi))) {
    const Tensor y = lo ? maximum(x, *lo) : x;
    return hi ? minimum(y, *hi) : y;
  }
  if (is_nan(lo) || is_nan(hi)) return mul(x, kNan);
  const auto [p, q] = interval(lo, hi);
  return call_pointwise(Pointwise::clamp, {x.is_floating_point() ? x : x.to(DType::f32)}, p, q);
}
Tensor Tensor::clamp(std::optional<Number> lo, std::optional<Number> hi) const { return halfstep::clamp(*this, lo, hi); }
const Tensor& Tensor::clamp_(std::optional<Number> lo, std::optional<Number> hi) const& {
  check_bounds(*this, lo, hi);
  if (is_floating_point() && !is_nan(lo) && !is_nan(hi)) {
    const auto [p, q] = interval(lo, hi);
    pointwise_in_place(Pointwise::clamp, {*this}, p, q);
    return *this;
  }
  return assign_in_place(*this, halfstep::clamp(*this, lo, hi), "clamp_");
}

Tensor clamp(const Tensor& x, const Tensor& lo, const Tensor& hi) { return bounded("clamp", x, lo, hi); }
Tensor clamp_min(const Tensor& x, Number lo) { return clamp(x, lo, {}); }
Tensor clamp_min(const Tensor& x, const Tensor& lo) { return bounded("clamp_min", x, lo, Tensor()); }
Tensor clamp_max(const Tensor& x, Number hi) { return clamp(x, {}, hi); }
Tensor clamp_max(const Tensor& x, const Tensor& hi) { return bounded("clamp_max", x, Tensor(), hi); }

Tensor isnan(const Tensor& x) {
  check<ValueError>(x.defined(), "isnan", "the input is undefined");
  return ne(x, x);
}
Tensor isinf(const Tensor& x) {
  check<ValueError>(x.defined(), "isinf", "the input is undefined");
  if (!x.is_floating_point()) return ne(x, x);
  return eq(abs(x.detach()), kInfinity);
}
Tensor isfinite(const Tensor& x) {
  check<ValueError>(x.defined(), "isfinite", "the input is undefined");
  if (!x.is_floating_point()) return eq(x, x);
  // x - x is 0 for finite numbers only.
  return eq(sub(x.detach(), x.detach()), 0.0);
}

Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  check<ValueError>(x.defined(), "nan_to_num", "the input is undefined");
  if (!x.is_floating_point()) return clone(x);
  const double largest = largest_finite(x.dtype());
  const auto rounded = [&](double number) { return fits(number, x.dtype()) ? number : std::copysign(kInfinity, number); };
  const Tensor numbers = where(isnan(x), rounded(nan), x);
  return where(eq(x, kInfinity), rounded(posinf.value_or(largest)),
               where(eq(x, -kInfinity), rounded(neginf.value_or(-largest)), numbers));
}

void add_where(OpList& list) {
  list.add(Where::info, [](Args& a) {
    const Tensor cond = a.tensor(0);
    const bool first = a.has_tensor(1), second = a.has_tensor(2);
    if (!first && !second && !a.has("input") && !a.has("other")) return nonzero_as_tuple(cond);
    if (!first && !second) return Tensors{where(cond, number_tensor(a, "input", cond), number_tensor(a, "other", cond))};
    if (!first) return Tensors{where(cond, a.scalar("input"), a.tensor(2))};
    return Tensors{second ? where(cond, a.tensor(1), a.tensor(2)) : where(cond, a.tensor(1), a.scalar("other"))};
  });
  OpInfo clamp_info = info_of(Pointwise::clamp);
  clamp_info.dtypes = DTypeSet::numbers;
  list.add(clamp_info, [](Args& a) {
    const Tensor x = a.tensor(0);
    if (a.has_tensor(1) || a.has_tensor(2)) return clamp(x, a.tensor_or_none(1), a.tensor_or_none(2));
    return clamp(x, a.scalar_or_none("min"), a.scalar_or_none("max"));
  });
  list.add(kClampMinInfo,
           [](Args& a) { return a.has_tensor(1) ? clamp_min(a.tensor(0), a.tensor(1)) : clamp_min(a.tensor(0), a.scalar("min")); });
  list.add(kClampMaxInfo,
           [](Args& a) { return a.has_tensor(1) ? clamp_max(a.tensor(0), a.tensor(1)) : clamp_max(a.tensor(0), a.scalar("max")); });
  list.add(kIsNanInfo, [](Args& a) { return isnan(a.tensor(0)); });
  list.add(kIsInfInfo, [](Args& a) { return isinf(a.tensor(0)); });
  list.add(kIsFiniteInfo, [](Args& a) { return isfinite(a.tensor(0)); });
  list.add(kNanToNumInfo, [](Args& a) {
    return nan_to_num(a.tensor(0), a.number("nan", 0), a.number_or_none("posinf"), a.number_or_none("neginf"));
  });
}

Tensor Tensor::clamp_min(Number lo) const { return halfstep::clamp_min(*this, lo); }
Tensor Tensor::clamp_min(const Tensor& lo) const { return halfstep::clamp_min(*this, lo); }
Tensor Tensor::clamp_max(Number hi) const { return halfstep::clamp_max(*this, hi); }
Tensor Tensor::clamp_max(const Tensor& hi) const { return halfstep::clamp_max(*this, hi); }
Tensor Tensor::isfinite() const { return halfstep::isfinite(*this); }
Tensor Tensor::isinf() const { return halfstep::isinf(*this); }
Tensor Tensor::isnan() const { return halfstep::isnan(*this); }
Tensor Tensor::nan_to_num(double nan, std::optional<double> posinf, std::optional<double> neginf) const {
  return halfstep::nan_to_num(*this, nan, posinf, neginf);
}
Tensor Tensor::where(const Tensor& cond, const Tensor& other) const { return halfstep::where(cond, *this, other); }
Tensor Tensor::where(const Tensor& cond, Number other) const { return halfstep::where(cond, *this, other); }

}  // namespace halfstep
