// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/elementwise/pointwise.h"

#include <cmath>

#include "framework/math/pointwise.h"
#include "framework/ops/core/in_place.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/elementwise/formulas.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr auto kInfo = [] {
  std::array<OpInfo, size_t(kPointwiseCount)> out{};
  for (size_t i = 0; i < out.size(); ++i) {
    const PointwiseRow& row = kPointwiseRows[i];
    const bool wide = row.policy == CastPolicy::f32;
    out[i] = {.name = row.op, .policy = row.policy, .doc = row.doc, .reads_half = wide, .takes_dtype = wide};
  }
  return out;
}();

const PointwiseRow& facts(Pointwise row) { return kPointwiseRows[size_t(row)]; }

Shape shape_of(Pointwise row, const Tensors& in) {
  Shape shape = in[0].shape();
  for (size_t i = 1; i < in.size(); ++i) shape = broadcast(shape, in[i].shape(), facts(row).op);
  return shape;
}

DType dtype_of_result(const Tensors& in) {
  const DType type = result_type(in);
  return is_floating(type) ? type : DType::f32;
}

// One row; inputs: its one to three tensors, which broadcast.
struct PointwiseOp {
  struct Attr {
    Pointwise row;
    double p, q;  // the row's numbers
    std::optional<DType> dtype;
    std::vector<Shape> shapes;  // of the inputs
  };
  static const OpInfo& info_of(const Attr& attr) { return kInfo[size_t(attr.row)]; }
  static Tensor in_simpler_ops(const Attr& attr, const Tensors& in) { return pointwise_formula(attr.row, in, attr.p, attr.q); }

  static void check(const Attr& attr, const Tensors& in) {
    halfstep::check<DTypeError>(is_floating(result_type(in)), facts(attr.row).op, "needs floating tensors, got ", in[0].dtype());
  }
  static Attributes describe(const Attr& attr) { return {{"p", attr.p}, {"q", attr.q}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Shape shape = shape_of(attr.row, in);
    const MemoryFormat format = format_of(shape, in);
    const Tensor out =
        Tensor::empty(shape, {.dtype = attr.dtype.value_or(dtype_of_result(in)), .device = in[0].device(), .format = format});
    std::array<TensorView, 3> views;
    for (size_t i = 0; i < in.size(); ++i) views[i] = broadcast_view(in[i], shape, format);
    backend_for(out.device()).pointwise(attr.row, std::span(views).first(in.size()), attr.p, attr.q, ordered(out, format));
    unsigned reads = 0;  // bits of the tensors that the gradients read: g, then the inputs
    for (size_t i = 0; i < in.size(); ++i)
      if (in[i].requires_grad()) reads |= facts(attr.row).names[i];
    for (size_t i = 0; i < in.size(); ++i) ctx.save(reads >> (i + 1) & 1 ? in[i] : Tensor());
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor& g = grads[0];
    Tensors in, result(attr.shapes.size());
    for (size_t i = 0; i < attr.shapes.size(); ++i) in.push_back(ctx.saved(i));
    for (size_t i = 0; i < in.size(); ++i) {
      if (!ctx.needs(i) || facts(attr.row).names[i] == 0) continue;
      result[i] = sum_to(gradient_of(ctx, attr, g, int(i), in), attr.shapes[i]);
    }
    return result;
  }

 private:
  static Tensor gradient_of(const BackwardContext& ctx, const Attr& attr, const Tensor& g, int input, const Tensors& in) {
    if (grad_enabled()) return pointwise_gradient(attr.row, input, g, in, attr.p, attr.q);
    const bool broadcasts = attr.shapes[size_t(input)] != g.shape();
    // Rounds no terms that are summed afterwards, because the input broadcasts.
    const DType dtype = !broadcasts ? ctx.grad_dtype(size_t(input)) : widened(g.dtype());
    Tensors operands = in;
    operands.insert(operands.begin(), g);
    const MemoryFormat format = format_of(g.shape(), operands);
    const Tensor out = Tensor::empty(g.shape(), {.dtype = dtype, .device = g.device(), .format = format});
    std::array<TensorView, 3> views{};
    for (size_t i = 0; i < in.size(); ++i)
      if (in[i].defined()) views[i] = broadcast_view(in[i], g.shape(), format);
    backend_for(g.device())
        .pointwise_backward(attr.row, input, ordered(g, format), std::span(views).first(in.size()), attr.p, attr.q,
                            ordered(out, format));
    return out;
  }
};

// Checks the arguments of addcmul for integers.
void check_integers(std::string_view op, const Tensors& in, double value) {
  check_same_device(op, in);
  broadcast(in[0].shape(), broadcast(in[1].shape(), in[2].shape(), op), op);
  check<ValueError>(value == std::nearbyint(value), op, "value must be whole for integer tensors, got ", value);
}

void check_lerp(const Tensor& x, const Tensor& end) {
  check<ValueError>(x.defined() && end.defined(), "lerp", "an input is undefined");
  check<DTypeError>(x.is_floating_point(), "lerp", "needs floating tensors, got ", x.dtype());
  check_same_dtype("lerp", {x, end});
}

}  // namespace

const OpInfo& info_of(Pointwise row) { return kInfo[size_t(row)]; }

