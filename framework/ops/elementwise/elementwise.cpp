// SPDX-License-Identifier: Apache-2.0
// The rows of elementwise.def as ops: forward calls the backend; backward is one kernel or, when recorded, the same formula on
// tensors.
#include <cmath>
#include <string_view>

#include "amp/autocast/autocast.h"
#include "framework/autograd/column_sums.h"
#include "framework/math/functors.h"
#include "framework/ops/core/composite.h"
#include "framework/ops/core/in_place.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/elementwise/formulas.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

template <size_t N>
constexpr std::array<OpInfo, N> infos_of(const ElementwiseRow (&rows)[N], bool differentiable) {
  std::array<OpInfo, N> out{};
  for (size_t i = 0; i < N; ++i)
    out[i] = {rows[i].name, rows[i].policy, rows[i].doc, differentiable,
              rows[i].kind == OpKind::number ? DTypeSet::numbers : DTypeSet::any};
  return out;
}
constexpr auto kUnaryInfo = infos_of(kUnaryRows, true);
constexpr auto kBinaryInfo = infos_of(kBinaryRows, true);
constexpr OpInfo kFloatPowerInfo{.name = "float_power", .doc = "a^b in float64, whatever the dtypes", .dtypes = DTypeSet::any};
constexpr auto kComparisonInfo = infos_of(kComparisonRows, false);

Tensor empty_for(const Shape& shape, DType dtype, Device device, MemoryFormat format) {
  return Tensor::empty(shape, {.dtype = dtype, .device = device, .format = format});
}

// Returns the dtype of a row's result: rows of kind real give float32 for integers and bool.
DType result_dtype(const ElementwiseRow& row, DType t) { return row.kind == OpKind::real && !is_floating(t) ? DType::f32 : t; }

// Throws DTypeError for bool in rows of kind number. sub accepts no bool at all, because its result dtype would depend on which
// operand it is.
void check_kind(const ElementwiseRow& row, const Tensors& in) {
  if (row.kind != OpKind::number) return;
  bool refused = result_type(in) == DType::boolean;
  for (const Tensor& t : in) refused = refused || (row.name == "sub" && t.dtype() == DType::boolean);
  check<DTypeError>(!refused, row.name, "has no result for bool tensors",
                    Help{"convert with to(dtype); logical_xor(x, true) inverts a mask"});
}

// ---- unary

struct UnaryOp {
  struct Attr {
    Unary op;
  };
  static const OpInfo& info_of(const Attr& attr) { return kUnaryInfo[size_t(attr.op)]; }
  static Tensor in_simpler_ops(const Attr& attr, const Tensors& in) { return unary_formula(attr.op, in[0]); }

  static void check(const Attr& attr, const Tensors& in) { check_kind(kUnaryRows[size_t(attr.op)], in); }
  static Attributes describe(const Attr&) { return {}; }  // nothing besides the name
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor& x = in[0];
    const ElementwiseRow& row = kUnaryRows[size_t(attr.op)];
    const MemoryFormat format = x.format();
    const Tensor out = empty_for(x.shape(), result_dtype(row, x.dtype()), x.device(), format);
    out.impl()->wrapped_number = x.impl()->wrapped_number;
    backend_for(x.device()).unary(attr.op, ordered(x, format), ordered(out, format));
    if (row.saves == OpSaves::x) ctx.save(x);
    if (row.saves == OpSaves::y) ctx.save_output(out);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor& g = grads[0];
    const Tensor saved = ctx.saved_count() ? ctx.saved() : g;
    if (grad_enabled()) return {unary_gradient(attr.op, g, saved)};
    const MemoryFormat format = format_of(g.shape(), {g, saved});
    const Tensor out = empty_for(g.shape(), g.dtype(), g.device(), format);
    Backend& backend = backend_for(g.device());
    if (const std::optional<DType> dtype = wanted_sums(ctx, attr, g, saved)) {
      const int64_t n = g.size(-1);
      const auto rows = [n](const Tensor& t) { return TensorView{t.view().data, t.dtype(), {t.numel() / n, n}, {n, 1}}; };
      const Tensor sums = empty_for({n}, *dtype, g.device(), MemoryFormat::contiguous);
      backend.unary_summed_backward(attr.op, rows(g), rows(saved), rows(out), sums.view());
      leave_column_sums(out, sums);
    } else {
      backend.unary_backward(attr.op, ordered(g, format), ordered(saved, format), ordered(out, format));
    }
    return {out};
  }

 private:
  // Returns the dtype of the sums of columns that a Linear before the activation wants, if a kernel has both.
  static std::optional<DType> wanted_sums(const BackwardContext& ctx, const Attr& attr, const Tensor& g, const Tensor& saved) {
    const bool has_both = attr.op == Unary::relu || attr.op == Unary::gelu || attr.op == Unary::gelu_tanh;
    if (!has_both || g.numel() == 0 || g.dim() == 0 || !g.is_contiguous() || !saved.is_contiguous()) return {};
    return ctx.wanted_column_sums(0, g.dtype(), g.device());
  }
};

