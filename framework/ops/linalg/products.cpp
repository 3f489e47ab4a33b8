// SPDX-License-Identifier: Apache-2.0
// Matrix products, accumulated in float32 (float64 for f64) and rounded once: c = a b, with da = g b^T and db = a^T g. A backward
// product writes its result in the gradient's final dtype: for a float32 parameter that autocast lowered, directly in float32.
#include "framework/ops/linalg/products.h"

#include <cmath>

#include "framework/autograd/column_sums.h"
#include "framework/ops/core/call.h"
#include "framework/ops/core/in_place.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/packed_weights.h"
#include "framework/ops/linalg/vectors.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/views.h"

namespace halfstep {

// Returns x with unit stride in one of the last two dimensions and no overlap in the other, copied if necessary.
Tensor gemm_ready(const Tensor& x) {
  const auto dense = [&](int inner, int outer) {
    return (x.strides()[inner] == 1 || x.shape()[inner] == 1) && (x.shape()[outer] <= 1 || x.strides()[outer] >= x.shape()[inner]);
  };
  const int n = x.dim();
  return dense(n - 1, n - 2) || dense(n - 2, n - 1) ? x : x.contiguous();
}

Tensor product(const Tensor& given_a, const Tensor& given_b, DType out_dtype, const ProductExtras& extras) {
  const Tensor a = gemm_ready(given_a), b = gemm_ready(given_b);
  Shape shape = a.shape();
  shape[a.dim() - 1] = b.shape()[b.dim() - 1];
  // Kernels write the operands' dtype or f32; anything else is one more conversion.
  const DType written = out_dtype == a.dtype() || (out_dtype == DType::f32 && is_half(a.dtype())) ? out_dtype : a.dtype();
  Backend& backend = backend_for(a.device());
  const TensorOptions options{.dtype = written, .device = a.device()};
  const int64_t n = shape.back(),
                row = extras.aligned_rows && written == out_dtype ? backend.product_row(shape[0], n, a.size(-1), written) : n;
  const Tensor c = row > n ? empty_rows(shape, row, options) : Tensor::empty(shape, options);
  const auto view = [](const Tensor& t) { return t.defined() ? t.view() : TensorView{}; };
  // Makes the tensor for so many sums, if requested, and returns its view.
  const auto view_of_sum = [&](const ProductSum& sum, int64_t count) {
    if (sum.out) *sum.out = Tensor::empty({count}, {.dtype = sum.dtype == DType::f32 ? sum.dtype : written, .device = a.device()});
    return sum.out ? sum.out->view() : TensorView{};
  };
  const Tensor packed = extras.b_is_weight ? packed_weight(b, a.size(0)) : Tensor();
  backend.gemm({.a = a.view(),
                .b = b.view(),
                .c = c.view(),
                .bias = view(extras.bias),
                .activation = extras.activation,
                .aux = view(extras.aux),
                .derivative = extras.derivative,
                .column_sum = view_of_sum(extras.column_sum, n),
                .a_row_sum = view_of_sum(extras.a_row_sum, shape[0]),
                .b_column_sum = view_of_sum(extras.b_column_sum, n),
                .packed = view(packed),
                .shared = packed.defined()});
  return written == out_dtype ? c : c.to(out_dtype);
}

void check_product_dtypes(std::string_view op, const Tensors& in) {
  check_same_dtype(op, in);
  for (const Tensor& t : in) check<DTypeError>(!t.defined() || t.dtype() != DType::boolean, op, "has no product of bool tensors");
}

void check_factors(std::string_view op, DType dtype, double beta, double alpha) {
  check<ValueError>(is_floating(dtype) || (beta == std::nearbyint(beta) && alpha == std::nearbyint(alpha)), op, "of ", dtype,
                    " tensors, beta and alpha must be whole numbers, got ", beta, " and ", alpha);
}

void save_factors(OpContext& ctx, const Tensor& a, const Tensor& b) {
  ctx.save(b.requires_grad() ? a : Tensor());
  ctx.save(a.requires_grad() ? b : Tensor());
}

Tensor empty_rows(const Shape& shape, int64_t row, const TensorOptions& options) {
  return Tensor::empty({shape[0], row}, options).alias(shape, {row, 1});
}

void activation_gradient(Unary op, const Tensor& g, const Tensor& saved, const Tensor& out, const ProductSum& sums) {
  Backend& backend = backend_for(g.device());
  if (!sums.out || !backend.adds_up_columns(g.dtype())) return backend.unary_backward(op, g.view(), saved.view(), out.view());
  *sums.out = Tensor::empty({g.size(1)}, {.dtype = sums.dtype, .device = g.device()});
  backend.unary_summed_backward(op, g.view(), saved.view(), out.view(), sums.out->view());
}

Tensor column_sums(const Tensor& x, DType dtype) {
  const Tensor sums = Tensor::empty({1, x.size(1)}, {.dtype = dtype, .device = x.device()});
  backend_for(x.device()).reduce(Reduce::sum, x.view(), sums.view());
  return sums.alias({x.size(1)}, {1});
}

namespace {

Tensor swap_last(const Tensor& x) { return x.transpose(-2, -1); }

// Returns the gradients of c = a b, for matrices and batches.
template <class Product>
Tensors product_backward(const BackwardContext& ctx, const Tensor& g, Product recorded) {
  Tensors result(2);
  if (grad_enabled()) {
    if (ctx.needs(0)) result[0] = recorded(g, swap_last(ctx.saved(kSecondFactor)));
    if (ctx.needs(1)) result[1] = recorded(swap_last(ctx.saved(kFirstFactor)), g);
  } else {
    if (ctx.needs(0)) result[0] = product(g, swap_last(ctx.saved(kSecondFactor)), ctx.grad_dtype(0));
    if (ctx.needs(1)) result[1] = product(swap_last(ctx.saved(kFirstFactor)), g, ctx.grad_dtype(1));
  }
  return result;
}

void check_inner(std::string_view op, const Tensor& a, const Tensor& b, int rank) {
  check<ShapeError>(a.dim() == rank && b.dim() == rank, op, "both inputs must have ", rank, " dimensions, got ", a.shape(), " and ",
                    b.shape());
  check<ShapeError>(a.size(-1) == b.size(-2) && (rank == 2 || a.size(0) == b.size(0)), op, "inner sizes must match, got ",
                    a.shape(), " and ", b.shape());
  check_product_dtypes(op, {a, b});
}

struct Mm {
  struct Attr {};
  static constexpr OpInfo info{
      .name = "mm", .policy = CastPolicy::low, .doc = "matrix product [M, K] [K, N]", .dtypes = DTypeSet::numbers};
  static void check(const Attr&, const Tensors& in) { check_inner("mm", in[0], in[1], 2); }
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    save_factors(ctx, in[0], in[1]);
    return product(in[0], in[1], in[0].dtype());
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    return product_backward(ctx, grads[0], [](const Tensor& a, const Tensor& b) { return mm(a, b); });
  }
};

struct Bmm {
  struct Attr {};
  static constexpr OpInfo info{
      .name = "bmm", .policy = CastPolicy::low, .doc = "batch of matrix products [B, M, K] [B, K, N]", .dtypes = DTypeSet::numbers};
  static void check(const Attr&, const Tensors& in) { check_inner("bmm", in[0], in[1], 3); }
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    save_factors(ctx, in[0], in[1]);
    return product(in[0], in[1], in[0].dtype());
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    return product_backward(ctx, grads[0], [](const Tensor& a, const Tensor& b) { return bmm(a, b); });
  }
};

