// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/reduce/moments.h"

#include <algorithm>

#include "framework/ops/core/call.h"
#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/reduce/reductions.h"

namespace halfstep {
namespace {

struct Prod {
  struct Attr {
    std::optional<int64_t> dim;
    bool keepdim;
    std::optional<DType> dtype;

    Dims dims() const { return dim ? Dims{*dim} : Dims(); }
  };
  static constexpr OpInfo info{.name = "prod",
                               .policy = CastPolicy::f32_output,
                               .doc = "product over a dimension or all; integers in int64",
                               .dtypes = DTypeSet::any,
                               .takes_dtype = true};

  static Attributes describe(const Attr& attr) { return {{"dims", attr.dims()}, {"keepdim", attr.keepdim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    ctx.save(in[0]);
    return run_reduce(Reduce::prod, in[0], reduced(in[0].shape(), attr.dims(), "prod"), attr.keepdim, sum_dtype(in[0], attr.dtype));
  }
  // Returns g times the product of the other elements: without zeros y / x; a single zero gets the product of the rest, and all
  // others get 0.
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor x = widened(ctx.saved()), zero = eq(x, 0);
    const ReducedShapes shapes = reduced(x.shape(), attr.dims(), "prod");
    const Tensor zeros = sum(zero, attr.dims(), true);
    const Tensor factors = where(zero, 1, x);
    const Tensor rest = run_reduce(Reduce::prod, factors, shapes, true, x.dtype()) * grads[0].reshape(shapes.kept);
    return {where(zero, where(eq(zeros, 1), rest, 0), where(eq(zeros, 0), rest, 0)) / factors};
  }
  // Multiplies halves until one is left.
  static Tensor composite(const Attr& attr, const Tensors& in) {
    const ReducedShapes shapes = reduced(in[0].shape(), attr.dims(), "prod");
    Tensor x = widened(in[0]);
    if (!attr.dim || x.dim() == 0) x = x.reshape({-1});
    const int64_t dim = attr.dim && in[0].dim() > 0 ? *attr.dim : 0;
    if (x.size(dim) == 0) return sum(x, {dim}).reshape(attr.keepdim ? shapes.kept : shapes.dropped) + 1;
    for (int64_t n = x.size(dim); n > 1; n = x.size(dim)) {
      const int64_t half = n / 2;
      const Tensor y = x.narrow(dim, 0, half) * x.narrow(dim, half, half);
      x = n % 2 ? cat({y, x.narrow(dim, n - 1, 1)}, dim) : y;
    }
    return x.reshape(attr.keepdim ? shapes.kept : shapes.dropped);
  }
};

struct Variance {
  struct Attr {
    bool root, with_mean;  // root: std instead of var
    Dims dims;
    double correction;
    bool keepdim;
  };
  enum Saved : size_t { kX, kMean, kStd };  // kStd: only for the root
  static constexpr OpInfo kInfo[4] = {{.name = "var", .doc = "sum (x - mean)^2 / max(0, n - correction)"},
                                      {.name = "std", .doc = "the square root of var; no gradient where it is 0"},
                                      {.name = "var_mean", .doc = "var and mean"},
                                      {.name = "std_mean", .doc = "std and mean"}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[(attr.with_mean ? 2 : 0) + (attr.root ? 1 : 0)]; }
  static void check(const Attr& attr, const Tensors& in) { check_floating(info_of(attr).name, in); }

