// SPDX-License-Identifier: Apache-2.0
// Selects single elements along a dimension; also cat and stack. The gradient of gather is g added to zeros at the places that it
// reads. That of scatter_add is g, and gather(g) for src; that of scatter is g with zeros at its places, and gather(g) for src.
#include <algorithm>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/index/index_ops.h"
#include "framework/ops/index/indices.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

// Throws ShapeError unless index is at most as large as x in every dimension but `dim`, where it may have any size.
void check_shapes(std::string_view op, const Shape& x, const Shape& index, int dim) {
  bool fits = x.size() == index.size();
  for (int i = 0; fits && i < x.size(); ++i) fits = i == dim || index[i] <= x[i];
  check<ShapeError>(fits, op, "index must have the rank of ", x, " and be no larger outside dimension ", dim, ", got ", index);
}

// Returns the checked index, with at least one dimension. An empty one may have any dtype, as in PyTorch.
Tensor line_of_indices(std::string_view op, const Tensor& index) {
  const bool empty = index.defined() && index.numel() == 0;
  return as_line(empty ? index.to(DType::i64) : index_tensor(op, index));
}

// The checked arguments of a scatter: 0-dim tensors as lines, src cut to index's shape.
struct Scattered {
  int dim;
  Tensor index, src;

  Scattered(std::string_view op, const Tensor& x, int64_t along, const Tensor& which, const Tensor& from) {
    check_same_device(op, {x, which, from});
    check<ValueError>(x.defined() && from.defined(), op, "an input is undefined");
    dim = wrap_dim(along, x.dim(), op);
    const Tensor line = as_line(x);
    index = line_of_indices(op, which);
    src = as_line(from);
    check_shapes(op, line.shape(), index.shape(), dim);
    check<ShapeError>(src.dim() == index.dim(), op, "src must have the rank of index ", index.shape(), ", got ", src.shape());
    for (int i = 0; i < src.dim(); ++i) {
      check<ShapeError>(index.shape()[i] <= src.shape()[i], op, "index ", index.shape(), " must not be larger than src ",
                        src.shape());
      if (index.shape()[i] < src.shape()[i]) src = src.narrow(i, 0, index.shape()[i]);
    }
    check_index(op, index, line.shape()[dim]);
  }
};

struct Gather {
  struct Attr {
    int dim;
    Shape from;
  };
  static constexpr OpInfo info{
      .name = "gather", .policy = CastPolicy::keep, .doc = "out[i][j] = x[index[i][j]][j] for dim 0", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor out = Tensor::empty(in[1].shape(), {.dtype = in[0].dtype(), .device = in[0].device()});
    backend_for(out.device()).gather(in[0].view(), attr.dim, in[1].view(), out.view());
    ctx.save(in[1]);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    return {add_at(ctx.saved(), attr, grads[0]), Tensor()};
  }
  static Tensor add_at(const Tensor& index, const Attr& attr, const Tensor& grad);
};

// x may be undefined: zeros of the given shape.
struct ScatterAdd {
  struct Attr {
    int dim;
    Shape shape;
  };
  static constexpr OpInfo info{.name = "scatter_add",
                               .policy = CastPolicy::promote,
                               .doc = "x with src[i][j] added at x[index[i][j]][j] for dim 0",
                               .dtypes = DTypeSet::any};
  static void check(const Attr&, const Tensors& in) { check_same_dtype("scatter_add", {in[0], in[2]}); }
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor out = in[0].defined() ? in[0].clone(MemoryFormat::contiguous)
                                       : zeros(attr.shape, {.dtype = in[2].dtype(), .device = in[2].device()});
    backend_for(out.device()).scatter_add(out.view(), attr.dim, in[1].view(), in[2].view());
    ctx.save(in[1]);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    Tensors result{grads[0], Tensor(), Tensor()};
    if (ctx.needs(2)) result[2] = call<Gather>({grads[0], ctx.saved()}, {attr.dim, attr.shape});
    return result;
  }
};
Tensor Gather::add_at(const Tensor& index, const Attr& attr, const Tensor& grad) {
  return call<ScatterAdd>({Tensor(), index, grad}, {attr.dim, attr.from});
}

