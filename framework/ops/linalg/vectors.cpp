// SPDX-License-Identifier: Apache-2.0
// Products with vectors: matrix products of one row or column, and sums of products.
#include "framework/ops/linalg/vectors.h"

#include <algorithm>

#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/products.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

Tensor as_column(const Tensor& v) { return v.alias({v.size(0), 1}, {v.strides()[0], 1}); }
Tensor as_row(const Tensor& v) { return v.alias({1, v.size(0)}, {v.size(0), v.strides()[0]}); }

struct Mv {
  struct Attr {};
  static constexpr OpInfo info{
      .name = "mv", .policy = CastPolicy::low, .doc = "matrix times vector, [N, M] [M]", .dtypes = DTypeSet::numbers};

  static void check(const Attr&, const Tensors& in) {
    const Tensor &mat = in[0], &vec = in[1];
    halfstep::check<ShapeError>(mat.dim() == 2 && vec.dim() == 1 && mat.size(1) == vec.size(0), "mv",
                                "needs a matrix [N, M] and a vector [M], got ", mat.shape(), " and ", vec.shape());
    check_product_dtypes("mv", in);
  }
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    save_factors(ctx, in[0], in[1]);
    return product(in[0], as_column(in[1]), in[0].dtype()).alias({in[0].size(0)}, {1});
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor& g = grads[0];
    Tensors result(2);
    if (grad_enabled()) {
      if (ctx.needs(0)) result[0] = outer(g, ctx.saved(kSecondFactor));
      if (ctx.needs(1)) result[1] = mv(ctx.saved(kFirstFactor).t(), g);
      return result;
    }
    if (ctx.needs(0)) result[0] = product(as_column(g), as_row(ctx.saved(kSecondFactor)), ctx.grad_dtype(0));
    if (ctx.needs(1)) {
      const Tensor mat = ctx.saved(kFirstFactor);
      result[1] = product(mat.t(), as_column(g), ctx.grad_dtype(1)).alias({mat.size(1)}, {1});
    }
    return result;
  }
};

// The dot product of vectors [N], or of the rows of matrices [B, N].
struct Dot {
  enum class Form : uint8_t { dot, vdot, rows };
  struct Attr {
    Form form;
  };
  static constexpr OpInfo kInfo[3] = {
      {.name = "dot", .policy = CastPolicy::promote, .doc = "sum a b of two vectors", .dtypes = DTypeSet::numbers},
      {.name = "vdot", .policy = CastPolicy::promote, .doc = "sum a b of two vectors", .dtypes = DTypeSet::numbers},
      {.name = "linalg_vecdot", .policy = CastPolicy::low, .doc = "sum a b along a dimension"}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[size_t(attr.form)]; }

  static void check(const Attr& attr, const Tensors& in) {
    const std::string_view name = info_of(attr).name;
    halfstep::check<ShapeError>(attr.form == Form::rows || (in[0].dim() == 1 && in[1].dim() == 1 && in[0].size(0) == in[1].size(0)),
                                name, "needs two vectors of one length, got ", in[0].shape(), " and ", in[1].shape());
    check_product_dtypes(name, in);
  }
  static Attributes describe(const Attr&) { return {}; }  // nothing besides the name
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    save_factors(ctx, in[0], in[1]);
    const DType dtype = in[0].dtype();
    if (in[0].dim() == 1) return of_vectors(in[0], in[1]).alias({}, {});
    const Tensor a = in[0].contiguous(), b = in[1].contiguous();
    const int64_t rows = a.size(0), n = a.size(1);
    return product(a.alias({rows, 1, n}, {n, n, 1}), b.alias({rows, n, 1}, {n, 1, 1}), dtype).alias({rows}, {1});
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    Tensors result(2);
    for (size_t i = 0; i < 2; ++i) {
      if (!ctx.needs(i)) continue;
      const Tensor other = ctx.saved(i == 0 ? kSecondFactor : kFirstFactor);
      const Tensor g = other.dim() == 1 ? grads[0] : grads[0].unsqueeze(1);
      if (grad_enabled()) {
        result[i] = g * other;
        continue;
      }
      result[i] = Tensor::empty(other.shape(), {.dtype = ctx.grad_dtype(i), .device = other.device()});
      backend_for(other.device()).binary(Binary::mul, broadcast_view(g, other.shape()), other.view(), result[i].view());
    }
    return result;
  }

 private:
  // Splits long vectors into parts: many short sums keep every thread busy, and are more accurate than a long one.
  static Tensor of_vectors(const Tensor& given_a, const Tensor& given_b) {
    constexpr int64_t kPart = 8192;  // elements
    const DType dtype = given_a.dtype();
    const int64_t n = given_a.size(0), parts = n / kPart, rest = n - parts * kPart;
    if (parts < 2 || !is_floating(dtype)) return product(as_row(given_a), as_column(given_b), dtype);
    // Kernels do not accept strides of 0.
    const Tensor a = given_a.strides()[0] == 0 ? given_a.contiguous() : given_a,
                 b = given_b.strides()[0] == 0 ? given_b.contiguous() : given_b;
    const DType wide = widened(dtype);
    const int64_t a_step = a.strides()[0], b_step = b.strides()[0];
    const Tensor sums = Tensor::empty({parts + 1}, {.dtype = wide, .device = a.device()});
    Backend& backend = backend_for(a.device());
    const auto part = [&](int64_t first, int64_t count, int64_t length) {
      // Strides of size-1 dimensions are free, except that one of the last two must be 1.
      const Tensor left = a.alias({count, 1, length}, {kPart * a_step, 1, a_step}, first * a_step);
      const Tensor right = b.alias({count, length, 1}, {kPart * b_step, b_step, 1}, first * b_step);
      backend.gemm({.a = left.view(), .b = right.view(), .c = sums.alias({count, 1, 1}, {1, 1, 1}, first / kPart).view()});
    };
    part(0, parts, kPart);
    part(n - rest, 1, rest);
    const Tensor out = Tensor::empty({1}, {.dtype = dtype, .device = a.device()});
    backend.reduce(Reduce::sum, sums.view(), out.view());
    return out;
  }
};

