// SPDX-License-Identifier: Apache-2.0
// Views: other geometry over the same memory. Each backward is again made of views (or, for slices, of one padded copy).
#include "framework/ops/shape/views.h"

#include <algorithm>
#include <limits>

#include "framework/autograd/column_sums.h"
#include "framework/ops/core/call.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/rearrange.h"

namespace halfstep {
namespace {

// Returns strides that read `x` as `shape` without a copy, if there are any.
std::optional<Strides> strides_for(const Tensor& x, const Shape& shape) {
  if (x.is_contiguous()) return contiguous_strides(shape);
  Strides out = Dims::filled(shape.size(), 0);
  int d = x.dim() - 1, o = shape.size() - 1;  // dimensions of x and of the result, from the last on
  // Splits runs of old dimensions that are dense in each other into new ones.
  while (d >= 0) {
    int64_t run = x.shape()[d], inner = x.strides()[d];
    int64_t dense = run * inner;
    while (d > 0 && (x.strides()[d - 1] == dense || x.shape()[d - 1] == 1)) {
      --d;
      run *= x.shape()[d];
      dense = run * inner;
    }
    --d;
    int64_t left = run, step = inner;
    while (o >= 0 && (left > 1 || shape[o] == 1)) {
      if (left % shape[o] != 0) return std::nullopt;
      out[o] = step;
      step *= shape[o];
      left /= shape[o];
      --o;
    }
    if (left != 1) return std::nullopt;
  }
  return out;
}

// Returns `shape` with the size that fits in place of -1. Throws ShapeError unless it has the n elements of x.
Shape inferred(std::string_view op, const Shape& shape, int64_t n, const Tensor& x) {
  Shape out = shape;
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < out.size(); ++i) {
    if (out[i] == -1) {
      check<ShapeError>(unknown < 0, op, "only one size may be -1, got ", shape);
      unknown = i;
    } else {
      check<ShapeError>(out[i] >= 0 && !__builtin_mul_overflow(known, out[i], &known), op, "shape ", x.shape(), " (", n,
                        " elements) cannot become ", shape);
    }
  }
  if (unknown >= 0 && known > 0 && n % known == 0) out[unknown] = n / known, known = n;
  check<ShapeError>(known == n && (unknown < 0 || out[unknown] >= 0), op, "shape ", x.shape(), " (", n, " elements) cannot become ",
                    shape);
  check_size(op, out);
  return out;
}

struct View {  // reshape without a copy
  struct Attr {
    Shape from, to;
  };
  static constexpr OpInfo info{
      .name = "view", .policy = CastPolicy::keep, .doc = "the same elements in another shape", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"shape", attr.to}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    return as_view(in[0], attr.to, *strides_for(in[0], attr.to));
  }
  static bool keeps_columns(const Attr& attr) {
    return !attr.from.empty() && !attr.to.empty() && attr.from.back() == attr.to.back();
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    const Tensor g = grads[0].reshape(attr.from);
    if (keeps_columns(attr)) leave_column_sums(g, take_column_sums(grads[0]));
    return {g};
  }
};

struct PermuteOp {
  struct Attr {
    Dims order;
  };
  static constexpr OpInfo info{
      .name = "permute", .policy = CastPolicy::keep, .doc = "dimensions in another order", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"dims", attr.order}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    Shape shape = attr.order;
    Strides strides = attr.order;
    for (int i = 0; i < attr.order.size(); ++i) {
      shape[i] = in[0].shape()[int(attr.order[i])];
      strides[i] = in[0].strides()[int(attr.order[i])];
    }
    return as_view(in[0], shape, strides);
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    Dims inverse = attr.order;
    for (int i = 0; i < attr.order.size(); ++i) inverse[int(attr.order[i])] = i;
    return {grads[0].permute(inverse)};
  }
};