// ---- binary

// Facts about one of a row's two gradients.
struct BinaryGradient {
  unsigned reads;  // bits of the tensors that it reads: g, a, b (framework/math/gradient_names.h)
  bool is_g;       // whether it is g itself
};
constexpr unsigned kReadsA = 2, kReadsB = 4;
constexpr BinaryGradient kBinaryGradients[][2] = {
#define HS_BINARY(name, policy, kind, forward, da, db, lo, hi, doc)                                                               \
  {{functor::name##_backward_a{}(math::Names::of(0), math::Names::of(1), math::Names::of(2)).bits, std::string_view(#da) == "g"}, \
   {functor::name##_backward_b{}(math::Names::of(0), math::Names::of(1), math::Names::of(2)).bits, std::string_view(#db) == "g"}},
#include "framework/math/elementwise.def"
};

// Returns the bits of the tensors that the requested gradients read.
unsigned read_by_gradients(Binary op, bool for_a, bool for_b) {
  const auto& gradients = kBinaryGradients[size_t(op)];
  return (for_a ? gradients[0].reads : 0) | (for_b ? gradients[1].reads : 0);
}

struct BinaryOp {
  struct Attr {
    Binary op;
    Shape a_shape, b_shape;
  };
  enum Saved : size_t { kA, kB };  // both or neither
  static const OpInfo& info_of(const Attr& attr) { return kBinaryInfo[size_t(attr.op)]; }
  static Tensor in_simpler_ops(const Attr& attr, const Tensors& in) { return binary_formula(attr.op, in[0], in[1]); }

  static void check(const Attr& attr, const Tensors& in) { check_kind(kBinaryRows[size_t(attr.op)], in); }
  static Attributes describe(const Attr&) { return {}; }  // nothing besides the name
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor &a = in[0], &b = in[1];
    const Shape shape = broadcast(a.shape(), b.shape(), info_of(attr).name);
    // Two C++ numbers give another one, in double.
    const bool numbers = a.impl()->wrapped_number && b.impl()->wrapped_number;
    const DType type = numbers ? promote(a.dtype(), b.dtype()) : result_type(in);
    const MemoryFormat format = format_of(shape, in);
    const Tensor out = empty_for(shape, result_dtype(kBinaryRows[size_t(attr.op)], type), device_of(in), format);
    out.impl()->wrapped_number = numbers;
    backend_for(out.device())
        .binary(attr.op, broadcast_view(a, shape, format), broadcast_view(b, shape, format), ordered(out, format));
    const unsigned reads = read_by_gradients(attr.op, a.requires_grad(), b.requires_grad());
    if (reads & (kReadsA | kReadsB)) {
      ctx.save(reads & kReadsA ? a : Tensor());
      ctx.save(reads & kReadsB ? b : Tensor());
    }
    return out;
  }

  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor& g = grads[0];
    Tensors result(2);
    for (int i = 0; i < 2; ++i) {
      if (!ctx.needs(size_t(i))) continue;
      const Shape& shape = i == 0 ? attr.a_shape : attr.b_shape;
      result[size_t(i)] = sum_to(gradient_of(ctx, attr, g, i, shape), shape);
    }
    return result;
  }

 private:
  static Tensor gradient_of(const BackwardContext& ctx, const Attr& attr, const Tensor& g, int input, const Shape& shape) {
    if (kBinaryGradients[size_t(attr.op)][input].is_g) return g;
    Tensor a, b;
    if (ctx.has_saved(kA)) a = ctx.saved(kA), b = ctx.saved(kB);
    if (!a.defined()) a = g;  // unused by this side's derivative
    if (!b.defined()) b = g;
    if (grad_enabled()) return binary_gradient(attr.op, input, g, a, b);
    // Without a broadcast to undo, the kernel rounds directly to the gradient's final dtype.
    const DType dtype = shape == g.shape() ? ctx.grad_dtype(size_t(input)) : g.dtype();
    const MemoryFormat format = format_of(g.shape(), {g, a, b});
    const Tensor out = empty_for(g.shape(), dtype, g.device(), format);
    backend_for(g.device())
        .binary_backward(attr.op, input, ordered(g, format), broadcast_view(a, g.shape(), format),
                         broadcast_view(b, g.shape(), format), ordered(out, format));
    return out;
  }
};

// ---- tests

// Rounds a number beside a floating tensor to its dtype, so that float32's 0.1 equals the number 0.1.
Tensor rounded_like(const Tensor& t, const Tensor& other) {
  if (!t.impl()->wrapped_number || other.impl()->wrapped_number || !is_floating(other.dtype()) || t.dtype() != DType::f64) return t;
  return wrapped_number(dispatch(other.dtype(),
                                 [&](auto tag) {
                                   using T = decltype(tag);
                                   if constexpr (std::is_class_v<T>)
                                     return double(T(float(*t.const_data_ptr<double>())));
                                   else
                                     return double(T(*t.const_data_ptr<double>()));
                                 }),
                        other);
}

struct ComparisonOp {
  struct Attr {
    Comparison op;
  };
  static const OpInfo& info_of(const Attr& attr) { return kComparisonInfo[size_t(attr.op)]; }
  static Attributes describe(const Attr&) { return {}; }  // nothing besides the name
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Shape shape = broadcast(in[0].shape(), in[1].shape(), info_of(attr).name);
    const MemoryFormat format = format_of(shape, in);
    const Tensor out = empty_for(shape, DType::boolean, device_of(in), format);
    out.impl()->wrapped_number = in[0].impl()->wrapped_number && in[1].impl()->wrapped_number;
    const Tensor a = rounded_like(in[0], in[1]), b = rounded_like(in[1], in[0]);
    backend_for(out.device())
        .test(attr.op, broadcast_view(a, shape, format), broadcast_view(b, shape, format), ordered(out, format));
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr&, const Tensors&) { return {}; }
};