constexpr OpInfo kKronInfo{.name = "kron", .doc = "Kronecker product: blocks a[i, j] b", .dtypes = DTypeSet::any};
constexpr OpInfo kOuterInfo{
    .name = "outer", .policy = CastPolicy::keep, .doc = "a[i] b[j] of two vectors", .dtypes = DTypeSet::any};
constexpr OpInfo kAddmvInfo{.name = "addmv",
                            .policy = CastPolicy::low,
                            .doc = "beta input + alpha mat vec; beta 0 ignores input, NaN and all",
                            .dtypes = DTypeSet::numbers};
constexpr OpInfo kAddrInfo{.name = "addr",
                           .policy = CastPolicy::low,
                           .doc = "beta input + alpha a b^T; beta 0 ignores input, NaN and all",
                           .dtypes = DTypeSet::numbers};

void check_input(std::string_view op, const Tensor& input, const Shape& out) {
  check<ShapeError>(input.dim() <= out.size() && broadcast(input.shape(), out, op) == out, op, "input ", input.shape(),
                    " must broadcast to ", out);
}

}  // namespace

Tensor mv(const Tensor& mat, const Tensor& vec) { return call<Mv>({mat, vec}); }
Tensor dot(const Tensor& a, const Tensor& b) { return call<Dot>({a, b}, {Dot::Form::dot}); }
Tensor vdot(const Tensor& a, const Tensor& b) { return call<Dot>({a, b}, {Dot::Form::vdot}); }
Tensor dot_rows(const Tensor& a, const Tensor& b) { return call<Dot>({a, b}, {Dot::Form::rows}); }

Tensor linalg_vecdot(const Tensor& x, const Tensor& y, int64_t dim) {
  const OpInfo& info = Dot::kInfo[size_t(Dot::Form::rows)];
  check_same_device(info.name, {x, y});
  check<DTypeError>(x.is_floating_point() && y.is_floating_point(), info.name, "needs floating tensors, got ", x.dtype(), " and ",
                    y.dtype());
  Shape shape = broadcast(x.shape(), y.shape(), info.name);
  const int d = wrap_dim(dim, shape.size(), info.name);
  std::array<Tensor, 2> in{x, y};
  apply_policy(info, in);
  check_same_dtype(info.name, {in[0], in[1]});
  const autocast::Off off;
  const DType dtype = in[0].dtype();
  // The gradient of a broadcast operand is a sum: computed in float32, rounded once.
  const bool widens = is_half(dtype) && (x.shape() != shape || y.shape() != shape);
  if (widens)
    for (Tensor& t : in) t = t.to(DType::f32);
  if (shape.empty()) return dot_rows(in[0].reshape({1}), in[1].reshape({1}));
  const int64_t n = shape[d];
  Dims order;
  for (int i = 0; i < shape.size(); ++i)
    if (i != d) order.push_back(i);
  order.push_back(d);
  for (Tensor& t : in) t = t.expand(shape).permute(order);
  shape.erase(d);
  const int64_t rows = numel(shape);
  const Tensor sums =
      shape.empty() ? dot_rows(in[0], in[1]) : dot_rows(in[0].reshape({rows, n}), in[1].reshape({rows, n})).reshape(shape);
  return widens ? sums.to(dtype) : sums;
}

Tensor outer(const Tensor& a, const Tensor& b) {
  check_same_device("outer", {a, b});
  check<ShapeError>(a.dim() == 1 && b.dim() == 1, "outer", "needs two vectors, got ", a.shape(), " and ", b.shape());
  return mul(a.unsqueeze(1), b);
}