// y = x W^T + b, or its ReLU. With g masked by y > 0 for ReLU: dx = g W, dW = g^T x, db = column sums of g.
struct LinearOp {
  struct Attr {
    bool relu = false;
  };
  enum Saved : size_t { kOutput = kFactors };  // with ReLU only
  static constexpr OpInfo info{.name = "linear",
                               .policy = CastPolicy::low,
                               .doc = "x W^T + b, optionally ReLU of it in the same pass",
                               .dtypes = DTypeSet::numbers};

  static void check(const Attr&, const Tensors& in) {
    const Tensor &x = in[0], &w = in[1], &b = in[2];
    halfstep::check<ShapeError>(w.dim() == 2 && w.size(1) == x.size(-1), "linear", "weight must be [out, ", x.size(-1),
                                "] to match input ", x.shape(), ", got ", w.shape());
    halfstep::check<ShapeError>(!b.defined() || (b.dim() == 1 && b.size(0) == w.size(0)), "linear", "bias must be [", w.size(0),
                                "] to match weight ", w.shape(), ", got ", b.defined() ? b.shape() : Shape{});
    check_product_dtypes("linear", in);
  }
  static Attributes describe(const Attr& attr) { return {{"relu", attr.relu}}; }
  static int summed_input(const Attr& attr, const Shape&) { return attr.relu ? -1 : 2; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor y = product(in[0], in[1].t(), in[0].dtype(),
                             {.bias = in[2].defined() ? in[2].contiguous() : Tensor(),
                              .activation = attr.relu ? Activation::relu : Activation::none,
                              .b_is_weight = true,
                              .aligned_rows = ctx.recording() && !attr.relu});
    save_factors(ctx, in[0], in[1]);
    if (attr.relu) ctx.save_output(y);
    return y;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    Tensor g = grads[0];
    Tensors result(3);
    if (grad_enabled()) {
      if (attr.relu) g = where(ctx.saved(kOutput) <= 0, 0.0, g);
      if (ctx.needs(0)) result[0] = mm(g, ctx.saved(kSecondFactor));
      if (ctx.needs(1)) result[1] = mm(g.t(), ctx.saved(kFirstFactor));
      if (ctx.needs(2)) result[2] = sum(g, {0});
      return result;
    }
    ProductSum bias_sum{ctx.needs(2) ? &result[2] : nullptr, ctx.grad_dtype(2)};
    if (attr.relu) {
      const Tensor masked = Tensor::empty(g.shape(), {.dtype = g.dtype(), .device = g.device()});
      activation_gradient(Unary::relu, g, ctx.saved(kOutput), masked, bias_sum);
      g = masked;
    } else if (bias_sum.out) {
      result[2] = take_column_sums(g);
    }
    if (result[2].defined()) bias_sum.out = nullptr;
    g = gemm_ready(g);
    if (ctx.needs(0)) result[0] = product(g, ctx.saved(kSecondFactor), ctx.grad_dtype(0));
    if (ctx.needs(1))
      result[1] = product(g.t(), ctx.saved(kFirstFactor), ctx.grad_dtype(1), {.a_row_sum = bias_sum});
    else if (bias_sum.out)
      result[2] = column_sums(g, bias_sum.dtype);
    return result;
  }
};

