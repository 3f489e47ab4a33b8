// SPDX-License-Identifier: Apache-2.0
// Each cell is one op: two products in float32, then one pass over the gates. Its backward is one pass for the gates' gradient,
// and one product for each input and weight. With the gates a = x W_ih^T + b_ih + h W_hh^T + b_hh before their activation, i to z
// after it, di to dz the gradients of their a, and h_n = h W_hh^T + b_hh in gate n:
//
//   LSTM  do = dh' tanh(c') o (1 - o), dc' += dh' o (1 - tanh(c')^2), dc = dc' f
//         di = dc' g i (1 - i), df = dc' c f (1 - f), dg = dc' i (1 - g^2)
//   GRU   dn = dh' (1 - z) (1 - n^2), dz = dh' (h - n) z (1 - z), dr = dn h_n r (1 - r), dh_n = dn r, dh = dh' z
//   RNN   da = dh' (1 - h'^2), or dh' where h' > 0
//
//   dx = da W_ih, dh += da W_hh, dW_ih = da^T x, dW_hh = da^T h, biases: column sums of da
#include "framework/ops/recurrent/recurrent.h"

#include "framework/ops/core/call.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/products.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/views.h"

namespace halfstep {
namespace {

// Makes [N, columns] for `like` [N, ...].
Tensor make(const Tensor& like, int64_t columns, DType dtype) {
  return Tensor::empty({like.size(0), columns}, {.dtype = dtype, .device = like.device()});
}

// The indices of the parameters among a cell's inputs: x, the states, the parameters.
struct Places {
  size_t states;  // their number: h, or h and c
  constexpr size_t w_ih() const { return 1 + states; }
  constexpr size_t w_hh() const { return 2 + states; }
  constexpr size_t b_ih() const { return 3 + states; }
  constexpr size_t b_hh() const { return 4 + states; }
  constexpr size_t count() const { return 5 + states; }
};

// Throws unless the inputs fit a cell with this number of gates.
void check_cell(std::string_view op, int64_t gates, Places places, const Tensors& in) {
  const Tensor &x = in[0], &h = in[1], &w_ih = in[places.w_ih()], &w_hh = in[places.w_hh()];
  check<DTypeError>(x.is_floating_point(), op, "input must be floating, got ", x.dtype());
  check<ShapeError>(x.dim() == 2 && h.dim() == 2 && x.size(0) == h.size(0), op, "input and state must be [N, I] and [N, H], got ",
                    x.shape(), " and ", h.shape());
  const int64_t units = h.size(1);
  for (size_t i = 2; i < places.w_ih(); ++i)
    check<ShapeError>(in[i].shape() == h.shape(), op, "both states must have one shape, got ", h.shape(), " and ", in[i].shape());
  check<ShapeError>(w_ih.dim() == 2 && w_ih.size(1) == x.size(1) && w_ih.size(0) == w_hh.size(0), op, "w_ih must be [", gates,
                    " H, ", x.size(1), "] to match input ", x.shape(), ", got ", w_ih.shape());
  check<ShapeError>(w_hh.dim() == 2 && w_hh.size(1) == units && w_hh.size(0) / gates == units && w_hh.size(0) % gates == 0, op,
                    "w_hh must be [", gates, " H, H] to match state ", h.shape(), ", got ", w_hh.shape());
  for (size_t i : {places.b_ih(), places.b_hh()})
    check<ShapeError>(!in[i].defined() || in[i].shape() == Shape{w_hh.size(0)}, op, "biases must be [", w_hh.size(0), "], got ",
                      in[i].defined() ? in[i].shape() : Shape());
  check_same_dtype(op, in);
}

// Return the gates' parts of x and of h, in float32 (float64): [N, G H].
Tensor x_product(Places places, const Tensors& in) {
  return product(in[0], in[places.w_ih()].t(), widened(in[0].dtype()), {.bias = dense(in[places.b_ih()])});
}
Tensor h_product(Places places, const Tensors& in) {
  return product(in[1], in[places.w_hh()].t(), widened(in[0].dtype()), {.bias = dense(in[places.b_hh()])});
}

// Returns the gradients of x, h (plus `dh` if defined), weights and biases, from the gates' gradients.
Tensors through_products(const BackwardContext& ctx, Places places, const Tensor& dx_gates, const Tensor& dh_gates,
                         const Tensor& dh) {
  Tensors result(places.count());
  const auto side = [&](const Tensor& gates, size_t input, size_t weight, size_t bias) {
    if (ctx.needs(input)) result[input] = product(gates, ctx.saved(weight), ctx.grad_dtype(input));
    if (ctx.needs(weight)) {
      const ProductSum bias_sum{ctx.needs(bias) ? &result[bias] : nullptr, ctx.grad_dtype(bias)};
      result[weight] = product(gates.t(), ctx.saved(input), ctx.grad_dtype(weight), {.a_row_sum = bias_sum});
    } else if (ctx.needs(bias)) {
      result[bias] = column_sums(gates, ctx.grad_dtype(bias));
    }
  };
  side(dx_gates, 0, places.w_ih(), places.b_ih());
  side(dh_gates, 1, places.w_hh(), places.b_hh());
  if (dh.defined() && ctx.needs(1)) result[1] = result[1] + dh;
  return result;
}

// ---- in differentiable ops, for second derivatives

// Converts 16-bit tensors to float32.
Tensors widened(const Tensors& in) {
  Tensors out;
  for (const Tensor& t : in) out.push_back(t.defined() ? t.to(widened(t.dtype())) : t);
  return out;
}
// Returns gate k: [N, H] of [N, G H].
Tensor gate(const Tensor& gates, int64_t k, int64_t units) { return gates.narrow(1, k * units, units); }

struct Lstm {
  struct Attr {};
  static constexpr Places kAt{2};
  enum Saved : size_t { kC = 2, kActivated = kAt.count(), kNewC };  // after the inputs
  static constexpr OpInfo info{.name = "lstm_cell",
                               .policy = CastPolicy::low,
                               .doc = "x h c w_ih w_hh b_ih b_hh -> h' c': one step of an LSTM; gates i f g o"};

