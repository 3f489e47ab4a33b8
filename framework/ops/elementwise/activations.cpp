// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/elementwise/activations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/elementwise/formulas.h"
#include "framework/ops/elementwise/pointwise.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// y = a s, with s = sigmoid(b) and x = [a, b]: dx = [g s, g a s (1 - s)].
struct Glu {
  struct Attr {
    int dim;
  };
  static const OpInfo& info_of(const Attr&) { return halfstep::info_of(Pointwise::glu); }

  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    ctx.save(in[0]);
    return call_pointwise(Pointwise::glu, halves(in[0], attr.dim));
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor x = ctx.saved(), &g = grads[0];
    const Tensors inputs = halves(x, attr.dim);
    if (grad_enabled()) {
      const DType wide = widened(x.dtype());
      const Tensor s = sigmoid(inputs[1].to(wide)), gs = g.to(wide) * s;
      return {cat({gs, gs * inputs[0].to(wide) * (1.0 - s)}, attr.dim)};
    }
    const Tensor dx = Tensor::empty(x.shape(), {.dtype = ctx.grad_dtype(0), .device = g.device()});
    const Tensors gradients = halves(dx, attr.dim);
    const TensorView views[] = {inputs[0].view(), inputs[1].view()};
    for (int i = 0; i < 2; ++i)
      backend_for(g.device()).pointwise_backward(Pointwise::glu, i, g.view(), views, 0, 0, gradients[size_t(i)].view());
    return {dx};
  }

 private:
  static Tensors halves(const Tensor& x, int dim) {
    const int64_t n = x.size(dim) / 2;
    return {x.narrow(dim, 0, n), x.narrow(dim, n, n)};
  }
};

// For floating tensors. Both inputs have the gradient g where y > 0, else 0, summed where they broadcast.
struct AddRelu {
  struct Attr {
    Shape a_shape, b_shape;
  };
  static constexpr OpInfo info{.name = "add_relu", .doc = "max(a + b, 0) in one pass", .dtypes = DTypeSet::numbers};
  static constexpr bool kTakesTwoParts = true;  // the gradient of a block's result, from the next block's two branches

  static Attributes describe(const Attr&) { return {}; }  // nothing besides the name
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    const Shape shape = broadcast(in[0].shape(), in[1].shape(), info.name);
    const MemoryFormat format = format_of(shape, in);
    const Tensor y = Tensor::empty(shape, {.dtype = result_type(in), .device = in[0].device(), .format = format});
    backend_for(y.device())
        .add_relu(broadcast_view(in[0], shape, format), broadcast_view(in[1], shape, format), ordered(y, format));
    ctx.save_output(y);
    return y;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor g =
        grads.size() > 1 ? relu_gradient_of_sum(grads[0], grads[1], ctx.saved()) : relu_gradient(grads[0], ctx.saved());
    return {ctx.needs(0) ? sum_to(g, attr.a_shape) : Tensor(), ctx.needs(1) ? sum_to(g, attr.b_shape) : Tensor()};
  }
  static Tensor in_simpler_ops(const Attr&, const Tensors& in) { return relu(in[0] + in[1]); }
};

constexpr OpInfo kSoftminInfo{.name = "softmin", .policy = CastPolicy::f32_output, .doc = "softmax(-x) along a dimension"};
constexpr OpInfo kGumbelSoftmax{.name = "gumbel_softmax", .doc = "a sample of classes that has a gradient; hard: 0 and 1"};
constexpr OpInfo kRreluInfo{.name = "rrelu", .doc = "x, or s x for x <= 0; in training s is random, else (lower + upper)/2"};

// Returns the shape in which a weight broadcasts along x's dimension 1.
Shape along_channels(const Tensor& x, const Tensor& weight) {
  check<ValueError>(x.defined() && weight.defined(), "prelu", "an input is undefined");
  check<ShapeError>(weight.dim() <= 1, "prelu", "weight must be one value or [C], got ", weight.shape());
  const int64_t channels = x.dim() > 1 ? x.size(1) : 1;
  check<ShapeError>(weight.numel() == 1 || weight.numel() == channels, "prelu", "weight must be [1] or [", channels, "] for x ",
                    x.shape(), ", got ", weight.shape());
  if (weight.numel() == 1) return {};
  Shape shape = Dims::filled(x.dim(), 1);
  shape[1] = channels;
  return shape;
}

// Converts integers to float32; throws for an undefined tensor.
Tensor checked_floats(const Tensor& x, std::string_view op) {
  check<ValueError>(x.defined(), op, "the input is undefined");
  return x.is_floating_point() ? x : x.to(DType::f32);
}

// Returns `info` for an op that also takes integers.
OpInfo with_integers(OpInfo info) {
  info.dtypes = DTypeSet::numbers;
  return info;
}

}  // namespace

Tensor relu_gradient(const Tensor& g, const Tensor& y) {
  if (grad_enabled()) return unary_gradient(Unary::relu, g, y);
  const MemoryFormat format = format_of(g.shape(), {g, y});
  const Tensor dx = Tensor::empty(g.shape(), {.dtype = g.dtype(), .device = g.device(), .format = format});
  backend_for(g.device()).unary_backward(Unary::relu, ordered(g, format), ordered(y, format), ordered(dx, format));
  return dx;
}