// Calls the op. The square of bool is int64, as in PyTorch, which calls pow(x, 2) for it.
Tensor call_unary(Unary op, const Tensor& x) {
  const bool is_bool_square = op == Unary::square && x.defined() && x.dtype() == DType::boolean;
  return call<UnaryOp>({is_bool_square ? x.to(DType::i64) : x}, {op});
}
// Refuses x^-1 of integers, as PyTorch does. Of two tensors it is 0, also there.
void check_power(Binary op, const Tensor& a, const Tensor& b) {
  if (op != Binary::pow || !b.impl()->wrapped_number || is_floating(b.dtype()) || is_floating(a.dtype())) return;
  const int64_t power = b.item<int64_t>();
  check<ValueError>(power >= 0, "pow", "integers to a negative power are no integers, got ", a.dtype(), " and the power ", power,
                    Help{"give the power as a floating-point number, such as -1.0, for results of float32"});
}
Tensor call_binary(Binary op, const Tensor& a, const Tensor& b) {
  check<ValueError>(a.defined() && b.defined(), kBinaryRows[size_t(op)].name, "an input is undefined");
  check_power(op, a, b);
  return call<BinaryOp>({a, b}, {op, a.shape(), b.shape()});
}

// Returns x + alpha y or x - alpha y; other rows have alpha 1. For 16-bit tensors the product is not rounded before the sum.
Tensor scaled_sum(Binary op, const Tensor& x, const Tensor& y, double alpha) {
  if (alpha == 1) return call_binary(op, x, y);
  check<ValueError>(x.defined() && y.defined(), kBinaryRows[size_t(op)].name, "an input is undefined");
  const DType dtype = result_type({x, y});
  const bool widens = is_half(dtype);
  check<ValueError>(is_floating(dtype) || alpha == std::nearbyint(alpha), kBinaryRows[size_t(op)].name,
                    "alpha must be whole for integer tensors, got ", alpha);
  const auto widened_operand = [&](const Tensor& t) { return widens && !t.impl()->wrapped_number ? t.to(DType::f32) : t; };
  const Tensor sum = call_binary(op, widened_operand(x), mul(widened_operand(y), number_beside(alpha, y)));
  return widens || dtype == DType::boolean ? sum.to(dtype) : sum;
}
const Tensor& scaled_sum_in_place(Binary op, const Tensor& x, const Tensor& y, double alpha) {
  const autocast::Off off;
  const std::string_view name = kBinaryRows[size_t(op)].name;
  check<ValueError>(y.defined(), name, "an input is undefined");
  check_in_place(x, broadcast(x.shape(), y.shape(), name), result_type({x, y}), y.requires_grad(), name);
  return assign_in_place(x, scaled_sum(op, x, y, alpha), name);
}
Tensor call_comparison(Comparison op, const Tensor& a, const Tensor& b) { return call<ComparisonOp>({a, b}, {op}); }