struct Scatter {
  struct Attr {
    int dim;
  };
  static constexpr OpInfo info{.name = "scatter",
                               .policy = CastPolicy::keep,
                               .doc = "x with src[i][j] at x[index[i][j]][j] for dim 0",
                               .dtypes = DTypeSet::any};
  static void check(const Attr&, const Tensors& in) { check_same_dtype("scatter", {in[0], in[2]}); }
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor out = in[0].clone(MemoryFormat::contiguous);
    backend_for(out.device()).scatter(out.view(), attr.dim, in[1].view(), in[2].view());
    ctx.save(in[1]);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor& g = grads[0];
    const Tensor index = ctx.saved();
    Tensors result(3);
    if (ctx.needs(0)) result[0] = call<Scatter>({g, index, filled_like(index, g, 0)}, attr);
    if (ctx.needs(2)) result[2] = call<Gather>({g, index}, {attr.dim, g.shape()});
    return result;
  }
  // Returns `value` in index's shape and x's dtype.
  static Tensor filled_like(const Tensor& index, const Tensor& x, Number value) {
    check_fits(info.name, value, x.dtype());
    return scalar(value, {.dtype = x.dtype(), .device = x.device()}).expand(index.shape());
  }
};

struct Cat {
  struct Attr {
    int dim;
    std::vector<int64_t> sizes;
  };
  static constexpr OpInfo info{.name = "cat",
                               .policy = CastPolicy::promote,
                               .doc = "tensors joined along a dimension; dtypes promote",
                               .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    DType dtype = in[0].dtype();
    Shape shape = in[0].shape();
    shape[attr.dim] = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      dtype = promote(dtype, in[i].dtype());
      shape[attr.dim] += attr.sizes[i];
    }
    const MemoryFormat format = in[0].format();
    const Tensor out = Tensor::empty(shape, {.dtype = dtype, .device = in[0].device(), .format = format});
    int64_t at = 0;
    for (const Tensor& t : in) {
      const Tensor part = out.alias(t.shape(), out.strides(), at * out.strides()[attr.dim]);
      backend_for(out.device()).copy(ordered(t, format), ordered(part, format));
      at += t.shape()[attr.dim];
    }
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    Tensors result(attr.sizes.size());
    int64_t at = 0;
    for (size_t i = 0; i < attr.sizes.size(); ++i) {
      if (ctx.needs(i)) result[i] = grads[0].narrow(attr.dim, at, attr.sizes[i]);
      at += attr.sizes[i];
    }
    return result;
  }
};

// Multiplies x by src at the places in index, one slice along dim after the other, because no place occurs twice within a slice.
Tensor multiplied_at(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const bool recorded = should_record(Tensors{x, src});
  Tensor out = clone(x);
  for (int64_t k = 0; k < index.size(dim); ++k) {
    const Tensor i = index.narrow(dim, k, 1), product = gather(out, dim, i) * src.narrow(dim, k, 1);
    if (recorded)
      out = scatter(out, dim, i, product);
    else
      out.scatter_(dim, i, product);
  }
  return out;
}

