// SPDX-License-Identifier: Apache-2.0
// A chain of Linear layers l = 1 ... L as one op.
//
//   forward   z_l = x_(l-1) W_l^T + b_l,  x_l = act_l(z_l);  x_l: [rows, n_l], W_l: [n_l, n_(l-1)], b_l: [n_l]
//   backward  dz_l = dx_l act_l'(z_l),  dW_l = dz_l^T x_(l-1),  db_l = column sums of dz_l,  dx_(l-1) = dz_l W_l
//
// aux_l: what a kernel needs to compute act_l'(z_l), in its own layout; for GELU z_l, for ReLU x_l or its bits (activation_aux of
// framework/backend/backend.h). The products of backward multiply by act' and sum columns within their passes; act_L' takes a pass
// of its own.
#include <utility>

#include "framework/autograd/column_sums.h"
#include "framework/ops/core/call.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/products.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

struct Mlp {
  struct Attr {
    std::vector<Activation> activations;  // after each layer
    size_t layers() const { return activations.size(); }
    // Return the indices of the saved tensors: all inputs {x, w1, b1, w2, b2, ...}, then each layer's output and aux.
    size_t input(size_t layer) const { return layer == 0 ? 0 : output(layer - 1); }
    static size_t weight(size_t layer) { return 1 + 2 * layer; }
    static size_t bias(size_t layer) { return 2 + 2 * layer; }
    size_t output(size_t layer) const { return 1 + 2 * (layers() + layer); }
    size_t aux(size_t layer) const { return output(layer) + 1; }
  };
  static constexpr OpInfo info{
      .name = "mlp", .policy = CastPolicy::low, .doc = "act(x W^T + b), layer after layer; act: none, ReLU or GELU (tanh)"};

  static void check(const Attr& attr, const Tensors& in) {
    halfstep::check<DTypeError>(in[0].is_floating_point(), "mlp", "input must be floating, got ", in[0].dtype());
    int64_t width = in[0].size(-1);
    for (size_t l = 0; l < attr.layers(); ++l) {
      const Tensor &w = in[attr.weight(l)], &b = in[attr.bias(l)];
      halfstep::check<ShapeError>(w.dim() == 2 && w.size(1) == width, "mlp", "weight ", l, " must be [out, ", width,
                                  "] to match the input, got ", w.shape());
      width = w.size(0);
      halfstep::check<ShapeError>(!b.defined() || (b.dim() == 1 && b.size(0) == width), "mlp", "bias ", l, " must be [", width,
                                  "] to match its weight ", w.shape(), ", got ", b.defined() ? b.shape() : Shape{});
    }
    check_same_dtype("mlp", in);
  }