struct Expand {
  struct Attr {
    Shape from, to;
  };
  static constexpr OpInfo info{.name = "expand",
                               .policy = CastPolicy::keep,
                               .doc = "dimensions of size 1 repeated, without a copy",
                               .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"shape", attr.to}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    return as_view(in[0], attr.to, broadcast_strides(in[0].shape(), in[0].strides(), attr.to));
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) { return {sum_to(grads[0], attr.from)}; }
};

// x[..., start:start + count * step:step, ...]
struct SliceAttr {
  int dim;
  int64_t start, count, step;
  Shape full;
};
struct SliceOp {
  using Attr = SliceAttr;
  static constexpr OpInfo info{
      .name = "slice", .policy = CastPolicy::keep, .doc = "every step-th element along one dimension", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) {
    return {{"dim", attr.dim}, {"start", attr.start}, {"count", attr.count}, {"step", attr.step}};
  }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    Shape shape = in[0].shape();
    Strides strides = in[0].strides();
    shape[attr.dim] = attr.count;
    strides[attr.dim] *= attr.step;
    return as_view(in[0], shape, strides, attr.count ? attr.start * in[0].strides()[attr.dim] : 0);
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads);
};

// Returns zeros of the full shape with x in the slice; the transpose of SliceOp.
struct SliceBackward {
  using Attr = SliceAttr;
  static constexpr OpInfo info{.name = "slice_backward",
                               .policy = CastPolicy::keep,
                               .doc = "zeros, with x where slice took it from",
                               .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) {
    return {{"dim", attr.dim}, {"start", attr.start}, {"count", attr.count}, {"step", attr.step}};
  }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor out = zeros(attr.full, {.dtype = in[0].dtype(), .device = in[0].device()});
    Shape shape = attr.full;
    Strides strides = out.strides();
    shape[attr.dim] = attr.count;
    strides[attr.dim] *= attr.step;
    const Tensor part = out.alias(shape, strides, attr.count ? attr.start * out.strides()[attr.dim] : 0);
    backend_for(out.device()).copy(in[0].view(), part.view());
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    return {call<SliceOp>({grads[0]}, attr)};
  }
};
Tensors SliceOp::backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
  return {call<SliceBackward>({grads[0]}, attr)};
}

}  // namespace

Tensor as_view(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset) {
  Tensor view = x.alias(shape, strides, offset);
  view.impl()->is_view = true;
  view.impl()->base = x.impl_ptr();
  if (x.impl()->is_view && !x.impl()->base.expired()) view.impl()->base = x.impl()->base;
  view.impl()->recorded_writes_seen = x.storage()->recorded_writes;
  return view;
}

Tensor as_result(const Tensor& view) {
  view.impl()->is_view = false;
  view.impl()->base.reset();
  return view;
}

// Returns x in another shape. What an op rounded to 16 bits has a float32 gradient, and so has its view.
static Tensor viewed(const Tensor& x, const Shape& to) {
  const Tensor v = call<View>({x}, {x.shape(), to});
  const std::optional<DType> wide = rounded_from(x);
  if (!wide) [[likely]]
    return v;
  const Tensor out = record_rounding(v, *wide);
  out.impl()->is_view = v.impl()->is_view;
  out.impl()->base = v.impl()->base;
  out.impl()->recorded_writes_seen = v.impl()->recorded_writes_seen;
  return out;
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  const Shape to = inferred("reshape", shape, x.numel(), x);
  if (!strides_for(x, to)) return reshape(contiguous(x), to);
  return viewed(x, to);
}
Tensor Tensor::reshape(const Shape& shape) const { return halfstep::reshape(*this, shape); }