Tensor kron(const Tensor& a, const Tensor& b) {
  check_same_device(kKronInfo.name, {a, b});
  const int n = std::max(a.dim(), b.dim());
  check<ShapeError>(2 * n <= kMaxDims, kKronInfo.name, "takes at most ", kMaxDims / 2, " dimensions, got ", a.shape(), " and ",
                    b.shape());
  Shape outer = Shape::filled(2 * n, 1), inner = outer, out = Shape::filled(n, 1);
  for (int d = 0; d < n; ++d) {
    if (const int k = d - n + a.dim(); k >= 0) outer[2 * d] = a.shape()[k];
    if (const int k = d - n + b.dim(); k >= 0) inner[2 * d + 1] = b.shape()[k];
    check<ShapeError>(!__builtin_mul_overflow(outer[2 * d], inner[2 * d + 1], &out[d]), kKronInfo.name, "the result is too large: ",
                      a.shape(), " times ", b.shape());
  }
  return mul(a.reshape(outer), b.reshape(inner)).reshape(out);
}
Tensor Tensor::kron(const Tensor& other) const { return halfstep::kron(*this, other); }

Tensor addmv(const Tensor& input, const Tensor& mat, const Tensor& vec, double beta, double alpha) {
  check_same_device("addmv", {input, mat, vec});
  check<ShapeError>(mat.dim() == 2 && vec.dim() == 1 && mat.size(1) == vec.size(0), "addmv",
                    "needs a matrix [N, M] and a vector [M], got ", mat.shape(), " and ", vec.shape());
  check_input("addmv", input, {mat.size(0)});
  std::array<Tensor, 3> in{input, mat, vec};
  apply_policy(kAddmvInfo, in);
  check_product_dtypes("addmv", {in[0], in[1], in[2]});
  check_factors("addmv", in[0].dtype(), beta, alpha);
  const autocast::Off off;
  return addmm(input.dim() == 0 ? in[0] : in[0].unsqueeze(1), in[1], in[2].unsqueeze(1), beta, alpha).squeeze(1);
}

Tensor addr(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha) {
  check_same_device("addr", {input, a, b});
  check<ShapeError>(a.dim() == 1 && b.dim() == 1, "addr", "needs two vectors, got ", a.shape(), " and ", b.shape());
  check_input("addr", input, {a.size(0), b.size(0)});
  std::array<Tensor, 3> in{input, a, b};
  apply_policy(kAddrInfo, in);
  const autocast::Off off;
  const DType type = result_type({in[0], in[1], in[2]});
  for (Tensor& t : in) t = t.to(type);
  check_product_dtypes("addr", {in[0], in[1], in[2]});
  check_factors("addr", type, beta, alpha);
  return addmm(in[0], in[1].unsqueeze(1), in[2].unsqueeze(0), beta, alpha);
}

Tensor Tensor::mv(const Tensor& vec) const { return halfstep::mv(*this, vec); }
Tensor Tensor::dot(const Tensor& other) const { return halfstep::dot(*this, other); }
Tensor Tensor::vdot(const Tensor& other) const { return halfstep::vdot(*this, other); }
Tensor Tensor::outer(const Tensor& other) const { return halfstep::outer(*this, other); }
Tensor Tensor::addmv(const Tensor& mat, const Tensor& vec, double beta, double alpha) const {
  return halfstep::addmv(*this, mat, vec, beta, alpha);
}
Tensor Tensor::addr(const Tensor& a, const Tensor& b, double beta, double alpha) const {
  return halfstep::addr(*this, a, b, beta, alpha);
}

void add_vectors(OpList& list) {
  list.add(Mv::info, [](Args& a) { return mv(a.tensor(0), a.tensor(1)); });
  list.add(Dot::kInfo[0], [](Args& a) { return dot(a.tensor(0), a.tensor(1)); });
  list.add(Dot::kInfo[1], [](Args& a) { return vdot(a.tensor(0), a.tensor(1)); });
  list.add(Dot::kInfo[2], [](Args& a) { return linalg_vecdot(a.tensor(0), a.tensor(1), a.integer("dim", -1)); });
  list.add(kOuterInfo, [](Args& a) { return outer(a.tensor(0), a.tensor(1)); });
  list.add(kKronInfo, [](Args& a) { return kron(a.tensor(0), a.tensor(1)); });
  list.add(kAddmvInfo,
           [](Args& a) { return addmv(a.tensor(0), a.tensor(1), a.tensor(2), a.number("beta", 1), a.number("alpha", 1)); });
  list.add(kAddrInfo,
           [](Args& a) { return addr(a.tensor(0), a.tensor(1), a.tensor(2), a.number("beta", 1), a.number("alpha", 1)); });
  list.alias("vecdot", "linalg_vecdot");
  list.alias("ger", "outer");
}

}  // namespace halfstep