Tensor relu_gradient_of_sum(const Tensor& g, const Tensor& h, const Tensor& y) {
  const MemoryFormat format = format_of(g.shape(), {g, h, y});
  const auto in_place = [&](const Tensor& t) { return is_sole(t) && t.format() == format; };
  const Tensor dx = in_place(g)   ? g
                    : in_place(h) ? h
                                  : Tensor::empty(g.shape(), {.dtype = g.dtype(), .device = g.device(), .format = format});
  backend_for(g.device()).add_relu_backward(ordered(g, format), ordered(h, format), ordered(y, format), ordered(dx, format));
  return dx;
}

Tensor add_relu(const Tensor& a, const Tensor& b) {
  check<ValueError>(a.defined() && b.defined(), AddRelu::info.name, "an input is undefined");
  if (is_floating(result_type({a, b}))) return call<AddRelu>({a, b}, {a.shape(), b.shape()});
  return under_name(AddRelu::info.name, [&] { return relu(add(a, b)); });
}

#define HS_ONE_OPTION(row, layer, p, p_default, p_doc, p_bound)      \
  HALFSTEP_OPTIONS(layer##Options, option(#p, &O::p, p_doc) p_bound) \
  Tensor row(const Tensor& x, double p) {                            \
    check_options(#row, layer##Options{p});                          \
    return call_pointwise(Pointwise::row, {x}, p);                   \
  }
#define HS_TWO_OPTIONS(row, layer, p, p_default, p_doc, p_bound, q, q_default, q_doc, q_bound)         \
  HALFSTEP_OPTIONS(layer##Options, option(#p, &O::p, p_doc) p_bound, option(#q, &O::q, q_doc) q_bound) \
  Tensor row(const Tensor& x, double p, double q) {                                                    \
    check_options(#row, layer##Options{p, q});                                                         \
    return call_pointwise(Pointwise::row, {x}, p, q);                                                  \
  }
#include "framework/math/pointwise.def"

Tensor polygamma(int64_t n, const Tensor& x) {
  constexpr int64_t kMostOrder = 100;  // n! overflows double from 171 on
  check<ValueError>(n >= 0 && n <= kMostOrder, "polygamma", "n must lie in [0, ", kMostOrder, "], got ", n);
  return n == 0 ? digamma(x) : call_pointwise(Pointwise::polygamma, {x}, double(n));
}

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, int64_t dim, Generator* generator) {
  check<ValueError>(tau > 0, kGumbelSoftmax.name, "tau must be positive, got ", tau);
  check_floating(kGumbelSoftmax.name, {logits});
  const int d = wrap_dim(dim, logits.dim(), kGumbelSoftmax.name);
  return composite(kGumbelSoftmax, {logits}, [&](const Tensors& in) {
    const DType in_32_bits = in[0].dtype() == DType::f64 ? DType::f64 : DType::f32;  // float16 would round a short time to 0
    const Tensor exponentials = empty(in[0].shape(), {.dtype = in_32_bits, .device = in[0].device()});
    exponential_(exponentials, 1, generator);
    const Tensor noise = neg(log(exponentials)).to(in[0].dtype());
    const Tensor soft = softmax((in[0] + noise) / tau, d);
    if (!hard) return soft;
    const Tensor chosen = scatter(zeros_like(soft.detach()), d, argmax(soft.detach(), d, true), 1.0);
    return soft + (chosen - soft.detach());
  });
}

Tensor hardtanh(const Tensor& x, double min_val, double max_val) {
  check<ValueError>(x.defined(), "hardtanh", "the input is undefined");
  check<ValueError>(min_val <= max_val, "hardtanh", "min_val must not be above max_val, got ", min_val, " and ", max_val);
  if (x.is_floating_point()) return call_pointwise(Pointwise::hardtanh, {x}, min_val, max_val);
  check<DTypeError>(x.dtype() != DType::boolean, "hardtanh", "has no result for bool tensors");
  // Integers keep their dtype.
  const double least = x.dtype() == DType::u8 ? std::max(std::trunc(min_val), 0.0) : std::trunc(min_val);
  return clamp(x, number_beside(least, x), number_beside(std::trunc(max_val), x));
}
Tensor threshold(const Tensor& x, Number threshold, Number value) {
  check<ValueError>(x.defined(), "threshold", "the input is undefined");
  check_fits("threshold", value, x.dtype());
  if (x.is_floating_point()) return call_pointwise(Pointwise::threshold, {x}, threshold.floating(), value.floating());
  return where(le(x, threshold), value.is_floating() ? number_beside(value.floating(), x) : value, x);
}
Tensor tanhshrink(const Tensor& x) { return call_pointwise(Pointwise::tanhshrink, {checked_floats(x, "tanhshrink")}); }

Tensor prelu(const Tensor& x, const Tensor& weight) {
  const Shape shape = along_channels(x, weight);
  check_same_device("prelu", {x, weight});
  std::array<Tensor, 2> in{x, weight};
  apply_policy(info_of(Pointwise::prelu), in);
  const autocast::Off off;
  check_same_dtype("prelu", {in[0], in[1]});
  return call_pointwise(Pointwise::prelu, {in[0], in[1].reshape(shape)});
}
Tensor Tensor::prelu(const Tensor& weight) const { return halfstep::prelu(*this, weight); }

Tensor rrelu(const Tensor& x, double lower, double upper, bool training, Generator* generator) {
  check<ValueError>(x.defined(), "rrelu", "the input is undefined");
  check<DTypeError>(x.is_floating_point(), "rrelu", "needs a floating tensor, got ", x.dtype());
  check<ValueError>(lower <= upper && lower > -kInf && upper < kInf, "rrelu", "needs finite lower <= upper, got ", lower, " and ",
                    upper);
  if (!training) return leaky_relu(x, (lower + upper) / 2);
  const Tensor slopes = Tensor::empty(x.shape(), {.dtype = widened(x.dtype()), .device = x.device()});
  uniform_(slopes, lower, upper, generator);
  const autocast::Off off;
  return call_pointwise(Pointwise::prelu, {x, slopes}, 0, 0, x.dtype());
}

Tensor glu(const Tensor& x, int64_t dim) {
  check<ValueError>(x.defined(), "glu", "the input is undefined");
  check<DTypeError>(x.is_floating_point(), "glu", "needs a floating tensor, got ", x.dtype());
  check<ShapeError>(x.dim() > 0, "glu", "needs a dimension to halve, got ", x.shape());
  const int d = wrap_dim(dim, x.dim(), "glu");
  check<ShapeError>(x.size(d) % 2 == 0, "glu", "the size along dim must be even, got ", x.shape(), " along ", d);
  return call<Glu>({x}, {d});
}

Tensor logit(const Tensor& x, std::optional<double> eps) {
  return call_pointwise(Pointwise::logit, {checked_floats(x, "logit")}, eps ? *eps : -kInf, eps ? 1 - *eps : kInf);
}

Tensor softmin(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  check<ValueError>(x.defined(), "softmin", "the input is undefined");
  check<DTypeError>(!dtype || is_floating(*dtype), "softmin", "dtype must be floating, got ", dtype.value_or(DType::f32));
  wrap_dim(dim, x.dim(), "softmin");
  return softmax(neg(x), dim, dtype);
}

void add_activations(OpList& list) {
  list.add(AddRelu::info, [](Args& a) { return add_relu(a.tensor(0), a.tensor(1)); });
#define HS_ONE_OPTION(row, layer, p, ...) \
  list.add(info_of(Pointwise::row), [](Args& a) { return row(a.tensor(0), a.number(#p, layer##Options{}.p)); });
#define HS_TWO_OPTIONS(row, layer, p, p_default, p_doc, p_bound, q, ...) \
  list.add(info_of(Pointwise::row),                                      \
           [](Args& a) { return row(a.tensor(0), a.number(#p, layer##Options{}.p), a.number(#q, layer##Options{}.q)); });
#include "framework/math/pointwise.def"
  list.add(with_integers(info_of(Pointwise::hardtanh)),
           [](Args& a) { return hardtanh(a.tensor(0), a.number("min_val", -1), a.number("max_val", 1)); });
  list.add(with_integers(info_of(Pointwise::threshold)),
           [](Args& a) { return threshold(a.tensor(0), a.scalar("threshold"), a.scalar("value")); });
  list.add(with_integers(info_of(Pointwise::tanhshrink)), [](Args& a) { return tanhshrink(a.tensor(0)); });
  list.add(info_of(Pointwise::prelu), [](Args& a) { return prelu(a.tensor(0), a.tensor(1)); });
  list.add(kRreluInfo, [](Args& a) {
    return rrelu(a.tensor(0), a.number("lower", 1.0 / 8), a.number("upper", 1.0 / 3), a.flag("training", false));
  });
  list.add(info_of(Pointwise::glu), [](Args& a) { return glu(a.tensor(0), a.integer("dim", -1)); });
  list.add(with_integers(info_of(Pointwise::logit)), [](Args& a) { return logit(a.tensor(0), a.number_or_none("eps")); });
  list.add(info_of(Pointwise::polygamma), [](Args& a) { return polygamma(a.integer("n"), a.tensor(0)); });
  list.add(kGumbelSoftmax,
           [](Args& a) { return gumbel_softmax(a.tensor(0), a.number("tau", 1), a.flag("hard", false), a.integer("dim", -1)); });
  list.add(kSoftminInfo, [](Args& a) { return softmin(a.tensor(0), a.integer("dim"), a.dtype()); });
}

Tensor Tensor::hardshrink(double lambd) const { return halfstep::hardshrink(*this, lambd); }
Tensor Tensor::logit(std::optional<double> eps) const { return halfstep::logit(*this, eps); }

}  // namespace halfstep