  static Attributes describe(const Attr& attr) {
    return {{"dims", attr.dims}, {"correction", attr.correction}, {"keepdim", attr.keepdim}};
  }
  static Tensors forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor& x = in[0];
    const ReducedShapes shapes = reduced(x.shape(), attr.dims, info_of(attr).name);
    const DType wide = widened(x.dtype());
    const auto make = [&](DType dtype) { return Tensor::empty(shapes.kept, {.dtype = dtype, .device = x.device()}); };
    const Tensor mean = attr.with_mean || ctx.recording() ? make(wide) : Tensor(), var = make(attr.root ? wide : x.dtype());
    backend_for(x.device()).variance(x.view(), attr.correction, mean.defined() ? mean.view() : TensorView{}, var.view());
    if (attr.root) var.sqrt_();
    // Copies handles, because a node must not hold its own output.
    ctx.save(x);
    if (ctx.recording()) ctx.save(mean.detach());
    if (attr.root) ctx.save(var.detach());
    Tensors out{with_keepdim(var.to(x.dtype()), shapes, attr.keepdim)};
    if (attr.with_mean) out.push_back(with_keepdim(mean.to(x.dtype()), shapes, attr.keepdim));
    return out;
  }

  // Returns g 2 (x - mean) / (n - correction), for std divided by 2 std, plus g_mean / n.
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const bool recorded = grad_enabled();
    const Tensor given = ctx.saved(kX), x = recorded ? widened(given) : given;
    const ReducedShapes shapes = reduced(x.shape(), attr.dims, info_of(attr).name);
    const double n = double(x.numel()) / double(std::max<int64_t>(1, numel(shapes.kept)));
    Tensor dx;
    if (grads[0].defined()) {
      const Tensor mean = recorded ? halfstep::mean(x, attr.dims, true) : ctx.saved(kMean);
      Tensor scale = widened(grads[0]).reshape(shapes.kept) * (2 / std::max(0.0, n - attr.correction));
      if (attr.root) {
        const Tensor y = recorded ? halfstep::std(x, attr.dims, attr.correction, true) : ctx.saved(kStd);
        const Tensor flat = eq(y, 0);
        scale = where(flat, 0, scale / where(flat, 1, 2 * y));
      }
      dx = (x - mean) * scale;
    }
    if (grads.size() > 1 && grads[1].defined()) {
      const Tensor even = (widened(grads[1]) / n).reshape(shapes.kept);
      dx = dx.defined() ? dx + even : even.expand(x.shape());
    }
    return {dx};
  }
};

struct LogSumExp {
  struct Attr {
    Dims dims;
    bool keepdim;
  };
  enum Saved : size_t { kX, kY };
  static constexpr OpInfo info{
      .name = "logsumexp", .policy = CastPolicy::f32, .doc = "ln sum e^x over dimensions", .dtypes = DTypeSet::any};

  static Attributes describe(const Attr& attr) { return {{"dims", attr.dims}, {"keepdim", attr.keepdim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor& x = in[0];
    const ReducedShapes shapes = reduced(x.shape(), attr.dims, "logsumexp");
    // 16-bit values are widened by the difference, not by a copy of x.
    const Tensor top =
        widened(x.numel() == 0 ? zeros(shapes.kept, {.dtype = x.dtype(), .device = x.device()}) : amax(x, attr.dims, true));
    const Tensor shift = where(isfinite(top), top, 0);
    const Tensor y = sum((x - shift).exp_(), attr.dims, true).log_() + shift;
    ctx.save(in[0]);
    ctx.save(y.detach());
    return with_keepdim(y.to(in[0].dtype()), shapes, attr.keepdim);
  }
  // Returns g e^(x - y).
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor x = ctx.saved(kX);
    if (!grad_enabled()) {
      const Tensor y = ctx.saved(kY);
      return {(x - y).exp_().mul_(widened(grads[0]).reshape(y.shape()))};
    }
    const Tensor wide = widened(x), y = logsumexp(wide, attr.dims, true);
    return {exp(wide - y) * widened(grads[0]).reshape(y.shape())};
  }
};

constexpr OpInfo kCountInfo{
    .name = "count_nonzero", .doc = "how many elements are not 0", .differentiable = false, .dtypes = DTypeSet::any};
constexpr OpInfo kNansumInfo{.name = "nansum", .doc = "sum of the elements that are not NaN", .dtypes = DTypeSet::any};
constexpr OpInfo kNanmeanInfo{.name = "nanmean", .doc = "mean of the elements that are not NaN"};

Tensor without_nan(const Tensor& x) { return x.is_floating_point() ? where(ne(x, x), 0, x) : x; }

std::pair<Tensor, Tensor> pair_of(const Tensors& t) { return {t[0], t[1]}; }

}  // namespace

Tensor prod(const Tensor& x, std::optional<int64_t> dim, bool keepdim, std::optional<DType> dtype) {
  if (dim) dim = wrap_dim(*dim, x.dim(), "prod");
  return call<Prod>({before_sum(x, dtype)}, {dim, keepdim, dtype});
}
Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return call<Variance>({x}, {false, false, dims, correction, keepdim})[0];
}
Tensor std(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return call<Variance>({x}, {true, false, dims, correction, keepdim})[0];
}
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return pair_of(call<Variance>({x}, {false, true, dims, correction, keepdim}));
}
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return pair_of(call<Variance>({x}, {true, true, dims, correction, keepdim}));
}
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  return call<LogSumExp>({x.is_floating_point() ? x : x.to(DType::f32)}, {dims, keepdim});
}
Tensor count_nonzero(const Tensor& x, const Dims& dims) { return sum(ne(x, 0), dims); }
Tensor nansum(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  const autocast::Off off;
  return sum(without_nan(x), dims, keepdim, dtype);
}
Tensor nanmean(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  check_floating("nanmean", {x});
  const autocast::Off off;
  const Tensor wide = widened(x);
  return (sum(without_nan(wide), dims, keepdim, dtype == DType::f64 ? dtype : std::nullopt) / sum(eq(wide, wide), dims, keepdim))
      .to(dtype.value_or(x.dtype()));
}

