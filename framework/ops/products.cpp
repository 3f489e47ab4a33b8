// Matrix products. Accumulated in float32 (float64 for f64), rounded once. A backward GEMM writes its result in the dtype the
// gradient is delivered in: for a float32 parameter that autocast lowered, float32 straight away.
#include "framework/ops/products.h"

#include "framework/ops/call.h"
#include "framework/ops/ops.h"
#include "framework/ops/promotion.h"
#include "framework/ops/registry.h"

namespace halfstep {

// Unit stride in one of the last two dimensions, and no overlap in the other.
Tensor gemm_ready(const Tensor& x) {
  const auto dense = [&](int inner, int outer) {
    return (x.strides()[inner] == 1 || x.shape()[inner] == 1) && (x.shape()[outer] <= 1 || x.strides()[outer] >= x.shape()[inner]);
  };
  const int n = x.dim();
  return dense(n - 1, n - 2) || dense(n - 2, n - 1) ? x : x.contiguous();
}

Tensor product(const Tensor& a0, const Tensor& b0, DType out_dtype, const ProductExtras& extras) {
  const Tensor a = gemm_ready(a0), b = gemm_ready(b0);
  Shape shape = a.shape();
  shape[a.dim() - 1] = b.shape()[b.dim() - 1];
  // Kernels write the operands' dtype or f32; anything else is one more conversion.
  const DType direct = out_dtype == a.dtype() || (out_dtype == DType::f32 && is_half(a.dtype())) ? out_dtype : a.dtype();
  const Tensor c = Tensor::empty(shape, {.dtype = direct, .device = a.device()});
  const auto view = [](const Tensor& t) { return t.defined() ? t.view() : TensorView{}; };
  const auto make = [&](const ProductSum& sum, int64_t n) {
    if (sum.out) *sum.out = Tensor::empty({n}, {.dtype = sum.dtype == DType::f32 ? sum.dtype : direct, .device = a.device()});
    return sum.out ? sum.out->view() : TensorView{};
  };
  backend_for(a.device())
      .gemm({.a = a.view(),
             .b = b.view(),
             .c = c.view(),
             .bias = view(extras.bias),
             .activation = extras.activation,
             .aux = view(extras.aux),
             .derivative = extras.derivative,
             .column_sum = make(extras.column_sum, shape.back()),
             .a_row_sum = make(extras.a_row_sum, shape[0])});
  return direct == out_dtype ? c : c.to(out_dtype);
}

Tensor column_sums(const Tensor& x, DType dtype) {
  const Tensor sums = Tensor::empty({1, x.size(1)}, {.dtype = dtype, .device = x.device()});
  backend_for(x.device()).reduce(Reduce::sum, x.view(), sums.view());
  return sums.alias({x.size(1)}, {1});
}

namespace {

Tensor swap_last(const Tensor& x) { return x.transpose(-2, -1); }

// The gradients of c = a b, for matrices and batches alike.
template <class Product>
Tensors product_backward(const OpContext& ctx, const Tensor& g, Product recorded) {
  Tensors result(2);
  if (grad_enabled()) {
    if (ctx.needs(0)) result[0] = recorded(g, swap_last(ctx.saved(1)));
    if (ctx.needs(1)) result[1] = recorded(swap_last(ctx.saved(0)), g);
  } else {
    if (ctx.needs(0)) result[0] = product(g, swap_last(ctx.saved(1)), ctx.grad_dtype(0));
    if (ctx.needs(1)) result[1] = product(swap_last(ctx.saved(0)), g, ctx.grad_dtype(1));
  }
  return result;
}

void check_inner(std::string_view op, const Tensor& a, const Tensor& b, int rank) {
  check<ShapeError>(a.dim() == rank && b.dim() == rank, op, "both inputs must have ", rank, " dimensions, got ", a.shape(), " and ", b.shape());
  check<ShapeError>(a.size(-1) == b.size(-2) && (rank == 2 || a.size(0) == b.size(0)), op, "inner sizes must match, got ", a.shape(), " and ",
                    b.shape());
  check_same_dtype(op, {a, b});
}

struct Mm {
  struct Attr {};
  static constexpr OpInfo info{.name = "mm", .policy = CastPolicy::low, .doc = "matrix product [M, K] [K, N]"};
  static void check(const Attr&, const Tensors& in) { check_inner("mm", in[0], in[1], 2); }
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    ctx.save(in[0]);
    ctx.save(in[1]);
    return product(in[0], in[1], in[0].dtype());
  }
  static Tensors backward(const OpContext& ctx, const Attr&, const Tensors& grads) { return product_backward(ctx, grads[0], [](const Tensor& a, const Tensor& b) { return mm(a, b); }); }
};

struct Bmm {
  struct Attr {};
  static constexpr OpInfo info{.name = "bmm", .policy = CastPolicy::low, .doc = "batch of matrix products [B, M, K] [B, K, N]"};
  static void check(const Attr&, const Tensors& in) { check_inner("bmm", in[0], in[1], 3); }
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    ctx.save(in[0]);
    ctx.save(in[1]);
    return product(in[0], in[1], in[0].dtype());
  }
  static Tensors backward(const OpContext& ctx, const Attr&, const Tensors& grads) { return product_backward(ctx, grads[0], [](const Tensor& a, const Tensor& b) { return bmm(a, b); }); }
};