Tensor Tensor::view(const Shape& shape) const {
  const Shape to = inferred("view", shape, numel(), *this);
  check<ShapeError>(strides_for(*this, to).has_value(), "view", "shape ", this->shape(), " with strides ", strides(),
                    " cannot be seen as ", to, " without a copy", Help{"use reshape"});
  return viewed(*this, to);
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end) {
  if (x.dim() == 0) return reshape(x, {1});
  const int first = wrap_dim(start, x.dim(), "flatten"), last = wrap_dim(end, x.dim(), "flatten");
  check<ValueError>(first <= last, "flatten", "start must not lie after end, got ", start, " and ", end);
  Shape shape;
  int64_t run = 1;
  for (int i = 0; i < x.dim(); ++i) {
    run = i >= first && i <= last ? run * x.shape()[i] : x.shape()[i];
    if (i < first || i >= last) shape.push_back(run);
    if (i < first) run = 1;
  }
  return reshape(x, shape);
}
Tensor Tensor::flatten(int64_t start, int64_t end) const { return halfstep::flatten(*this, start, end); }

Tensor permute(const Tensor& x, const Dims& order) {
  check<ShapeError>(order.size() == x.dim(), "permute", "needs one entry per dimension of ", x.shape(), ", got ", order);
  Dims wrapped = order;
  std::array<bool, kMaxDims> seen{};
  for (int i = 0; i < order.size(); ++i) {
    wrapped[i] = wrap_dim(order[i], x.dim(), "permute");
    check<ValueError>(!seen[size_t(wrapped[i])], "permute", "dimension ", wrapped[i], " appears twice in ", order);
    seen[size_t(wrapped[i])] = true;
  }
  return call<PermuteOp>({x}, {wrapped});
}
Tensor Tensor::permute(const Dims& order) const { return halfstep::permute(*this, order); }

Tensor transpose(const Tensor& x, int64_t a, int64_t b) {
  const int i = wrap_dim(a, x.dim(), "transpose"), j = wrap_dim(b, x.dim(), "transpose");
  Dims order;
  for (int d = 0; d < x.dim(); ++d) order.push_back(d == i ? j : d == j ? i : d);
  return call<PermuteOp>({x}, {order});
}
Tensor Tensor::transpose(int64_t a, int64_t b) const { return halfstep::transpose(*this, a, b); }
Tensor Tensor::t() const {
  check<ShapeError>(dim() <= 2, "t", "needs at most 2 dimensions, got ", shape());
  return dim() < 2 ? *this : transpose(0, 1);
}

Tensor squeeze(const Tensor& x, int64_t dim) {
  const int d = wrap_dim(dim, x.dim(), "squeeze");
  if (x.dim() == 0 || x.shape()[d] != 1) return x;
  Shape shape = x.shape();
  shape.erase(d);
  return reshape(x, shape);
}
Tensor Tensor::squeeze(int64_t dim) const { return halfstep::squeeze(*this, dim); }

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  check<ShapeError>(x.dim() < kMaxDims, "unsqueeze", "a tensor has at most ", kMaxDims, " dimensions, got ", x.shape());
  Shape shape = x.shape();
  shape.insert(wrap_dim(dim, x.dim() + 1, "unsqueeze"), 1);
  return reshape(x, shape);
}
Tensor Tensor::unsqueeze(int64_t dim) const { return halfstep::unsqueeze(*this, dim); }

namespace {

Tensor expand_to(std::string_view op, const Tensor& x, const Shape& shape) {
  Shape to = shape;
  check<ShapeError>(shape.size() >= x.dim(), op, "shape ", x.shape(), " has more dimensions than ", shape);
  for (int i = 0; i < to.size(); ++i) {
    const int d = x.dim() - to.size() + i;
    if (to[i] == -1 && d >= 0) to[i] = x.shape()[d];
    check<ShapeError>(to[i] >= 0 && (d < 0 || x.shape()[d] == to[i] || x.shape()[d] == 1), op, "shape ", x.shape(),
                      " cannot be expanded to ", shape);
  }
  check_size(op, to);
  return call<Expand>({x}, {x.shape(), to});
}

}  // namespace