// Returns whether a kernel whose result has this dtype may write into x's memory: not while an observer follows values.
bool may_write_directly(const Tensor& x, DType dtype) {
  return x.is_contiguous(x.format()) && dtype == x.dtype() && !Observing::follow_values();
}

const Tensor& unary_in_place(Unary op, const Tensor& x) {
  const autocast::Off off;
  const ElementwiseRow& row = kUnaryRows[size_t(op)];
  check_kind(row, {x});
  const DType dtype = op == Unary::square && x.dtype() == DType::boolean ? DType::i64 : result_dtype(row, x.dtype());
  const bool recorded = check_in_place(x, x.shape(), dtype, false, row.name);
  // Must not overwrite what backward will read.
  if (recorded) return assign_in_place(x, call_unary(op, row.saves == OpSaves::x ? clone(x) : x), row.name);
  if (!may_write_directly(x, dtype)) return assign_in_place(x, call_unary(op, x), row.name);
  backend_for(x.device()).unary(op, ordered(x, x.format()), ordered(x, x.format()));
  x.bump_version();
  return x;
}

const Tensor& binary_in_place(Binary op, const Tensor& x, const Tensor& other) {
  const autocast::Off off;
  const ElementwiseRow& row = kBinaryRows[size_t(op)];
  check_same_device(row.name, {x, other});
  check_kind(row, {x, other});
  check_power(op, x, other);
  const Shape shape = broadcast(x.shape(), other.shape(), row.name);
  // An operand that overlaps x at other positions must be read before x is written.
  const bool overlap = x.shares_memory_with(other) && !(other.const_data_ptr() == x.const_data_ptr() &&
                                                        other.shape() == x.shape() && other.strides() == x.strides());
  const DType dtype = result_dtype(row, result_type({x, other}));
  const bool recorded = check_in_place(x, shape, dtype, other.requires_grad(), row.name);
  if (recorded) {
    const bool saves_x = read_by_gradients(op, true, other.requires_grad()) & kReadsA;
    const Tensor before = saves_x ? clone(x) : x;
    return assign_in_place(x, call_binary(op, before, other.same(x) ? before : other), row.name);
  }
  if (!may_write_directly(x, dtype) || overlap) return assign_in_place(x, call_binary(op, x, other), row.name);
  const MemoryFormat format = x.format();
  backend_for(x.device()).binary(op, ordered(x, format), broadcast_view(other, shape, format), ordered(x, format));
  x.bump_version();
  return x;
}

}  // namespace