  static void check(const Attr&, const Tensors& in) { check_cell("lstm_cell", 4, kAt, in); }
  static Tensors forward(OpContext& ctx, const Attr&, const Tensors& in) {
    const Tensor x_gates = x_product(kAt, in), h_gates = h_product(kAt, in), c = in[2].contiguous();
    const DType dtype = in[0].dtype();
    const Tensor h_out = make(c, c.size(1), dtype), c_out = make(c, c.size(1), dtype);
    const Tensor activated = ctx.recording() ? make(c, 4 * c.size(1), dtype) : Tensor();
    backend_for(c.device()).lstm_cell(x_gates.view(), h_gates.view(), c.view(), h_out.view(), c_out.view(), view_of(activated));
    for (const Tensor& t : in) ctx.save(t);
    ctx.save(activated);
    ctx.save_output(c_out, 1);
    return {h_out, c_out};
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor c = ctx.saved(kC).contiguous(), activated = ctx.saved(kActivated), dh = dense(grads[0]), dc = dense(grads[1]);
    const Tensor dgates = make(c, 4 * c.size(1), c.dtype()), dc_in = make(c, c.size(1), ctx.grad_dtype(kC));
    backend_for(c.device())
        .lstm_cell_backward(view_of(dh), {}, view_of(dc), activated.view(), c.view(), ctx.saved(kNewC).view(), dgates.view(),
                            dc_in.view());
    Tensors result = through_products(ctx, kAt, dgates, dgates, Tensor());
    result[kC] = dc_in;
    return result;
  }
  static Tensors composite(const Attr&, const Tensors& given) {
    const Tensors in = widened(given);
    const Tensor gates = linear(in[0], in[3], in[5]) + linear(in[1], in[4], in[6]);
    const int64_t units = in[1].size(1);
    const Tensor c = sigmoid(gate(gates, 1, units)) * in[2] + sigmoid(gate(gates, 0, units)) * tanh(gate(gates, 2, units));
    return {(sigmoid(gate(gates, 3, units)) * tanh(c)).to(given[0].dtype()), c.to(given[0].dtype())};
  }
};

struct Gru {
  struct Attr {};
  static constexpr Places kAt{1};
  enum Saved : size_t { kH = 1, kActivated = kAt.count() };  // after the inputs
  static constexpr OpInfo info{
      .name = "gru_cell", .policy = CastPolicy::low, .doc = "x h w_ih w_hh b_ih b_hh -> h': one step of a GRU; gates r z n"};

