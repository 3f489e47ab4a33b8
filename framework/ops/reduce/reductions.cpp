// SPDX-License-Identifier: Apache-2.0
// Sums, means and extremes.
#include "framework/ops/reduce/reductions.h"

#include <algorithm>

#include "framework/ops/core/call.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

// Returns which dimensions are reduced; all for {}.
std::array<bool, kMaxDims> mask_of(const Dims& dims, int rank, std::string_view op) {
  std::array<bool, kMaxDims> mask{};
  if (dims.empty()) mask.fill(true);
  for (int64_t d : dims) {
    const int wrapped = wrap_dim(d, rank, op);
    check<ValueError>(!mask[size_t(wrapped)], op, "dimension ", d, " appears twice in ", dims);
    mask[size_t(wrapped)] = true;
  }
  return mask;
}

}  // namespace

ReducedShapes reduced(const Shape& shape, const Dims& dims, std::string_view op) {
  const auto mask = mask_of(dims, shape.size(), op);
  ReducedShapes shapes;
  for (int i = 0; i < shape.size(); ++i) {
    shapes.kept.push_back(mask[size_t(i)] ? 1 : shape[i]);
    if (!mask[size_t(i)]) shapes.dropped.push_back(shape[i]);
  }
  return shapes;
}

Tensor with_keepdim(const Tensor& out, const ReducedShapes& shapes, bool keepdim) {
  return keepdim ? out : out.alias(shapes.dropped, contiguous_strides(shapes.dropped));
}

Tensor run_reduce(Reduce op, const Tensor& x, const ReducedShapes& shapes, bool keepdim, DType dtype) {
  const Tensor out = Tensor::empty(shapes.kept, {.dtype = dtype, .device = x.device()});
  backend_for(x.device()).reduce(op, x.view(), out.view());
  return with_keepdim(out, shapes, keepdim);
}

DType sum_dtype(const Tensor& x, const std::optional<DType>& dtype) {
  return dtype.value_or(x.is_floating_point() ? x.dtype() : DType::i64);
}

// Kernels accumulate in the precision of their input, so a float64 result needs a float64 input. For an integer result, fractions
// are dropped first.
Tensor before_sum(const Tensor& x, std::optional<DType> dtype) {
  return dtype && (dtype == DType::f64 || (x.is_floating_point() && !is_floating(*dtype))) ? x.to(*dtype) : x;
}

Tensor share_gradient(const Tensor& x, const Tensor& value, const Tensor& grad, const Dims& dims) {
  const Tensor elements = x.detach(), extreme = value.detach();
  // If the extreme is NaN, the gradient goes to the NaN elements, which are the ones that differ from themselves.
  const Tensor hit = logical_or(eq(elements, extreme), logical_and(ne(elements, elements), ne(extreme, extreme))).to(grad.dtype());
  return hit * (grad / hit.sum(dims, true));
}

