// SPDX-License-Identifier: Apache-2.0
// Along one dimension, with g the gradient of y:
//
//   softmax      y = e^x / sum e^x         dx = y (g - sum g y)
//   log_softmax  y = x - ln sum e^x        dx = g - e^y sum g
#include "framework/ops/core/call.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

struct Softmax {
  struct Attr {
    int dim;
    bool log;
    std::optional<DType> dtype;
  };
  static constexpr OpInfo kInfo[2] = {
      {.name = "softmax", .policy = CastPolicy::f32_output, .doc = "e^x / sum e^x along a dimension", .takes_dtype = true},
      {.name = "log_softmax", .policy = CastPolicy::f32_output, .doc = "x - ln sum e^x along a dimension", .takes_dtype = true}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.log]; }

  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor& x = in[0];
    const Tensor y = Tensor::empty(x.shape(), {.dtype = attr.dtype.value_or(x.dtype()), .device = x.device()});
    backend_for(x.device()).softmax(rows(x), rows(y), attr.dim, attr.log);
    ctx.save_output(y);
    return y;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor &g = grads[0], y = ctx.saved();
    if (grad_enabled()) {
      if (attr.log) return {g - exp(y) * sum(g, {attr.dim}, true)};
      return {y * (g - sum(g * y, {attr.dim}, true))};
    }
    const Tensor dx = Tensor::empty(g.shape(), {.dtype = ctx.grad_dtype(0), .device = g.device()});
    backend_for(g.device()).softmax_backward(rows(g), rows(y), rows(dx), attr.dim, attr.log);
    return {dx};
  }

 private:
  // Returns a view; a 0-dim tensor is a row of one element.
  static TensorView rows(const Tensor& t) { return t.dim() == 0 ? t.alias({1}, {1}).view() : t.view(); }
};

Tensor run(bool log, Tensor x, int64_t dim, std::optional<DType> dtype) {
  const int d = wrap_dim(dim, x.dim(), Softmax::kInfo[log].name);
  if (!x.is_floating_point())
    x = x.to(dtype.value_or(DType::f32));
  else if (dtype && size_of(*dtype) < size_of(x.dtype()))
    x = x.to(*dtype);  // the caller chose to lose precision first
  return call<Softmax>({x}, {d, log, dtype});
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype) { return run(false, x, dim, dtype); }
Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype) { return run(true, x, dim, dtype); }
Tensor Tensor::softmax(int64_t dim, std::optional<DType> dtype) const { return halfstep::softmax(*this, dim, dtype); }
Tensor Tensor::log_softmax(int64_t dim, std::optional<DType> dtype) const { return halfstep::log_softmax(*this, dim, dtype); }

void add_softmax(OpList& list) {
  list.add(Softmax::kInfo[0], [](Args& a) { return softmax(a.tensor(0), a.integer("dim"), a.dtype()); });
  list.add(Softmax::kInfo[1], [](Args& a) { return log_softmax(a.tensor(0), a.integer("dim"), a.dtype()); });
}

}  // namespace halfstep