// y = beta input + alpha a b, for matrices and batches: dinput = beta g, summed where it broadcasts; da = alpha g b^T, db = alpha
// a^T g.
struct Addmm {
  struct Attr {
    double beta, alpha;
    Shape input_shape;
    bool batched;
  };
  static constexpr OpInfo kInfo[2] = {{.name = "addmm",
                                       .policy = CastPolicy::low,
                                       .doc = "beta input + alpha a b; beta 0 ignores input, NaN and all",
                                       .dtypes = DTypeSet::numbers},
                                      {.name = "baddbmm",
                                       .policy = CastPolicy::low,
                                       .doc = "beta input + alpha a b of batches; beta 0 ignores input, NaN and all",
                                       .dtypes = DTypeSet::numbers}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.batched]; }

  static void check(const Attr& attr, const Tensors& in) {
    const std::string_view name = info_of(attr).name;
    check_inner(name, in[1], in[2], attr.batched ? 3 : 2);
    const Shape out = shape_of(in);
    halfstep::check<ShapeError>(in[0].dim() <= out.size() && broadcast(in[0].shape(), out, name) == out, name, "input ",
                                in[0].shape(), " must broadcast to ", out);
    check_same_dtype(name, in);
    check_factors(name, in[0].dtype(), attr.beta, attr.alpha);
  }
  static Attributes describe(const Attr& attr) { return {{"beta", attr.beta}, {"alpha", attr.alpha}}; }
  // A vector that was added to each row.
  static int summed_input(const Attr& attr, const Shape& output) {
    return !attr.batched && attr.beta == 1 && attr.alpha == 1 && attr.input_shape == Shape{output.back()} ? 0 : -1;
  }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    save_factors(ctx, in[1], in[2]);
    const DType dtype = in[1].dtype();
    const Shape shape = shape_of(in);
    if (attr.beta == 1 && attr.alpha == 1 && !attr.batched && in[0].shape() == Shape{shape.back()} && is_floating(dtype))
      return product(in[1], in[2], dtype, {.bias = in[0].contiguous()});
    Backend& backend = backend_for(in[1].device());
    const Tensor out = Tensor::empty(shape, {.dtype = dtype, .device = in[1].device()});
    if (attr.beta != 0 && attr.alpha == 1 && (dtype == DType::f32 || dtype == DType::f64)) {
      const TensorView input = broadcast_view(in[0], shape);
      if (attr.beta == 1)
        backend.copy(input, out.view());
      else
        backend.binary(Binary::mul, input, broadcast_view(wrapped_number(attr.beta, in[0]), shape), out.view());
      backend.gemm({.a = gemm_ready(in[1]).view(), .b = gemm_ready(in[2]).view(), .c = out.view(), .accumulate = true});
      return out;
    }
    const Tensor y = product(in[1], in[2], widened(dtype));
    if (attr.alpha != 1) y.mul_(number_beside(attr.alpha, y));
    if (attr.beta == 0) return y.to(dtype);
    const Tensor scaled = attr.beta == 1 ? in[0] : in[0].to(y.dtype()).mul(number_beside(attr.beta, y));
    backend.binary(Binary::add, y.view(), broadcast_view(scaled, shape), out.view());
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor& g = grads[0];
    Tensors result(3);
    const bool summed = !grad_enabled() && ctx.needs(0) && summed_input(attr, g.shape()) == 0 && is_floating(g.dtype());
    if (summed) result[0] = take_column_sums(g);
    const bool fused = summed && !result[0].defined() && ctx.needs(2);  // the product that reads the gradient also sums it
    if (ctx.needs(0) && !fused && !result[0].defined()) {
      const Tensor sum = sum_to(g, attr.input_shape);
      result[0] = attr.beta == 1 ? sum : attr.beta == 0 ? zeros_like(sum) : sum * attr.beta;
    }
    const Tensor ga = attr.alpha == 1 ? g : g * attr.alpha;
    const auto times = [&](const Tensor& x, const Tensor& y, size_t input) {
      return !grad_enabled() ? product(x, y, ctx.grad_dtype(input)) : attr.batched ? bmm(x, y) : mm(x, y);
    };
    if (ctx.needs(1)) result[1] = times(ga, swap_last(ctx.saved(kSecondFactor)), 1);
    if (fused) {
      const ProductSum sum{&result[0], ctx.grad_dtype(0)};
      result[2] = product(swap_last(ctx.saved(kFirstFactor)), ga, ctx.grad_dtype(2), {.b_column_sum = sum});
    } else if (ctx.needs(2)) {
      result[2] = times(swap_last(ctx.saved(kFirstFactor)), ga, 2);
    }
    return result;
  }

 private:
  static Shape shape_of(const Tensors& in) {
    Shape shape = in[1].shape();
    shape[in[1].dim() - 1] = in[2].size(-1);
    return shape;
  }
};