namespace {

struct SumAttr {
  Dims dims;
  bool keepdim = false;
  std::optional<DType> dtype;
  Shape from;
};

// Returns the gradient of a sum: repeated over the summed elements.
Tensor spread(const Tensor& g, const SumAttr& attr) {
  return g.reshape(reduced(attr.from, attr.dims, "sum").kept).expand(attr.from);
}

struct Sum {
  using Attr = SumAttr;
  static constexpr OpInfo info{.name = "sum",
                               .policy = CastPolicy::f32_output,
                               .doc = "sum over dimensions; integers in int64",
                               .dtypes = DTypeSet::any,
                               .takes_dtype = true};
  static Attributes describe(const Attr& attr) { return {{"dims", attr.dims}, {"keepdim", attr.keepdim}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    return run_reduce(Reduce::sum, in[0], reduced(attr.from, attr.dims, "sum"), attr.keepdim, sum_dtype(in[0], attr.dtype));
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) { return {spread(grads[0], attr)}; }
};

struct MeanAttr : SumAttr {};
struct Mean {
  using Attr = MeanAttr;
  static constexpr OpInfo info{.name = "mean", .policy = CastPolicy::keep, .doc = "mean over dimensions", .takes_dtype = true};
  static void check(const Attr& attr, const Tensors& in) {
    halfstep::check<DTypeError>(is_floating(attr.dtype.value_or(in[0].dtype())), "mean", "needs a floating input or dtype, got ",
                                in[0].dtype());
  }
  static Attributes describe(const Attr& attr) { return {{"dims", attr.dims}, {"keepdim", attr.keepdim}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    return run_reduce(Reduce::mean, in[0], reduced(attr.from, attr.dims, "mean"), attr.keepdim, attr.dtype.value_or(in[0].dtype()));
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    const double n = std::max(1.0, double(numel(attr.from)) / double(std::max<int64_t>(1, grads[0].numel())));
    return {spread(grads[0] / n, attr)};
  }
};

struct ExtremeAttr {
  bool largest;
  Dims dims;
  bool keepdim = false;
};
struct Extreme {
  using Attr = ExtremeAttr;
  enum Saved : size_t { kX, kExtreme };
  static constexpr OpInfo kInfo[2] = {
      {.name = "amin", .doc = "smallest over dimensions; ties share the gradient", .dtypes = DTypeSet::any},
      {.name = "amax", .doc = "largest over dimensions; ties share the gradient", .dtypes = DTypeSet::any}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.largest]; }
  static void check(const Attr& attr, const Tensors& in) {
    halfstep::check<ShapeError>(in[0].numel() > 0 || numel(reduced(in[0].shape(), attr.dims, info_of(attr).name).dropped) == 0,
                                info_of(attr).name, "has no value over an empty dimension, got ", in[0].shape());
  }
  static Attributes describe(const Attr& attr) { return {{"dims", attr.dims}, {"keepdim", attr.keepdim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor out = run_reduce(attr.largest ? Reduce::max : Reduce::min, in[0],
                                  reduced(in[0].shape(), attr.dims, info_of(attr).name), attr.keepdim, in[0].dtype());
    ctx.save(in[0]);
    ctx.save_output(out);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor x = ctx.saved(kX);
    const Shape kept = reduced(x.shape(), attr.dims, "amax").kept;
    return {share_gradient(x, ctx.saved(kExtreme).reshape(kept), grads[0].reshape(kept), attr.dims)};
  }
};

struct ArgExtreme {
  struct Attr {
    bool largest;
    int dim;
    bool keepdim;
  };
  static constexpr OpInfo kInfo[2] = {
      {.name = "argmin", .doc = "index of the first smallest", .differentiable = false, .dtypes = DTypeSet::numbers},
      {.name = "argmax", .doc = "index of the first largest", .differentiable = false, .dtypes = DTypeSet::numbers}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.largest]; }
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}, {"keepdim", attr.keepdim}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor& x = in[0];
    halfstep::check<ShapeError>(x.dim() == 0 || x.shape()[attr.dim] > 0, info_of(attr).name,
                                "has no value over an empty dimension, got ", x.shape());
    if (x.dim() == 0) return zeros({}, {.dtype = DType::i64, .device = x.device()});
    Shape kept = x.shape(), dropped = x.shape();
    kept[attr.dim] = 1;
    dropped.erase(attr.dim);
    const Tensor out = Tensor::empty(kept, {.dtype = DType::i64, .device = x.device()});
    backend_for(x.device()).arg_reduce(attr.largest, x.view(), attr.dim, {}, out.view());
    return attr.keepdim ? out : out.alias(dropped, contiguous_strides(dropped));
  }
  static Tensors backward(const BackwardContext&, const Attr&, const Tensors&) { return {}; }
};

struct AnyAll {
  struct Attr {
    bool all;
    Dims dims;
    bool keepdim;
  };
  static constexpr OpInfo kInfo[2] = {
      {.name = "any", .doc = "is any element nonzero?", .differentiable = false, .dtypes = DTypeSet::any},
      {.name = "all", .doc = "are all elements nonzero?", .differentiable = false, .dtypes = DTypeSet::any}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.all]; }
  static Attributes describe(const Attr& attr) { return {{"dims", attr.dims}, {"keepdim", attr.keepdim}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const DType dtype = in[0].dtype() == DType::u8 ? DType::u8 : DType::boolean;  // as in PyTorch
    return run_reduce(attr.all ? Reduce::all : Reduce::any, in[0], reduced(in[0].shape(), attr.dims, info_of(attr).name),
                      attr.keepdim, dtype);
  }
  static Tensors backward(const BackwardContext&, const Attr&, const Tensors&) { return {}; }
};

Tensor arg_extreme(bool largest, const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  if (!dim) {
    const Tensor i = call<ArgExtreme>({x.detach().reshape({-1})}, {largest, 0, false});
    return keepdim ? i.reshape(Dims::filled(x.dim(), 1)) : i;
  }
  return call<ArgExtreme>({x}, {largest, wrap_dim(*dim, x.dim(), largest ? "argmax" : "argmin"), keepdim});
}

constexpr OpInfo kExtremeInfo[2] = {{.name = "min",
                                     .doc = "smallest of all, or values and indices of the first smallest along a dimension",
                                     .dtypes = DTypeSet::any},
                                    {.name = "max",
                                     .doc = "largest of all, or values and indices of the first largest along a dimension",
                                     .dtypes = DTypeSet::any}};
constexpr OpInfo kAminmaxInfo{.name = "aminmax", .doc = "smallest and largest over a dimension or all", .dtypes = DTypeSet::any};

ValuesIndices extreme_along(bool largest, const Tensor& x, int64_t dim, bool keepdim) {
  wrap_dim(dim, x.dim(), largest ? "max" : "min");
  if (x.dim() == 0) return {x.clone(), zeros({}, {.dtype = DType::i64, .device = x.device()})};
  const Tensor index = arg_extreme(largest, x, dim, true);
  const Tensor value = gather(x, dim, index);
  return keepdim ? std::pair{value, index} : std::pair{value.squeeze(dim), index.squeeze(dim)};
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  return call<Sum>({before_sum(x, dtype)}, {dims, keepdim, dtype, x.shape()});
}
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  return call<Mean>({before_sum(x, dtype)}, {{dims, keepdim, dtype, x.shape()}});
}
Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) { return call<Extreme>({x}, {true, dims, keepdim}); }
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) { return call<Extreme>({x}, {false, dims, keepdim}); }
Tensor max(const Tensor& x) { return amax(x); }
Tensor min(const Tensor& x) { return amin(x); }
ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim) { return extreme_along(true, x, dim, keepdim); }
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim) { return extreme_along(false, x, dim, keepdim); }
Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) { return arg_extreme(true, x, dim, keepdim); }
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim) { return arg_extreme(false, x, dim, keepdim); }
Tensor any(const Tensor& x, const Dims& dims, bool keepdim) { return call<AnyAll>({x}, {false, dims, keepdim}); }
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) { return call<AnyAll>({x}, {true, dims, keepdim}); }