Tensor Tensor::prod(std::optional<int64_t> dim, bool keepdim, std::optional<DType> dtype) const {
  return halfstep::prod(*this, dim, keepdim, dtype);
}
Tensor Tensor::var(const Dims& dims, double correction, bool keepdim) const {
  return halfstep::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Dims& dims, double correction, bool keepdim) const {
  return halfstep::std(*this, dims, correction, keepdim);
}
Tensor Tensor::logsumexp(const Dims& dims, bool keepdim) const { return halfstep::logsumexp(*this, dims, keepdim); }

void add_moments(OpList& list) {
  list.add(Prod::info, [](Args& a) { return prod(a.tensor(0), a.integer_or_none("dim"), a.flag("keepdim", false), a.dtype()); });
  const auto add_variance = [&](bool root, bool with_mean) {
    list.add(Variance::info_of({root, with_mean, {}, 1, false}), [root, with_mean](Args& a) {
      const double correction = a.has("unbiased") ? double(a.flag("unbiased")) : a.number("correction", 1);
      return call<Variance>({a.tensor(0)}, {root, with_mean, a.ints("dim", Dims()), correction, a.flag("keepdim", false)});
    });
  };
  for (bool root : {false, true}) {
    for (bool with_mean : {false, true}) add_variance(root, with_mean);
  }
  list.add(LogSumExp::info, [](Args& a) { return logsumexp(a.tensor(0), a.ints("dim"), a.flag("keepdim", false)); });
  list.add(kCountInfo, [](Args& a) { return count_nonzero(a.tensor(0), a.ints("dim", Dims())); });
  list.add(kNansumInfo, [](Args& a) { return nansum(a.tensor(0), a.ints("dim", Dims()), a.flag("keepdim", false), a.dtype()); });
  list.add(kNanmeanInfo, [](Args& a) { return nanmean(a.tensor(0), a.ints("dim", Dims()), a.flag("keepdim", false), a.dtype()); });
}

Tensor Tensor::count_nonzero(const Dims& dims) const { return halfstep::count_nonzero(*this, dims); }
Tensor Tensor::nanmean(const Dims& dims, bool keepdim) const { return halfstep::nanmean(*this, dims, keepdim); }
Tensor Tensor::nansum(const Dims& dims, bool keepdim) const { return halfstep::nansum(*this, dims, keepdim); }

}  // namespace halfstep