  static Attributes describe(const Attr& attr) { return {{"layers", attr.layers()}}; }
  static int summed_input(const Attr& attr, const Shape&) {
    return attr.activations.back() == Activation::none ? int(attr.bias(attr.layers() - 1)) : -1;
  }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    for (const Tensor& t : in) ctx.save(t);
    Tensor x = in[0];
    for (size_t l = 0; l < attr.layers(); ++l) {
      const Tensor &w = in[attr.weight(l)], &b = in[attr.bias(l)];
      const Activation act = attr.activations[l];
      const bool last = l + 1 == attr.layers();
      Tensor aux;
      // The last activation's derivative is not part of a product; for ReLU the output itself suffices.
      if (ctx.recording() && act != Activation::none && !(last && act == Activation::relu)) {
        const AuxLayout layout = backend_for(x.device()).activation_aux(act, x.size(0), w.size(0), x.dtype());
        if (!layout.shape.empty()) aux = Tensor::empty(layout.shape, {.dtype = layout.dtype, .device = x.device()});
      }
      x = product(x, w.t(), x.dtype(),
                  {.bias = b.defined() ? b.contiguous() : b,
                   .activation = act,
                   .aux = aux,
                   .b_is_weight = true,
                   .aligned_rows = ctx.recording() && last && act == Activation::none});
      if (!last)
        ctx.save(x);
      else if (act == Activation::relu)
        ctx.save_output(x);
      else
        ctx.save(Tensor());
      ctx.save(aux);
    }
    return x;
  }

  static Tensors backward(const BackwardContext& ctx, const Attr& attr, Tensors grads) {
    Tensors result(attr.weight(attr.layers()));
    size_t lowest = 0;  // layer at which backward ends
    while (lowest < attr.layers() && !(lowest == 0 && ctx.needs(0)) && !ctx.needs(attr.weight(lowest)) &&
           !ctx.needs(attr.bias(lowest)))
      ++lowest;
    if (lowest == attr.layers()) return result;

    // dz of layer l, and its db if the kernel that computed dz has summed it.
    Tensor db, dz = through_last_activation(ctx, attr, std::exchange(grads[0], {}), db);
    for (size_t l = attr.layers(); l-- > lowest;) {
      const size_t w = attr.weight(l), b = attr.bias(l);
      const ProductSum missing{ctx.needs(b) && !db.defined() ? &db : nullptr, ctx.grad_dtype(b)};
      if (ctx.needs(w))
        result[w] = product(dz.t(), ctx.saved(attr.input(l)), ctx.grad_dtype(w), {.a_row_sum = missing});
      else if (missing.out)
        db = column_sums(dz, missing.dtype);
      result[b] = std::move(db);
      db = Tensor();
      if (l > lowest) {
        const size_t below = attr.bias(l - 1);
        const Activation act = attr.activations[l - 1];
        const Tensor aux = ctx.saved(attr.aux(l - 1));
        dz = product(dz, ctx.saved(w), dz.dtype(),
                     {.activation = act,
                      .aux = act == Activation::none || aux.defined() ? aux : ctx.saved(attr.output(l - 1)),
                      .derivative = act != Activation::none,
                      .column_sum = {ctx.needs(below) ? &db : nullptr, ctx.grad_dtype(below)}});
        ctx.release(attr.output(l - 1));
        ctx.release(attr.aux(l - 1));
      } else if (ctx.needs(0)) {
        result[0] = product(dz, ctx.saved(w), ctx.grad_dtype(0));
      }
    }
    return result;
  }

  static Tensor composite(const Attr& attr, const Tensors& in) {
    Tensor x = in[0];
    for (size_t l = 0; l < attr.layers(); ++l) {
      x = linear(x, in[attr.weight(l)], in[attr.bias(l)], attr.activations[l] == Activation::relu);
      if (attr.activations[l] == Activation::gelu) x = gelu_tanh(x);
    }
    return x;
  }

 private:
  // Returns dz of the last layer for the gradient g of its output, and its db if that is already there.
  static Tensor through_last_activation(const BackwardContext& ctx, const Attr& attr, const Tensor& g, Tensor& db) {
    const size_t l = attr.layers() - 1, bias = attr.bias(l);
    const Activation act = attr.activations[l];
    if (act == Activation::none) {
      if (ctx.needs(bias)) db = take_column_sums(g);
      return gemm_ready(g);
    }
    const Tensor dz = Tensor::empty(g.shape(), {.dtype = g.dtype(), .device = g.device()});
    const ProductSum sums{ctx.needs(bias) ? &db : nullptr, ctx.grad_dtype(bias)};
    if (act == Activation::relu) {
      activation_gradient(Unary::relu, g, ctx.saved(attr.output(l)), dz, sums);
    } else {
      const Tensor z = ctx.saved(attr.aux(l));  // its rows may be longer than needed
      activation_gradient(Unary::gelu_tanh, g, z.alias(g.shape(), z.strides()), dz, sums);
    }
    return dz;
  }
};

}  // namespace

Tensor mlp(const Tensor& x, const std::vector<MlpLayer>& layers) {
  check<ValueError>(!layers.empty(), "mlp", "needs at least one layer");
  check<ShapeError>(x.dim() >= 1, "mlp", "input must have at least 1 dimension, got ", x.shape());
  Shape out = x.shape();
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) rows *= x.shape()[i];
  Tensors in{x.dim() == 2 ? x : x.reshape({rows, x.size(-1)})};
  Mlp::Attr attr;
  for (const MlpLayer& layer : layers) {
    in.push_back(layer.weight);
    in.push_back(layer.bias);
    attr.activations.push_back(layer.activation);
  }
  const Tensor y = call<Mlp>(std::move(in), std::move(attr));
  if (x.dim() == 2) return y;
  out[x.dim() - 1] = y.size(1);
  return y.reshape(out);
}

void add_mlp(OpList& list) {
  // x, then weight and bias of each layer; "activation" of all but the last, and with "activate_last" of the last one, too.
  list.add(Mlp::info, [](Args& a) {
    const std::string name = a.text("activation", "none");
    halfstep::check<ValueError>(name == "none" || name == "relu" || name == "gelu", "mlp",
                                "activation must be none, relu or gelu, got '", name, "'");
    const Activation inner = name == "relu" ? Activation::relu : name == "gelu" ? Activation::gelu : Activation::none;
    std::vector<MlpLayer> layers;
    for (size_t i = 1; a.has_tensor(i); i += 2) layers.push_back({a.tensor(i), a.tensor_or_none(i + 1), inner});
    if (!layers.empty() && !a.flag("activate_last", false)) layers.back().activation = Activation::none;
    return mlp(a.tensor(0), layers);
  });
}

}  // namespace halfstep