constexpr OpInfo kAddbmmInfo{.name = "addbmm",
                             .policy = CastPolicy::low,
                             .doc = "beta input + alpha (the sum of a b over the batch); beta 0 ignores input, NaN and all",
                             .dtypes = DTypeSet::numbers};
constexpr OpInfo kMatmulInfo{.name = "matmul",
                             .policy = CastPolicy::low,
                             .doc = "product of vectors, matrices or broadcast batches; made of mm and bmm",
                             .dtypes = DTypeSet::numbers};

}  // namespace

Tensor mm(const Tensor& a, const Tensor& b) { return call<Mm>({a, b}); }
Tensor bmm(const Tensor& a, const Tensor& b) { return call<Bmm>({a, b}); }
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha) {
  return call<Addmm>({input, a, b}, {beta, alpha, input.shape(), false});
}
Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha) {
  return call<Addmm>({input, a, b}, {beta, alpha, input.shape(), true});
}

Tensor addbmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha) {
  check_same_device("addbmm", {input, a, b});
  check<ShapeError>(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0) && a.size(2) == b.size(1), "addbmm",
                    "needs batches [B, N, M] and [B, M, P], got ", a.shape(), " and ", b.shape());
  const int64_t inner = a.size(0) * a.size(2), n = a.size(1), p = b.size(2);  // [B, n, m] [B, m, p]
  check<ShapeError>(input.dim() <= 2 && broadcast(input.shape(), {n, p}, "addbmm") == Shape{n, p}, "addbmm", "input ",
                    input.shape(), " must broadcast to ", Shape{n, p});
  std::array<Tensor, 3> in{input, a, b};
  apply_policy(kAddbmmInfo, in);
  check_product_dtypes("addbmm", {in[0], in[1], in[2]});
  check_factors("addbmm", in[0].dtype(), beta, alpha);
  const autocast::Off off;
  // Makes the sum over the batch part of one product's sum.
  return addmm(in[0], in[1].permute({1, 0, 2}).reshape({n, inner}), in[2].reshape({inner, p}), beta, alpha);
}