Tensor call_pointwise(Pointwise row, Tensors in, double p, double q, std::optional<DType> dtype) {
  std::vector<Shape> shapes;
  for (const Tensor& t : in) {
    check<ValueError>(t.defined(), facts(row).op, "an input is undefined");
    shapes.push_back(t.shape());
  }
  return call<PointwiseOp>(std::move(in), {row, p, q, dtype, std::move(shapes)});
}

void pointwise_in_place(Pointwise row, const Tensors& in, double p, double q) {
  const autocast::Off off;
  const std::string_view op = facts(row).op;
  const Tensor& x = in[0];
  bool others_recorded = false, overlap = false;
  for (const Tensor& t : in) {
    check<ValueError>(t.defined(), op, "an input is undefined");
    if (t.same(x)) continue;
    others_recorded = others_recorded || t.requires_grad();
    // An operand that overlaps x at other positions must be read before x is written.
    overlap = overlap || (x.shares_memory_with(t) &&
                          !(t.const_data_ptr() == x.const_data_ptr() && t.shape() == x.shape() && t.strides() == x.strides()));
  }
  check_same_device(op, in);
  check<DTypeError>(is_floating(result_type(in)), op, "needs floating tensors, got ", x.dtype());
  const Shape shape = shape_of(row, in);
  const DType dtype = dtype_of_result(in);
  if (check_in_place(x, shape, dtype, others_recorded, op)) {
    // Must not overwrite what backward will read.
    const Tensor before = clone(x);
    Tensors operands;
    for (const Tensor& t : in) operands.push_back(t.same(x) ? before : t);
    assign_in_place(x, call_pointwise(row, operands, p, q), op);
    return;
  }
  const MemoryFormat format = x.format();
  if (!x.is_contiguous(format) || dtype != x.dtype() || overlap || Observing::follow_values()) {
    assign_in_place(x, call_pointwise(row, in, p, q), op);
    return;
  }
  std::array<TensorView, 3> views;
  for (size_t i = 0; i < in.size(); ++i) views[i] = broadcast_view(in[i], shape, format);
  backend_for(x.device()).pointwise(row, std::span(views).first(in.size()), p, q, ordered(x, format));
  x.bump_version();
}

Tensor addcmul(const Tensor& input, const Tensor& a, const Tensor& b, double value) {
  check<ValueError>(input.defined() && a.defined() && b.defined(), "addcmul", "an input is undefined");
  if (is_floating(result_type({input, a, b}))) return call_pointwise(Pointwise::addcmul, {input, a, b}, value);
  check_integers("addcmul", {input, a, b}, value);
  return input + a * b * number_beside(value, a * b);
}
Tensor addcdiv(const Tensor& input, const Tensor& a, const Tensor& b, double value) {
  return call_pointwise(Pointwise::addcdiv, {input, a, b}, value);
}
Tensor lerp(const Tensor& input, const Tensor& end, const Tensor& weight) {
  check_lerp(input, end);
  check<ValueError>(weight.defined(), "lerp", "weight is undefined");
  if (weight.dim() > 0) check_same_dtype("lerp", {input, end, weight});
  return call_pointwise(Pointwise::lerp, {input, end, weight});
}
Tensor lerp(const Tensor& input, const Tensor& end, double weight) {
  check_lerp(input, end);
  return call_pointwise(Pointwise::lerp_number, {input, end}, weight);
}

Tensor Tensor::addcmul(const Tensor& a, const Tensor& b, double value) const { return halfstep::addcmul(*this, a, b, value); }
Tensor Tensor::addcdiv(const Tensor& a, const Tensor& b, double value) const { return halfstep::addcdiv(*this, a, b, value); }
Tensor Tensor::lerp(const Tensor& end, const Tensor& weight) const { return halfstep::lerp(*this, end, weight); }
Tensor Tensor::lerp(const Tensor& end, double weight) const { return halfstep::lerp(*this, end, weight); }
const Tensor& Tensor::addcmul_(const Tensor& a, const Tensor& b, double value) const& {
  check<ValueError>(a.defined() && b.defined(), "addcmul_", "an input is undefined");
  if (is_floating(result_type({*this, a, b}))) {
    pointwise_in_place(Pointwise::addcmul, {*this, a, b}, value);
    return *this;
  }
  check_integers("addcmul_", {*this, a, b}, value);
  return add_(a * b * number_beside(value, a * b));
}
const Tensor& Tensor::addcdiv_(const Tensor& a, const Tensor& b, double value) const& {
  pointwise_in_place(Pointwise::addcdiv, {*this, a, b}, value);
  return *this;
}
const Tensor& Tensor::lerp_(const Tensor& end, double weight) const& {
  check_lerp(*this, end);
  pointwise_in_place(Pointwise::lerp_number, {*this, end}, weight);
  return *this;
}

void add_pointwise(OpList& list) {
  OpInfo info = info_of(Pointwise::addcmul);
  info.dtypes = DTypeSet::numbers;
  list.add(info, [](Args& a) { return addcmul(a.tensor(0), a.tensor(1), a.tensor(2), a.number("value", 1)); });
  list.add(info_of(Pointwise::addcdiv),
           [](Args& a) { return addcdiv(a.tensor(0), a.tensor(1), a.tensor(2), a.number("value", 1)); });
  list.add(info_of(Pointwise::lerp), [](Args& a) {
    return a.has_tensor(2) ? lerp(a.tensor(0), a.tensor(1), a.tensor(2)) : lerp(a.tensor(0), a.tensor(1), a.number("weight"));
  });
}

}  // namespace halfstep