#define HS_UNARY(name, ...)                                              \
  Tensor name(const Tensor& x) { return call_unary(Unary::name, x); }    \
  Tensor Tensor::name() const { return call_unary(Unary::name, *this); } \
  const Tensor& Tensor::name##_() const& { return unary_in_place(Unary::name, *this); }
#define HS_BINARY(name, ...)                                                                                         \
  Tensor name(const Tensor& a, const Tensor& b) { return call_binary(Binary::name, a, b); }                          \
  Tensor name(const Tensor& a, Number b) { return call_binary(Binary::name, a, wrapped_number(b, a)); }              \
  Tensor name(Number a, const Tensor& b) { return call_binary(Binary::name, wrapped_number(a, b), b); }              \
  Tensor Tensor::name(const Tensor& other) const { return call_binary(Binary::name, *this, other); }                 \
  Tensor Tensor::name(Number other) const { return call_binary(Binary::name, *this, wrapped_number(other, *this)); } \
  const Tensor& Tensor::name##_(const Tensor& other) const& { return binary_in_place(Binary::name, *this, other); }  \
  const Tensor& Tensor::name##_(Number other) const& { return binary_in_place(Binary::name, *this, wrapped_number(other, *this)); }
#define HS_TEST(name, ...)                                                                                      \
  Tensor name(const Tensor& a, const Tensor& b) { return call_comparison(Comparison::name, a, b); }             \
  Tensor name(const Tensor& a, Number b) { return call_comparison(Comparison::name, a, wrapped_number(b, a)); } \
  Tensor Tensor::name(const Tensor& other) const { return call_comparison(Comparison::name, *this, other); }    \
  Tensor Tensor::name(Number other) const { return call_comparison(Comparison::name, *this, wrapped_number(other, *this)); }
#include "framework/math/elementwise.def"

Tensor add(const Tensor& a, const Tensor& b, double alpha) { return scaled_sum(Binary::add, a, b, alpha); }
Tensor sub(const Tensor& a, const Tensor& b, double alpha) { return scaled_sum(Binary::sub, a, b, alpha); }
Tensor Tensor::add(const Tensor& other, double alpha) const { return scaled_sum(Binary::add, *this, other, alpha); }
Tensor Tensor::sub(const Tensor& other, double alpha) const { return scaled_sum(Binary::sub, *this, other, alpha); }
const Tensor& Tensor::add_(const Tensor& other, double alpha) const& {
  return scaled_sum_in_place(Binary::add, *this, other, alpha);
}
const Tensor& Tensor::sub_(const Tensor& other, double alpha) const& {
  return scaled_sum_in_place(Binary::sub, *this, other, alpha);
}

Tensor div(const Tensor& a, const Tensor& b, RoundingMode mode) {
  return mode == RoundingMode::floor ? floor_divide(a, b) : trunc_divide(a, b);
}
Tensor div(const Tensor& a, const Tensor& b, std::string_view mode) {
  check<ValueError>(mode == "floor" || mode == "trunc", "div", "the rounding mode must be floor or trunc, got \"", mode, '"');
  return div(a, b, mode == "floor" ? RoundingMode::floor : RoundingMode::trunc);
}
Tensor div(const Tensor& a, Number b, RoundingMode mode) { return div(a, wrapped_number(b, a), mode); }

Tensor round(const Tensor& x, int64_t decimals) {
  const OpInfo& info = kUnaryInfo[size_t(Unary::round)];
  check<ValueError>(x.defined(), info.name, "the input is undefined");
  check<DTypeError>(x.is_floating_point(), info.name, "with decimals needs a floating tensor, got ", x.dtype());
  if (decimals == 0) return round(x);
  const double power = std::pow(10.0, std::fabs(double(decimals)));
  return composite(info, {x},
                   [&](const Tensors& in) { return decimals > 0 ? round(in[0] * power) / power : round(in[0] / power) * power; });
}