  static void check(const Attr&, const Tensors& in) { check_cell("gru_cell", 3, kAt, in); }
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    const Tensor x_gates = x_product(kAt, in), h_gates = h_product(kAt, in), h = in[1].contiguous();
    const Tensor h_out = make(h, h.size(1), h.dtype()), activated = ctx.recording() ? make(h, 4 * h.size(1), h.dtype()) : Tensor();
    backend_for(h.device()).gru_cell(x_gates.view(), h_gates.view(), h.view(), h_out.view(), view_of(activated));
    for (const Tensor& t : in) ctx.save(t);
    ctx.save(activated);
    return h_out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor h = ctx.saved(kH).contiguous(), activated = ctx.saved(kActivated), g = grads[0].contiguous();
    const Tensor dx_gates = make(h, 3 * h.size(1), h.dtype()), dh_gates = make(h, 3 * h.size(1), h.dtype());
    const Tensor dh = make(h, h.size(1), ctx.grad_dtype(kH));
    backend_for(h.device())
        .gru_cell_backward(g.view(), {}, activated.view(), h.view(), dx_gates.view(), dh_gates.view(), dh.view());
    return through_products(ctx, kAt, dx_gates, dh_gates, dh);
  }
  static Tensor composite(const Attr&, const Tensors& given) {
    const Tensors in = widened(given);
    const Tensor x_gates = linear(in[0], in[2], in[4]), h_gates = linear(in[1], in[3], in[5]);
    const int64_t units = in[1].size(1);
    const auto sum = [&](int64_t k) { return gate(x_gates, k, units) + gate(h_gates, k, units); };
    const Tensor r = sigmoid(sum(0)), z = sigmoid(sum(1)), n = tanh(gate(x_gates, 2, units) + r * gate(h_gates, 2, units));
    return ((1 - z) * n + z * in[1]).to(given[0].dtype());
  }
};

struct Rnn {
  struct Attr {
    Unary activation;
  };
  static constexpr Places kAt{1};
  enum Saved : size_t { kOutput = kAt.count() };  // after the inputs
  static constexpr OpInfo kInfo[2] = {{.name = "rnn_tanh_cell",
                                       .policy = CastPolicy::low,
                                       .doc = "x h w_ih w_hh b_ih b_hh -> tanh(x W_ih^T + b_ih + h W_hh^T + b_hh)"},
                                      {.name = "rnn_relu_cell",
                                       .policy = CastPolicy::low,
                                       .doc = "x h w_ih w_hh b_ih b_hh -> relu(x W_ih^T + b_ih + h W_hh^T + b_hh)"}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.activation == Unary::relu]; }

  static void check(const Attr& attr, const Tensors& in) { check_cell(info_of(attr).name, 1, kAt, in); }
  static Attributes describe(const Attr&) { return {}; }  // nothing besides the name
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor sum = x_product(kAt, in), h = gemm_ready(in[1]), w = gemm_ready(in[kAt.w_hh()].t()), b = dense(in[kAt.b_hh()]);
    Backend& backend = backend_for(sum.device());
    backend.gemm({.a = h.view(), .b = w.view(), .c = sum.view(), .bias = view_of(b), .accumulate = true});
    const Tensor h_out = make(sum, sum.size(1), in[0].dtype());
    backend.unary(attr.activation, sum.view(), h_out.view());
    for (const Tensor& t : in) ctx.save(t);
    ctx.save_output(h_out);
    return h_out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor h_out = ctx.saved(kOutput), dsum = make(h_out, h_out.size(1), h_out.dtype());
    backend_for(h_out.device()).unary_backward(attr.activation, grads[0].view(), h_out.view(), dsum.view());
    return through_products(ctx, kAt, dsum, dsum, Tensor());
  }
  static Tensor composite(const Attr& attr, const Tensors& given) {
    const Tensors in = widened(given);
    const Tensor sum = linear(in[0], in[2], in[4]) + linear(in[1], in[3], in[5]);
    return (attr.activation == Unary::relu ? relu(sum) : tanh(sum)).to(given[0].dtype());
  }
};