// Computes a single output without its dimension: weight [in], bias [].
Tensor linear_of_vector(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu) {
  check<ShapeError>(!bias.defined() || bias.dim() == 0, "linear", "bias must be [] to match weight ", weight.shape(), ", got ",
                    bias.defined() ? bias.shape() : Shape{});
  return squeeze(linear(x, weight.unsqueeze(0), bias.defined() ? bias.reshape({1}) : bias, relu), -1);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu) {
  check<ShapeError>(x.dim() >= 1, "linear", "input must have at least 1 dimension, got ", x.shape());
  if (weight.dim() == 1) return linear_of_vector(x, weight, bias, relu);
  if (x.dim() == 2) return call<LinearOp>({x, weight, bias}, {relu});
  check<ShapeError>(weight.dim() == 2 && weight.size(1) == x.size(-1), "linear", "weight must be [out, ", x.size(-1),
                    "] to match input ", x.shape(), ", got ", weight.shape());
  Shape out = x.shape();
  out[x.dim() - 1] = weight.size(0);
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) rows *= x.shape()[i];
  return as_result(call<LinearOp>({x.reshape({rows, x.size(-1)}), weight, bias}, {relu}).reshape(out));
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  check<ShapeError>(a.dim() > 0 && b.dim() > 0, "matmul", "both inputs must have at least 1 dimension, got ", a.shape(), " and ",
                    b.shape());
  if (a.dim() == 1 || b.dim() == 1) {  // a vector becomes a matrix of one row or column; the extra dimension is dropped later
    const int last = b.dim() == 1 ? -1 : -2;
    check<ShapeError>(a.size(-1) == b.size(last), "matmul", "inner sizes must match, got ", a.shape(), " and ", b.shape());
    if (a.dim() == 1 && b.dim() == 1) return dot_rows(a, b);
    if (a.dim() == 2) return mv(a, b);
    if (b.dim() == 2) return mv(b.t(), a);
    const Tensor y = matmul(a.dim() == 1 ? a.unsqueeze(0) : a, b.dim() == 1 ? b.unsqueeze(1) : b);
    return as_result(a.dim() == 1 ? y.squeeze(-2) : y.squeeze(-1));
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
  if (b.dim() == 2) return as_result(mm(a.reshape({batches * m, k}), b).reshape(with(m, n)));  // one tall product
  // Keeps a tensor that is one batch already, because a parameter's 16-bit copy is found by the parameter itself.
  const auto batch = [&](const Tensor& t, int64_t r, int64_t c) {
    return t.dim() == 3 && t.size(0) == batches ? t : t.expand(with(r, c)).reshape({batches, r, c});
  };
  return as_result(bmm(batch(a, m, k), batch(b, k, n)).reshape(with(m, n)));
}

Tensor Tensor::matmul(const Tensor& other) const { return halfstep::matmul(*this, other); }
Tensor Tensor::mm(const Tensor& other) const { return halfstep::mm(*this, other); }
Tensor Tensor::bmm(const Tensor& other) const { return halfstep::bmm(*this, other); }
Tensor Tensor::addmm(const Tensor& a, const Tensor& b, double beta, double alpha) const {
  return halfstep::addmm(*this, a, b, beta, alpha);
}
Tensor Tensor::addbmm(const Tensor& a, const Tensor& b, double beta, double alpha) const {
  return halfstep::addbmm(*this, a, b, beta, alpha);
}
Tensor Tensor::baddbmm(const Tensor& a, const Tensor& b, double beta, double alpha) const {
  return halfstep::baddbmm(*this, a, b, beta, alpha);
}
const Tensor& Tensor::addmm_(const Tensor& a, const Tensor& b, double beta, double alpha) const& {
  const autocast::Off off;
  return assign_in_place(*this, halfstep::addmm(*this, a, b, beta, alpha), "addmm_");
}
const Tensor& Tensor::baddbmm_(const Tensor& a, const Tensor& b, double beta, double alpha) const& {
  const autocast::Off off;
  return assign_in_place(*this, halfstep::baddbmm(*this, a, b, beta, alpha), "baddbmm_");
}

void add_products(OpList& list) {
  list.add(Mm::info, [](Args& a) { return mm(a.tensor(0), a.tensor(1)); });
  list.add(Bmm::info, [](Args& a) { return bmm(a.tensor(0), a.tensor(1)); });
  list.add(kMatmulInfo, [](Args& a) { return matmul(a.tensor(0), a.tensor(1)); });
  list.add(LinearOp::info, [](Args& a) { return linear(a.tensor(0), a.tensor(1), a.tensor_or_none(2), a.flag("relu", false)); });
  list.add(Addmm::kInfo[0],
           [](Args& a) { return addmm(a.tensor(0), a.tensor(1), a.tensor(2), a.number("beta", 1), a.number("alpha", 1)); });
  list.add(Addmm::kInfo[1],
           [](Args& a) { return baddbmm(a.tensor(0), a.tensor(1), a.tensor(2), a.number("beta", 1), a.number("alpha", 1)); });
  list.add(kAddbmmInfo,
           [](Args& a) { return addbmm(a.tensor(0), a.tensor(1), a.tensor(2), a.number("beta", 1), a.number("alpha", 1)); });
  list.alias("__matmul__", "matmul");
}

}  // namespace halfstep