// Computes outside the region, because the caller chose float64.
Tensor float_power(const Tensor& a, const Tensor& b) {
  check<ValueError>(a.defined() && b.defined(), kFloatPowerInfo.name, "an input is undefined");
  const autocast::Off off;
  const auto wide = [](const Tensor& t) { return t.impl()->wrapped_number ? t : t.to(DType::f64); };
  return under_name(kFloatPowerInfo.name, [&] { return pow(wide(a), wide(b)); });
}
Tensor float_power(const Tensor& a, Number b) { return float_power(a, wrapped_number(b, a)); }
Tensor float_power(Number a, const Tensor& b) { return float_power(wrapped_number(a, b), b); }
Tensor Tensor::float_power(const Tensor& b) const { return halfstep::float_power(*this, b); }
Tensor Tensor::float_power(Number b) const { return halfstep::float_power(*this, b); }

Tensor operator/(Number a, const Tensor& b) {
  Tensors in{b};
  apply_policy(kUnaryInfo[size_t(Unary::reciprocal)], in);  // as in PyTorch, where this is a b^-1
  return div(a, in[0]);
}

void add_elementwise(OpList& list) {
  for (int i = 0; i < kUnaryCount; ++i) {
    list.add(kUnaryInfo[size_t(i)], [i](Args& a) {
      const std::string approximate = Unary(i) == Unary::gelu ? a.text("approximate", "none") : "none";
      check<ValueError>(approximate == "none" || approximate == "tanh", "gelu", "'approximate' must be none or tanh, got '",
                        approximate, "'");
      if (Unary(i) == Unary::round && a.raw("decimals")) return round(a.tensor(0), a.integer("decimals"));
      return call_unary(approximate == "tanh" ? Unary::gelu_tanh : Unary(i), a.tensor(0));
    });
  }
  // Either operand may be a number; pow has its own names for them.
  const auto operands = [](Args& a, bool power) {
    const bool first = a.has_tensor(0), second = a.has_tensor(1);
    const Tensor x = first ? a.tensor(0) : Tensor(), y = second ? a.tensor(1) : Tensor();
    return std::pair{first ? x : wrapped_number(a.scalar(power ? "self" : "input"), a.tensor(1)),
                     second ? y : wrapped_number(a.scalar(power ? "exponent" : "other"), a.tensor(0))};
  };
  for (int i = 0; i < kBinaryCount; ++i) {
    list.add(kBinaryInfo[size_t(i)], [i, operands](Args& a) {
      const auto [x, y] = operands(a, Binary(i) == Binary::pow);
      if (Binary(i) == Binary::div && a.raw("rounding_mode")) {
        const std::string mode = a.text("rounding_mode");
        check<ValueError>(mode == "trunc" || mode == "floor", "div", "'rounding_mode' must be trunc, floor or none at all, got '",
                          mode, "'");
        return div(x, y, mode == "floor" ? RoundingMode::floor : RoundingMode::trunc);
      }
      const bool scales = Binary(i) == Binary::add || Binary(i) == Binary::sub;
      return scaled_sum(Binary(i), x, y, scales ? a.number("alpha", 1) : 1);
    });
  }
  list.add(kFloatPowerInfo, [operands](Args& a) {
    const auto [x, y] = operands(a, true);
    return float_power(x, y);
  });
  for (int i = 0; i < kComparisonCount; ++i) {
    list.add(kComparisonInfo[size_t(i)], [i, operands](Args& a) {
      const auto [x, y] = operands(a, false);
      return call_comparison(Comparison(i), x, y);
    });
  }
  list.alias("__pow__", "pow");
  list.alias("__rpow__", "pow", [](Args& a) -> Tensors { return {pow(a.scalar("other"), a.tensor(0))}; });
  for (std::string_view name : {"__rdiv__", "__rtruediv__"})
    list.alias(name, "reciprocal", [](Args& a) -> Tensors { return {a.number("other", 1) / a.tensor(0)}; });
}

}  // namespace halfstep