// Takes the largest of src for each place of x, and of x itself if include_self; NaN counts as largest. The n elements that equal
// the result share its gradient: dx = g [x is one] / n, dsrc = g [src is one] / n at the place that src goes to.
struct ScatterMax {
  struct Attr {
    int dim;
    bool include_self;
  };
  enum Saved : size_t { kIndex, kXShare, kSrcShare };  // shares: 1 / n where the element is one of the n, else 0
  static constexpr OpInfo info{.name = "scatter_reduce",
                               .doc = "sum, prod, mean, amax or amin of all src[i][j] for x[index[i][j]][j], for dim 0",
                               .dtypes = DTypeSet::any};
  static void check(const Attr&, const Tensors& in) { check_same_dtype("scatter_reduce", {in[0], in[2]}); }
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}, {"include_self", attr.include_self}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor &x = in[0], &index = in[1], &src = in[2];
    // scatter keeps the last of several in order along dim; after sorting, that is the largest.
    const auto [ascending, order] = sort(src, attr.dim);
    const Tensor best = scatter(x, attr.dim, gather(index, attr.dim, order), ascending);
    const Tensor reached = scatter(zeros_like(x, DType::boolean), attr.dim, index, 1.0);
    const Tensor out = attr.include_self ? maximum(x, best) : best;
    if (!x.is_floating_point()) return out;
    const auto hit = [](const Tensor& t, const Tensor& top) { return (eq(t, top) | (isnan(t) & isnan(top))); };
    const Tensor x_hit = attr.include_self ? hit(x, out) : ~reached, src_hit = hit(src, gather(out, attr.dim, index)).to(x.dtype());
    const Tensor share = reciprocal(scatter_add(x_hit.to(x.dtype()), attr.dim, index, src_hit));
    ctx.save(index);
    ctx.save(x_hit.to(x.dtype()) * share);
    ctx.save(src_hit * gather(share, attr.dim, index));
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor& g = grads[0];
    return {g * ctx.saved(kXShare), Tensor(), gather(g, attr.dim, ctx.saved(kIndex)) * ctx.saved(kSrcShare)};
  }
};

// Returns whether t is PyTorch's legacy tensor [0], which cat accepts with any shape. It counts only for promotion.
bool is_legacy_empty(const Tensor& t) { return t.dim() == 1 && t.size(0) == 0; }