MinMax aminmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  const Dims dims = dim ? Dims{*dim} : Dims();
  return {amin(x, dims, keepdim), amax(x, dims, keepdim)};
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Dims dims;
  for (int i = 0; i < x.dim(); ++i) {
    const int s = i - (x.dim() - shape.size());
    if (s < 0 || (shape[s] == 1 && x.shape()[i] != 1)) dims.push_back(i);
  }
  return (dims.empty() ? x : sum(x, dims, true)).reshape(shape);
}

Tensor Tensor::sum(const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return halfstep::sum(*this, dims, keepdim, dtype);
}
Tensor Tensor::mean(const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return halfstep::mean(*this, dims, keepdim, dtype);
}
Tensor Tensor::max() const { return halfstep::max(*this); }
ValuesIndices Tensor::max(int64_t dim, bool keepdim) const { return halfstep::max(*this, dim, keepdim); }
Tensor Tensor::min() const { return halfstep::min(*this); }
ValuesIndices Tensor::min(int64_t dim, bool keepdim) const { return halfstep::min(*this, dim, keepdim); }
Tensor Tensor::amax(const Dims& dims, bool keepdim) const { return halfstep::amax(*this, dims, keepdim); }
Tensor Tensor::amin(const Dims& dims, bool keepdim) const { return halfstep::amin(*this, dims, keepdim); }
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim) const { return halfstep::argmin(*this, dim, keepdim); }
Tensor Tensor::any(const Dims& dims, bool keepdim) const { return halfstep::any(*this, dims, keepdim); }
Tensor Tensor::all(const Dims& dims, bool keepdim) const { return halfstep::all(*this, dims, keepdim); }
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim) const { return halfstep::argmax(*this, dim, keepdim); }

namespace {

// Registers PyTorch's three forms: of two tensors, of all elements, along a dimension.
template <bool Largest>
Tensors extreme_by_name(Args& a) {
  const Tensor x = a.tensor(0);
  if (a.has_tensor(1)) return {Largest ? maximum(x, a.tensor(1)) : minimum(x, a.tensor(1))};
  const std::optional<int64_t> dim = a.integer_or_none("dim");
  if (!dim) return {Largest ? max(x) : min(x)};
  const auto [values, indices] = extreme_along(Largest, x, *dim, a.flag("keepdim", false));
  return {values, indices};
}

}  // namespace

void add_reductions(OpList& list) {
  list.add(Sum::info, [](Args& a) { return sum(a.tensor(0), a.ints("dim", Dims()), a.flag("keepdim", false), a.dtype()); });
  list.add(Mean::info, [](Args& a) { return mean(a.tensor(0), a.ints("dim", Dims()), a.flag("keepdim", false), a.dtype()); });
  list.add(Extreme::kInfo[0], [](Args& a) { return amin(a.tensor(0), a.ints("dim", Dims()), a.flag("keepdim", false)); });
  list.add(Extreme::kInfo[1], [](Args& a) { return amax(a.tensor(0), a.ints("dim", Dims()), a.flag("keepdim", false)); });
  list.add(ArgExtreme::kInfo[0], [](Args& a) { return argmin(a.tensor(0), a.integer_or_none("dim"), a.flag("keepdim", false)); });
  list.add(ArgExtreme::kInfo[1], [](Args& a) { return argmax(a.tensor(0), a.integer_or_none("dim"), a.flag("keepdim", false)); });
  list.add(AnyAll::kInfo[0], [](Args& a) { return any(a.tensor(0), a.ints("dim", Dims()), a.flag("keepdim", false)); });
  list.add(AnyAll::kInfo[1], [](Args& a) { return all(a.tensor(0), a.ints("dim", Dims()), a.flag("keepdim", false)); });
  list.add(kExtremeInfo[0], extreme_by_name<false>);
  list.add(kExtremeInfo[1], extreme_by_name<true>);
  list.add(kAminmaxInfo, [](Args& a) -> Tensors {
    const auto [low, high] = aminmax(a.tensor(0), a.integer_or_none("dim"), a.flag("keepdim", false));
    return {low, high};
  });
}

MinMax Tensor::aminmax(std::optional<int64_t> dim, bool keepdim) const {
  return halfstep::aminmax(*this, dim, keepdim);
}

}  // namespace halfstep