// Returns the inputs in the op's form: batched, with states. `in`: x, the states, the parameters.
Tensors batched(Tensors in, size_t states, std::string_view op) {
  const Tensor &x = in[0], &w_hh = in[states + 2];
  check<ShapeError>(x.dim() == 1 || x.dim() == 2, op, "input must be [N, I] or [I], got ", x.shape());
  check<ShapeError>(w_hh.dim() == 2, op, "w_hh must have 2 dimensions, got ", w_hh.shape());
  Shape state{w_hh.size(1)};
  if (x.dim() == 2) state.insert(0, x.size(0));
  for (size_t i = 1; i <= states; ++i) {
    if (!in[i].defined()) in[i] = zeros(state, {.dtype = x.dtype(), .device = x.device()});
    check<ShapeError>(in[i].dim() == x.dim(), op, "input and state must have as many dimensions, got ", x.shape(), " and ",
                      in[i].shape());
  }
  if (x.dim() == 1) {
    for (size_t i = 0; i <= states; ++i) in[i] = in[i].unsqueeze(0);
  }
  return in;
}
// Returns `out` [N, H] without N if x has none.
Tensor as_input(const Tensor& out, const Tensor& x) { return x.dim() == 1 ? as_result(out.squeeze(0)) : out; }

Tensor rnn_cell(Unary activation, const Tensors& in) {
  return as_input(call<Rnn>(batched(in, 1, Rnn::info_of({activation}).name), {activation}), in[0]);
}

}  // namespace

std::pair<Tensor, Tensor> lstm_cell(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& w_ih, const Tensor& w_hh,
                                    const Tensor& b_ih, const Tensor& b_hh) {
  const Tensors out = call<Lstm>(batched({x, h, c, w_ih, w_hh, b_ih, b_hh}, 2, "lstm_cell"));
  return {as_input(out[0], x), as_input(out[1], x)};
}
Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh) {
  return as_input(call<Gru>(batched({x, h, w_ih, w_hh, b_ih, b_hh}, 1, "gru_cell")), x);
}
Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return rnn_cell(Unary::tanh, {x, h, w_ih, w_hh, b_ih, b_hh});
}
Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return rnn_cell(Unary::relu, {x, h, w_ih, w_hh, b_ih, b_hh});
}

void add_recurrent(OpList& list) {
  list.add(Lstm::info, [](Args& a) {
    const auto [h, c] = lstm_cell(a.tensor(0), a.tensor_or_none(1), a.tensor_or_none(2), a.tensor(3), a.tensor(4),
                                  a.tensor_or_none(5), a.tensor_or_none(6));
    return Tensors{h, c};
  });
  const auto add = [&](const OpInfo& info,
                       Tensor (*cell)(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)) {
    list.add(info, [cell](Args& a) {
      return cell(a.tensor(0), a.tensor_or_none(1), a.tensor(2), a.tensor(3), a.tensor_or_none(4), a.tensor_or_none(5));
    });
  };
  add(Gru::info, gru_cell);
  add(Rnn::kInfo[0], rnn_tanh_cell);
  add(Rnn::kInfo[1], rnn_relu_cell);
  list.alias("LSTMCell", "lstm_cell");
  list.alias("GRUCell", "gru_cell");
  list.alias("RNNCell", "rnn_tanh_cell");
}

}  // namespace halfstep