constexpr OpInfo kStackInfo{.name = "stack",
                            .policy = CastPolicy::promote,
                            .doc = "tensors joined along a new dimension; made of cat",
                            .dtypes = DTypeSet::any};

}  // namespace

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  check_same_device("gather", {x, index});
  const int d = wrap_dim(dim, x.dim(), "gather");
  const Tensor line = as_line(x), i = line_of_indices("gather", index);
  if (i.numel() == 0 && i.dim() != line.dim()) return line.reshape({-1}).narrow(0, 0, 0).reshape(i.shape());  // empty, in any shape
  check_shapes("gather", line.shape(), i.shape(), d);
  if (!i.device().is_cpu()) check_index("gather", i, line.shape()[d]);  // there the kernel checks them as it reads
  const Tensor out = call<Gather>({line, i}, {d, line.shape()});
  return x.dim() ? out : out.reshape(index.shape());
}
Tensor Tensor::gather(int64_t dim, const Tensor& index) const { return halfstep::gather(*this, dim, index); }

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const Scattered args("scatter_add", x, dim, index, src);
  const Tensor line = as_line(x), out = call<ScatterAdd>({line, args.index, args.src}, {args.dim, line.shape()});
  return x.dim() ? out : out.reshape({});
}
Tensor Tensor::scatter_add(int64_t dim, const Tensor& index, const Tensor& src) const {
  return halfstep::scatter_add(*this, dim, index, src);
}
const Tensor& Tensor::scatter_add_(int64_t dim, const Tensor& index, const Tensor& src) const& {
  const Scattered args("scatter_add_", *this, dim, index, src);
  check_same_dtype("scatter_add_", {*this, src});
  return change_in_place(
      "scatter_add_", *this, {index, src},
      [&] { backend_for(device()).scatter_add(as_line(detach()).view(), args.dim, args.index.view(), args.src.view()); },
      [&] { return scatter_add(dim, index, src); });
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const Scattered args("scatter", x, dim, index, src);
  const Tensor out = call<Scatter>({as_line(x), args.index, args.src}, {args.dim});
  return x.dim() ? out : out.reshape({});
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value) {
  check<ValueError>(index.defined() && x.defined(), "scatter", "an input is undefined");
  return scatter(x, dim, index, Scatter::filled_like(index, x, value));
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, ScatterReduce reduce) {
  constexpr std::string_view op = Scatter::info.name;
  const Scattered args(op, x, dim, index, src);
  check_same_dtype(op, {x, src});
  return composite(Scatter::info, {as_line(x), args.src}, [&](const Tensors& in) {
    const Tensor out = reduce == ScatterReduce::add ? scatter_add(in[0], args.dim, args.index, in[1])
                                                    : multiplied_at(in[0], args.dim, args.index, in[1]);
    return out.reshape(x.shape());
  });
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value, ScatterReduce reduce) {
  check<ValueError>(index.defined() && x.defined(), "scatter", "an input is undefined");
  return scatter(x, dim, index, Scatter::filled_like(index, x, value), reduce);
}
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                      bool include_self) {
  constexpr std::string_view op = ScatterMax::info.name;
  constexpr std::string_view kWays[] = {"sum", "prod", "mean", "amax", "amin"};
  check<ValueError>(std::ranges::find(kWays, reduce) != std::end(kWays), op, "reduce must be sum, prod, mean, amax or amin, got \"",
                    reduce, '"');
  const Scattered args(op, x, dim, index, src);
  check_same_dtype(op, {x, src});
  const Tensor line = as_line(x);
  const auto largest = [&](const Tensor& to, const Tensor& from) {
    return call<ScatterMax>({to, args.index, from}, {args.dim, include_self});
  };
  const auto without_self = [&](const Tensor& to, double neutral) {
    return include_self ? to : scatter(to, args.dim, args.index, neutral);
  };
  const bool is_integer = !x.is_floating_point();
  if (reduce == "amax") return largest(line, args.src).reshape(x.shape());
  if (reduce == "amin") {  // -1 - x for integers: the least one has no negative
    const auto mirrored = [&](const Tensor& t) { return is_integer ? sub(-1, t) : neg(t); };
    return mirrored(largest(mirrored(line), mirrored(args.src))).reshape(x.shape());
  }
  return composite(ScatterMax::info, {line, args.src}, [&](const Tensors& in) {
    if (reduce == "prod") return multiplied_at(without_self(in[0], 1), args.dim, args.index, in[1]).reshape(x.shape());
    const Tensor sums = scatter_add(without_self(in[0], 0), args.dim, args.index, in[1]);
    if (reduce == "sum") return sums.reshape(x.shape());
    const DType counted = is_integer ? DType::i64 : in[0].dtype();
    const Tensor counts =
        clamp_min(scatter_add(without_self(ones_like(in[0], counted), 0), args.dim, args.index, ones_like(in[1], counted)), 1);
    return (is_integer ? floor_divide(sums, counts).to(x.dtype()) : div(sums, counts)).reshape(x.shape());
  });
}
Tensor Tensor::scatter_reduce(int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                              bool include_self) const {
  return halfstep::scatter_reduce(*this, dim, index, src, reduce, include_self);
}

Tensor Tensor::scatter(int64_t dim, const Tensor& index, const Tensor& src) const {
  return halfstep::scatter(*this, dim, index, src);
}
Tensor Tensor::scatter(int64_t dim, const Tensor& index, Number value) const { return halfstep::scatter(*this, dim, index, value); }
const Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Tensor& src) const& {
  const Scattered args("scatter_", *this, dim, index, src);
  check_same_dtype("scatter_", {*this, src});
  return change_in_place(
      "scatter_", *this, {index, src},
      [&] { backend_for(device()).scatter(as_line(detach()).view(), args.dim, args.index.view(), args.src.view()); },
      [&] { return scatter(dim, index, src); });
}
const Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, Number value) const& {
  check<ValueError>(index.defined(), "scatter_", "index is undefined");
  return scatter_(dim, index, Scatter::filled_like(index, *this, value));
}