struct Linear {
  struct Attr { bool relu = false; };
  static constexpr OpInfo info{.name = "linear", .policy = CastPolicy::low, .doc = "x W^T + b, optionally ReLU of it in the same pass"};

  static void check(const Attr&, const Tensors& in) {
    const Tensor &x = in[0], &w = in[1], &b = in[2];
    halfstep::check<ShapeError>(w.dim() == 2 && w.size(1) == x.size(-1), "linear", "weight must be [out, ", x.size(-1), "] to match input ",
                                x.shape(), ", got ", w.shape());
    halfstep::check<ShapeError>(!b.defined() || (b.dim() == 1 && b.size(0) == w.size(0)), "linear", "bias must be [", w.size(0),
                                "] to match weight ", w.shape(), ", got ", b.defined() ? b.shape() : Shape{});
    check_same_dtype("linear", in);
  }
  static Tensor forward(OpContext& ctx, const Attr& a, const Tensors& in) {
    const Tensor y = product(in[0], in[1].t(), in[0].dtype(),
                             {.bias = in[2].defined() ? in[2].contiguous() : Tensor(),
                              .activation = a.relu ? Activation::relu : Activation::none});
    ctx.save(in[0]);
    ctx.save(in[1]);
    if (a.relu) ctx.save_output(y);
    return y;
  }
  static Tensors backward(const OpContext& ctx, const Attr& a, const Tensors& grads) {
    Tensor g = grads[0];
    Tensors result(3);
    if (grad_enabled()) {
      if (a.relu) g = where(ctx.saved(2) <= 0, 0.0, g);
      if (ctx.needs(0)) result[0] = mm(g, ctx.saved(1));
      if (ctx.needs(1)) result[1] = mm(g.t(), ctx.saved(0));
      if (ctx.needs(2)) result[2] = sum(g, {0});
      return result;
    }
    if (a.relu) {
      const Tensor masked = Tensor::empty(g.shape(), {.dtype = g.dtype(), .device = g.device()});
      backend_for(g.device()).unary_backward(Unary::relu, g.view(), ctx.saved(2).view(), masked.view());
      g = masked;
    }
    g = gemm_ready(g);
    if (ctx.needs(0)) result[0] = product(g, ctx.saved(1), ctx.grad_dtype(0));
    if (ctx.needs(1)) {
      const ProductSum bias_sum{ctx.needs(2) ? &result[2] : nullptr, ctx.grad_dtype(2)};
      result[1] = product(g.t(), ctx.saved(0), ctx.grad_dtype(1), {.a_row_sum = bias_sum});
    } else if (ctx.needs(2)) {
      result[2] = column_sums(g, ctx.grad_dtype(2));
    }
    return result;
  }
};

struct Addmm {
  struct Attr {
    double beta = 1, alpha = 1;
    Shape input_shape;
  };
  static constexpr OpInfo info{.name = "addmm", .policy = CastPolicy::low, .doc = "beta input + alpha a b; beta 0 ignores input, NaN and all"};

  static void check(const Attr&, const Tensors& in) {
    check_inner("addmm", in[1], in[2], 2);
    const Shape out{in[1].size(0), in[2].size(1)};
    halfstep::check<ShapeError>(broadcast(in[0].shape(), out, "addmm") == out, "addmm", "input ", in[0].shape(), " must broadcast to ", out);
    check_same_dtype("addmm", in);
  }
  static Tensor forward(OpContext& ctx, const Attr& a, const Tensors& in) {
    ctx.save(in[1]);
    ctx.save(in[2]);
    const DType dtype = in[1].dtype();
    if (a.beta == 1 && a.alpha == 1 && in[0].dim() == 1 && is_floating(dtype)) return product(in[1], in[2], dtype, {.bias = in[0].contiguous()});
    Tensor y = product(in[1], in[2], is_half(dtype) ? DType::f32 : dtype);
    if (a.alpha != 1) y.mul_(a.alpha);
    if (a.beta == 0) return y.to(dtype);
    const Tensor scaled = a.beta == 1 ? in[0] : in[0].to(y.dtype()).mul(a.beta);
    const Tensor out = Tensor::empty(y.shape(), {.dtype = dtype, .device = y.device()});
    backend_for(y.device()).binary(Binary::add, y.view(), broadcast_view(scaled, y.shape()), out.view());
    return out;
  }
  static Tensors backward(const OpContext& ctx, const Attr& a, const Tensors& grads) {
    const Tensor& g = grads[0];
    Tensors result(3);
    if (ctx.needs(0)) result[0] = sum_to(a.beta == 1 ? g : g * a.beta, a.input_shape);
    const Tensor ga = a.alpha == 1 ? g : g * a.alpha;
    if (ctx.needs(1)) result[1] = grad_enabled() ? mm(ga, ctx.saved(1).t()) : product(ga, ctx.saved(1).t(), ctx.grad_dtype(1));
    if (ctx.needs(2)) result[2] = grad_enabled() ? mm(ctx.saved(0).t(), ga) : product(ctx.saved(0).t(), ga, ctx.grad_dtype(2));
    return result;
  }
};