Tensor expand(const Tensor& x, const Shape& shape) { return expand_to("expand", x, shape); }
Tensor expand_as(const Tensor& x, const Tensor& other) { return expand_to("expand_as", x, other.shape()); }
Tensor Tensor::expand(const Shape& shape) const { return halfstep::expand(*this, shape); }

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  const int d = wrap_dim(dim, x.dim(), "slice");
  check<ShapeError>(x.dim() > 0, "slice", "a 0-dim tensor cannot be sliced");
  check<ValueError>(step > 0, "slice", "step must be positive, got ", step);
  const int64_t n = x.shape()[d];
  auto wrap = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t first = wrap(start), stop = std::max(wrap(end), first), by = std::min(step, std::max<int64_t>(n, 1));
  return call<SliceOp>({x}, {d, first, (stop - first + by - 1) / by, by, x.shape()});
}
Tensor Tensor::slice(int64_t dim, int64_t start, int64_t end, int64_t step) const {
  return halfstep::slice(*this, dim, start, end, step);
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  const int d = wrap_dim(dim, x.dim(), "narrow");
  check<ShapeError>(x.dim() > 0, "narrow", "a 0-dim tensor cannot be narrowed");
  if (start < 0) start += x.shape()[d];  // counted from the end
  check<IndexError>(start >= 0 && length >= 0 && length <= x.shape()[d] && start <= x.shape()[d] - length, "narrow", "[", start,
                    ", ", int64_t(uint64_t(start) + uint64_t(length)), ") must lie inside dimension ", dim, " of ", x.shape());
  return call<SliceOp>({x}, {d, start, length, 1, x.shape()});
}
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const { return halfstep::narrow(*this, dim, start, length); }

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  const int d = wrap_dim(dim, x.dim(), "select");
  check<ShapeError>(x.dim() > 0, "select", "a 0-dim tensor cannot be indexed");
  const int64_t n = x.shape()[d], i = index < 0 ? index + n : index;
  check<IndexError>(i >= 0 && i < n, "select", "index ", index, " is outside dimension ", dim, " of ", x.shape());
  return squeeze(narrow(x, d, i, 1), d);
}
Tensor Tensor::select(int64_t dim, int64_t index) const { return halfstep::select(*this, dim, index); }
Tensor slice_backward(const Tensor& x, const Shape& full, int dim, int64_t start, int64_t count, int64_t step) {
  return call<SliceBackward>({x}, {dim, start, count, step, full});
}

void add_views(OpList& list) {
  list.add(View::info, [](Args& a) {  // copies if the strides allow no view
    const Tensor x = a.tensor(0);
    return reshape(x, inferred("view", a.ints("shape"), x.numel(), x));
  });
  list.add(PermuteOp::info, [](Args& a) { return permute(a.tensor(0), a.ints("dims")); });
  list.add(Expand::info, [](Args& a) { return expand(a.tensor(0), a.ints("size")); });
  list.add(SliceOp::info, [](Args& a) {
    const Tensor x = a.tensor(0);
    const int64_t dim = a.integer("dim", 0);
    return slice(x, dim, a.integer("start", 0), a.integer("end", std::numeric_limits<int64_t>::max()), a.integer("step", 1));
  });
  list.add(SliceBackward::info, [](Args& a) {
    const Tensor g = a.tensor(0);
    const Shape full = a.ints("input_sizes");
    check_size(a.op(), full);
    const int d = wrap_dim(a.integer("dim"), full.size(), a.op());
    const int64_t start = a.integer("start"), end = a.integer("end"), step = a.integer("step");
    check<ValueError>(!full.empty() && start >= 0 && start <= end && end <= full[d] && step > 0, a.op(),
                      "needs 0 <= start <= end <= size and a positive step, got ", start, ", ", end, " and ", step);
    Shape part = full;
    part[d] = (end - start) / step + ((end - start) % step != 0);
    check<ShapeError>(g.shape() == part, a.op(), "the gradient must have the slice's shape, ", part, ", got ", g.shape());
    return slice_backward(g, full, d, start, part[d], std::min(step, std::max<int64_t>(full[d], 1)));
  });
}

}  // namespace halfstep