Tensor cat(const Tensors& xs, int64_t dim) {
  check<ValueError>(!xs.empty(), "cat", "needs at least one tensor");
  for (const Tensor& t : xs) {
    check<ValueError>(t.defined(), "cat", "a tensor is undefined");
    check<ShapeError>(t.dim() > 0, "cat", "0-dim tensors cannot be joined", Help{"use stack"});
  }
  const auto found = std::find_if_not(xs.begin(), xs.end(), is_legacy_empty);
  const Tensor& like = found == xs.end() ? xs[0] : *found;
  const int d = found == xs.end() ? 0 : wrap_dim(dim, like.dim(), "cat");
  Tensors parts;
  std::vector<int64_t> sizes;
  for (const Tensor& t : xs) {
    Shape shape = like.shape(), other = t.shape();
    if (is_legacy_empty(t)) {
      shape[d] = 0;
      parts.push_back(t.reshape(shape));
      sizes.push_back(0);
      continue;
    }
    if (other.size() == like.dim()) other[d] = like.shape()[d];
    check<ShapeError>(other == like.shape(), "cat", "sizes must agree outside dimension ", d, ", got ", like.shape(), " and ",
                      t.shape());
    parts.push_back(t);
    sizes.push_back(t.shape()[d]);
  }
  return call<Cat>(parts, {d, sizes});
}

Tensor stack(const Tensors& xs, int64_t dim) {
  check<ValueError>(!xs.empty(), "stack", "needs at least one tensor");
  for (const Tensor& t : xs) check<ValueError>(t.defined(), "stack", "a tensor is undefined");
  check<ShapeError>(xs[0].dim() < kMaxDims, "stack", "a tensor has at most ", kMaxDims, " dimensions, got ", xs[0].shape());
  dim = wrap_dim(dim, xs[0].dim() + 1, "stack");
  Tensors rows;
  for (const Tensor& t : xs) {
    check<ShapeError>(t.shape() == xs[0].shape(), "stack", "all tensors must have one shape, got ", xs[0].shape(), " and ",
                      t.shape());
    rows.push_back(t.unsqueeze(dim));
  }
  return cat(rows, dim);
}

void add_gather_scatter(OpList& list) {
  list.add(Gather::info, [](Args& a) { return gather(a.tensor(0), a.integer("dim"), a.tensor(1)); });
  list.add(ScatterAdd::info, [](Args& a) { return scatter_add(a.tensor(0), a.integer("dim"), a.tensor(1), a.tensor(2)); });
  list.add(Scatter::info, [](Args& a) {
    const Tensor x = a.tensor(0), index = a.tensor(1);
    const int64_t dim = a.integer("dim");
    if (a.raw("reduce")) {
      const std::string how = a.text("reduce");
      check<ValueError>(how == "add" || how == "multiply", "scatter", "'reduce' must be add or multiply, got '", how, "'");
      const ScatterReduce reduce = how == "add" ? ScatterReduce::add : ScatterReduce::multiply;
      return a.has_tensor(2) ? scatter(x, dim, index, a.tensor(2), reduce) : scatter(x, dim, index, a.scalar("value"), reduce);
    }
    return a.has_tensor(2) ? scatter(x, dim, index, a.tensor(2)) : scatter(x, dim, index, a.scalar("value"));
  });
  list.add(ScatterMax::info, [](Args& a) {
    return scatter_reduce(a.tensor(0), a.integer("dim"), a.tensor(1), a.tensor(2), a.text("reduce"), a.flag("include_self", true));
  });
  list.add(Cat::info, [](Args& a) { return cat(a.list(0), a.integer("dim", 0)); });
  list.add(kStackInfo, [](Args& a) { return stack(a.list(0), a.integer("dim", 0)); });
}

}  // namespace halfstep