constexpr OpInfo kMatmulInfo{.name = "matmul", .policy = CastPolicy::low, .doc = "product of vectors, matrices or broadcast batches; made of mm and bmm"};

}  // namespace

Tensor mm(const Tensor& a, const Tensor& b) { return call<Mm>({a, b}); }
Tensor bmm(const Tensor& a, const Tensor& b) { return call<Bmm>({a, b}); }
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha) {
  return call<Addmm>({input, a, b}, {beta, alpha, input.shape()});
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu) {
  check<ShapeError>(x.dim() >= 1, "linear", "input must have at least 1 dimension, got ", x.shape());
  if (x.dim() == 2) return call<Linear>({x, weight, bias}, {relu});
  check<ShapeError>(weight.dim() == 2 && weight.size(1) == x.size(-1), "linear", "weight must be [out, ", x.size(-1), "] to match input ",
                    x.shape(), ", got ", weight.shape());
  Shape out = x.shape();
  out[x.dim() - 1] = weight.size(0);
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) rows *= x.shape()[i];
  return call<Linear>({x.reshape({rows, x.size(-1)}), weight, bias}, {relu}).reshape(out);
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  check<ShapeError>(a.dim() > 0 && b.dim() > 0, "matmul", "both inputs must have at least 1 dimension, got ", a.shape(), " and ", b.shape());
  if (a.dim() == 1 || b.dim() == 1) {  // a vector is a one-row or one-column matrix whose extra dimension is dropped again
    const Tensor y = matmul(a.dim() == 1 ? a.unsqueeze(0) : a, b.dim() == 1 ? b.unsqueeze(1) : b);
    if (a.dim() == 1 && b.dim() == 1) return y.reshape({});
    return a.dim() == 1 ? y.squeeze(-2) : y.squeeze(-1);
  }
  check<ShapeError>(a.size(-1) == b.size(-2), "matmul", "inner sizes must match, got ", a.shape(), " and ", b.shape());
  if (a.dim() == 2 && b.dim() == 2) return mm(a, b);
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  Shape a_batch = a.shape(), b_batch = b.shape();
  a_batch.erase(a.dim() - 1), a_batch.erase(a.dim() - 2);
  b_batch.erase(b.dim() - 1), b_batch.erase(b.dim() - 2);
  Shape out = broadcast(a_batch, b_batch, "matmul");
  const int64_t batches = numel(out);
  auto with = [&](int64_t r, int64_t c) {
    Shape s = out;
    s.push_back(r), s.push_back(c);
    return s;
  };
  if (b.dim() == 2) return mm(a.reshape({batches * m, k}), b).reshape(with(m, n));  // one tall product
  return bmm(a.expand(with(m, k)).reshape({batches, m, k}), b.expand(with(k, n)).reshape({batches, k, n})).reshape(with(m, n));
}

Tensor Tensor::matmul(const Tensor& o) const { return halfstep::matmul(*this, o); }
Tensor Tensor::mm(const Tensor& o) const { return halfstep::mm(*this, o); }

void add_products(OpList& list) {
  list.add(Mm::info, [](Args& a) { return mm(a.tensor(0), a.tensor(1)); });
  list.add(Bmm::info, [](Args& a) { return bmm(a.tensor(0), a.tensor(1)); });
  list.add(kMatmulInfo, [](Args& a) { return matmul(a.tensor(0), a.tensor(1)); });
  list.add(Linear::info, [](Args& a) { return linear(a.tensor(0), a.tensor(1), a.tensor_or_none(2), a.flag("relu", false)); });
  list.add(Addmm::info, [](Args& a) { return addmm(a.tensor(0), a.tensor(1), a.tensor(2), a.number("beta", 1), a.number("alpha", 1)); });
  list.alias("__matmul__", "matmul");
}

}  // namespace halfstep
