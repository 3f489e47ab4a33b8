// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/index/index_ops.h"

#include <cmath>

#include "framework/autograd/own_writes.h"
#include "framework/backend/export_error.h"
#include "framework/backend/observe.h"
#include "framework/ops/core/composite.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/index/indices.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/views.h"

namespace halfstep {
namespace {

TensorOptions like(const Tensor& x) { return {.dtype = x.dtype(), .device = x.device()}; }

struct IndexSelect {
  struct Attr {
    int dim;
    Shape from;
  };
  static constexpr OpInfo info{.name = "index_select",
                               .policy = CastPolicy::keep,
                               .doc = "the slices of x along dim that index names",
                               .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    Shape shape = in[0].shape();
    shape[attr.dim] = in[1].numel();
    const Tensor out = Tensor::empty(shape, like(in[0]));
    backend_for(out.device()).index_select(in[0].view(), attr.dim, in[1].view(), out.view());
    ctx.save(in[1]);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads);
};

// x may be undefined: zeros of the given shape.
struct IndexAdd {
  struct Attr {
    int dim;
    Shape shape;
    double alpha = 1;
  };
  static constexpr OpInfo info{.name = "index_add",
                               .policy = CastPolicy::keep,
                               .doc = "x with alpha src added to the slices along dim that index names",
                               .dtypes = DTypeSet::any};
  static void check(const Attr&, const Tensors& in) { check_same_dtype("index_add", {in[0], in[2]}); }
  static void add_into(const Attr& attr, const Tensor& out, const Tensor& index, Tensor src) {
    if (attr.alpha != 1) src = mul(is_half(src.dtype()) ? src.to(DType::f32) : src, number_beside(attr.alpha, src));
    backend_for(out.device()).index_add(out.view(), attr.dim, index.view(), src.view());
  }
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}, {"alpha", attr.alpha}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor out = in[0].defined() ? in[0].clone(MemoryFormat::contiguous) : zeros(attr.shape, like(in[2]));
    add_into(attr, out, in[1], in[2]);
    ctx.save(in[1]);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    Tensors result{grads[0], Tensor(), Tensor()};
    if (ctx.needs(2)) {
      result[2] = call<IndexSelect>({grads[0], ctx.saved()}, {attr.dim, attr.shape});
      if (attr.alpha != 1) result[2] = mul(result[2], attr.alpha);
    }
    return result;
  }
};
Tensors IndexSelect::backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
  return {call<IndexAdd>({Tensor(), ctx.saved(), grads[0]}, {attr.dim, attr.from}), Tensor()};
}

struct IndexCopy {
  struct Attr {
    int dim;
  };
  static constexpr OpInfo info{.name = "index_copy",
                               .policy = CastPolicy::promote,
                               .doc = "x with src in the slices along dim that index names",
                               .dtypes = DTypeSet::any};
  static void check(const Attr&, const Tensors& in) { check_same_dtype("index_copy", {in[0], in[2]}); }
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor out = in[0].clone(MemoryFormat::contiguous);
    backend_for(out.device()).index_copy(out.view(), attr.dim, in[1].view(), in[2].view());
    ctx.save(in[1]);
    ctx.state = in[2].shape();
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor& g = grads[0];
    const Tensor index = ctx.saved();
    const Tensor none = zeros({}, like(g)).expand(std::any_cast<const Shape&>(ctx.state));
    Tensors result(3);
    if (ctx.needs(0)) result[0] = call<IndexCopy>({g, index, none}, {attr.dim});
    if (ctx.needs(2)) result[2] = call<IndexSelect>({g, index}, {attr.dim, g.shape()});
    return result;
  }
};

// The checked arguments of an op on slices.
struct Slices {
  int dim;
  Tensor index, src;

  Slices(std::string_view op, const Tensor& x, int64_t along, const Tensor& which, const Tensor& from = Tensor()) {
    check_same_device(op, {x, which, from});
    dim = wrap_dim(along, x.dim(), op);
    index = index_tensor(op, which);
    check<ShapeError>(index.dim() <= 1, op, "index must have at most 1 dimension, got ", index.shape());
    index = index.reshape({-1});
    if (!from.defined()) return;
    src = from;
    Shape expected = x.shape();
    if (x.dim() > 0) expected[dim] = index.numel();
    check<ShapeError>(src.shape() == expected && (x.dim() > 0 || index.numel() == 1), op, "src must be ", expected, " for x ",
                      x.shape(), ", dim ", dim, " and ", index.numel(), " indices, got ", src.shape());
  }
};

struct EmbeddingAttr {
  int64_t rows;               // of weight
  int64_t padding = -1;       // row without gradient; -1: none
  bool by_frequency = false;  // whether the gradient of a row is divided by its number of occurrences
};

// Returns rows[i] divided by the number of occurrences of index[i]; 16-bit rows become float32.
Tensor divided_by_counts(const Tensor& rows, const Tensor& index, int64_t row_count) {
  const DType dtype = rows.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const TensorOptions options{.dtype = dtype, .device = rows.device()};
  const Tensor counts = index_add(zeros({row_count}, options), 0, index, ones({index.numel()}, options));
  return div(rows.to(dtype), index_select(counts, 0, index).unsqueeze(1));
}

struct EmbeddingBackward {
  using Attr = EmbeddingAttr;
  static constexpr OpInfo info{.name = "embedding_dense_backward",
                               .policy = CastPolicy::keep,
                               .doc = "the gradient of an embedding's weight: rows summed by index"};
  static Attributes describe(const Attr& attr) { return {{"padding_idx", attr.padding}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const int64_t width = in[0].shape().back();
    const Tensor index = in[1].reshape({-1}), out = zeros({attr.rows, width}, like(in[0]));
    Tensor rows = in[0].reshape({index.numel(), width});
    if (attr.by_frequency) rows = divided_by_counts(rows, index, attr.rows);
    backend_for(out.device()).index_add(out.view(), 0, index.view(), rows.view());
    if (attr.padding >= 0) backend_for(out.device()).fill(out.select(0, attr.padding).view(), 0);
    ctx.save(in[1]);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor index = ctx.saved(), flat = index.reshape({-1});
    Tensor g = grads[0];
    if (attr.padding >= 0) g = index_fill(g, 0, scalar(double(attr.padding), {.dtype = DType::i64, .device = g.device()}), 0);
    g = index_select(g, 0, flat);
    if (attr.by_frequency) g = divided_by_counts(g, flat, attr.rows).to(g.dtype());
    Shape shape = index.shape();
    shape.push_back(grads[0].shape()[1]);
    return {g.reshape(shape), Tensor()};
  }
};

struct EmbeddingOp {
  using Attr = EmbeddingAttr;
  static constexpr OpInfo info{.name = "embedding", .policy = CastPolicy::keep, .doc = "the rows of weight that index names"};
  static Attributes describe(const Attr& attr) { return {{"padding_idx", attr.padding}}; }
  static Tensor forward(OpContext& ctx, const Attr&, const Tensors& in) {
    Shape shape = in[1].shape();
    shape.push_back(in[0].shape()[1]);
    const Tensor out = Tensor::empty(shape, like(in[0])), index = in[1].reshape({-1});
    const Tensor rows = out.alias({index.numel(), in[0].shape()[1]}, {in[0].shape()[1], 1});
    backend_for(out.device()).index_select(in[0].view(), 0, index.view(), rows.view());
    ctx.save(in[1]);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    return {call<EmbeddingBackward>({grads[0], ctx.saved()}, attr), Tensor()};
  }
};

EmbeddingAttr embedding_attr(std::string_view op, int64_t rows, std::optional<int64_t> padding_idx, bool by_frequency) {
  EmbeddingAttr attr{rows, -1, by_frequency};
  if (!padding_idx) return attr;
  check<ValueError>(*padding_idx >= -rows && *padding_idx < rows, op, "padding_idx must lie in [", -rows, ", ", rows, "), got ",
                    *padding_idx);
  attr.padding = *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
  return attr;
}

constexpr OpInfo kIndexFillInfo{.name = "index_fill",
                                .doc = "x with one value in the slices along dim that index names; made of where",
                                .dtypes = DTypeSet::any};
constexpr OpInfo kOneHotInfo{
    .name = "one_hot", .doc = "1 at the class, 0 elsewhere", .differentiable = false, .dtypes = DTypeSet::numbers};
constexpr OpInfo kTakeAlongDimInfo{.name = "take_along_dim", .doc = "gather, where x and index broadcast", .dtypes = DTypeSet::any};
constexpr OpInfo kTakeInfo{
    .name = "take", .doc = "the elements at index of x seen as one line; made of index_select", .dtypes = DTypeSet::any};

}  // namespace

Tensor index_tensor(std::string_view op, const Tensor& index) {
  check<ValueError>(index.defined(), op, "index is undefined");
  if (index.dtype() == DType::i32) return index.to(DType::i64);
  check<DTypeError>(index.dtype() == DType::i64, op, "index must be int64 or int32, got ", index.dtype());
  return index;
}

void check_index(std::string_view op, const Tensor& index, int64_t size) {
  const int64_t bad = backend_for(index.device()).check_indices(index.view(), size);
  if (bad >= 0)
    fail<IndexError>(op, "index ", index.detach().reshape({-1})[bad].item<int64_t>(), " at position ", bad, " is outside [0, ",
                     size, ")");
}

Tensor wrap_index(std::string_view op, const Tensor& index, int64_t size) {
  const NoGrad quiet;
  Backend& backend = backend_for(index.device());
  if (index.device().is_cpu() && backend.check_indices(index.view(), size) < 0) return index;
  const Tensor wrapped = where(lt(index, 0), add(index, size), index);
  const int64_t bad = backend.check_indices(wrapped.view(), size);
  if (bad >= 0)
    fail<IndexError>(op, "index ", index.detach().reshape({-1})[bad].item<int64_t>(), " at position ", bad, " is outside [", -size,
                     ", ", size, ")");
  return wrapped;
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  const Slices slices("index_select", x, dim, index);
  check<ShapeError>(x.dim() > 0 || slices.index.numel() == 1, "index_select", "a 0-dim tensor takes one index, got ",
                    slices.index.numel());
  check_index("index_select", slices.index, x.dim() ? x.shape()[slices.dim] : 1);
  const Tensor line = as_line(x), out = call<IndexSelect>({line, slices.index}, {slices.dim, line.shape()});
  return x.dim() ? out : out.reshape({});
}
Tensor Tensor::index_select(int64_t dim, const Tensor& index) const { return halfstep::index_select(*this, dim, index); }

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, double alpha) {
  const Slices slices("index_add", x, dim, index, src);
  check_index("index_add", slices.index, x.dim() ? x.shape()[slices.dim] : 1);
  const Tensor line = as_line(x), out = call<IndexAdd>({line, slices.index, as_line(src)}, {slices.dim, line.shape(), alpha});
  return x.dim() ? out : out.reshape({});
}
Tensor Tensor::index_add(int64_t dim, const Tensor& index, const Tensor& src, double alpha) const {
  return halfstep::index_add(*this, dim, index, src, alpha);
}
const Tensor& Tensor::index_add_(int64_t dim, const Tensor& index, const Tensor& src, double alpha) const& {
  const Slices slices("index_add_", *this, dim, index, src);
  check_same_dtype("index_add_", {*this, src});
  check_index("index_add_", slices.index, this->dim() ? shape()[slices.dim] : 1);
  return change_in_place(
      "index_add_", *this, {index, src},
      [&] {
        IndexAdd::add_into({slices.dim, shape(), alpha}, as_line(detach()), slices.index, as_line(src.detach()));
      },
      [&] { return index_add(dim, index, src, alpha); });
}

Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const Slices slices("index_copy", x, dim, index, src);
  check_index("index_copy", slices.index, x.dim() ? x.shape()[slices.dim] : 1);
  const Tensor out = call<IndexCopy>({as_line(x), slices.index, as_line(src)}, {slices.dim});
  return x.dim() ? out : out.reshape({});
}
Tensor Tensor::index_copy(int64_t dim, const Tensor& index, const Tensor& src) const {
  return halfstep::index_copy(*this, dim, index, src);
}
const Tensor& Tensor::index_copy_(int64_t dim, const Tensor& index, const Tensor& src) const& {
  const Slices slices("index_copy_", *this, dim, index, src);
  check_same_dtype("index_copy_", {*this, src});
  check_index("index_copy_", slices.index, this->dim() ? shape()[slices.dim] : 1);
  return change_in_place(
      "index_copy_", *this, {index, src},
      [&] {
        backend_for(device()).index_copy(as_line(detach()).view(), slices.dim, slices.index.view(), as_line(src.detach()).view());
      },
      [&] { return index_copy(dim, index, src); });
}

Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value) {
  const Slices slices("index_fill", x, dim, index);
  check<ShapeError>(value.defined() && value.dim() == 0, "index_fill", "value must be a 0-dim tensor");
  const int64_t n = x.dim() ? x.shape()[slices.dim] : 1;
  const Tensor wrapped = wrap_index("index_fill", slices.index, n);
  const autocast::Off off;
  // Uses a mask, so that an index that occurs twice counts once in the value's gradient.
  const TensorOptions bits{.dtype = DType::boolean, .device = x.device()};
  const Tensor hit = index_copy(zeros({n}, bits), 0, wrapped, ones({wrapped.numel()}, bits));
  Shape along = Shape::filled(x.dim(), 1);
  if (x.dim() > 0) along[slices.dim] = n;
  return where(hit.reshape(along), value.to(x.device()).to(x.dtype()), x);
}
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Number value) {
  check_fits("index_fill", value, x.dtype());
  return index_fill(x, dim, index, scalar(value, like(x)));
}

const Tensor& Tensor::index_fill_(int64_t dim, const Tensor& index, Number value) const& {
  const auto filled = [&](const Tensor& x) { return halfstep::index_fill(x, dim, index, value); };
  return change_in_place(
      "index_fill_", *this, {index}, [&] { detach().copy_(filled(detach())); }, [&] { return filled(*this); });
}

Tensor take(const Tensor& x, const Tensor& index) {
  check_same_device("take", {x, index});
  const Tensor wrapped = wrap_index("take", index_tensor("take", index), x.numel()).reshape({-1});
  return call<IndexSelect>({x.reshape({-1}), wrapped}, {0, {x.numel()}}).reshape(index.shape());
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim) {
  constexpr std::string_view op = kTakeAlongDimInfo.name;
  check_same_device(op, {x, index});
  if (!dim) return take_along_dim(x.reshape({-1}), index.reshape({-1}), 0);
  check<ValueError>(x.defined(), op, "x is undefined");
  check<ShapeError>(x.dim() == index.dim(), op, "x and index must have as many dimensions, got ", x.shape(), " and ",
                    index.shape());
  const int d = wrap_dim(*dim, x.dim(), op);
  const Tensor wrapped = wrap_index(op, index_tensor(op, index), x.dim() ? x.size(d) : 1);
  if (x.dim() == 0) return gather(x, 0, wrapped);
  Shape of_x = x.shape(), of_index = index.shape();
  of_x[d] = of_index[d] = 1;
  const Shape outside = broadcast(of_x, of_index, op);
  of_x = of_index = outside;
  of_x[d] = x.shape()[d];
  of_index[d] = index.shape()[d];
  return under_name(op, [&] { return gather(x.expand(of_x), d, wrapped.expand(of_index)); });
}
Tensor Tensor::take_along_dim(const Tensor& index, std::optional<int64_t> dim) const {
  return halfstep::take_along_dim(*this, index, dim);
}

Tensor embedding(const Tensor& weight, const Tensor& index, std::optional<int64_t> padding_idx, bool scale_grad_by_freq,
                 std::optional<double> max_norm, double norm_type) {
  check_same_device("embedding", {weight, index});
  check<ShapeError>(weight.dim() == 2, "embedding", "weight must be [rows, width], got ", weight.shape());
  check<DTypeError>(weight.is_floating_point(), "embedding", "weight must be floating, got ", weight.dtype());
  const Tensor i = index_tensor("embedding", index);
  check<ShapeError>(i.dim() < kMaxDims, "embedding", "index has too many dimensions: ", i.shape());
  check_index("embedding", i, weight.shape()[0]);
  check<ExportError>(!max_norm || !Observing::follow_values(), "export",
                     "it has no form in ONNX: an embedding with max_norm changes its weight when it is called");
  if (max_norm && i.numel() > 0) {
    const NoGrad quiet;
    const autocast::Off off;
    WriteLog writes;
    const Tensor rows = weight.detach(), line = i.reshape({-1});
    // Rows that occur twice are written twice, with the same values.
    rows.index_copy_(0, line,
                     under_name("embedding", [&] { return renorm(index_select(rows, 0, line), norm_type, 0, *max_norm); }));
    count_own_writes(writes, {&weight, 1});
  }
  return call<EmbeddingOp>({weight, i}, embedding_attr("embedding", weight.shape()[0], padding_idx, scale_grad_by_freq));
}

Tensor embedding_dense_backward(const Tensor& grad, const Tensor& index, int64_t rows, int64_t padding_idx,
                                bool scale_grad_by_freq) {
  constexpr auto op = EmbeddingBackward::info.name;
  check_same_device(op, {grad, index});
  const Tensor i = index_tensor(op, index);
  Shape leading = grad.shape();
  if (!leading.empty()) leading.erase(leading.size() - 1);
  check<ShapeError>(grad.dim() > 0 && leading == i.shape(), op, "grad must be [index..., width], got ", grad.shape(), " and index ",
                    i.shape());
  check<ValueError>(rows >= 0, op, "num_weights must not be negative, got ", rows);
  check_size(op, {rows, grad.shape().back()});
  check_index(op, i, rows);
  return call<EmbeddingBackward>({grad, i}, {rows, padding_idx < rows ? padding_idx : -1, scale_grad_by_freq});
}

Tensor one_hot(const Tensor& index, int64_t num_classes) {
  const Tensor i = index_tensor("one_hot", index);
  check<ValueError>(num_classes > 0 || num_classes == -1, "one_hot",
                    "num_classes must be positive, or -1 for one more than the largest, got ", num_classes);
  if (num_classes == -1) {
    check_has_values("one_hot", {i});
    check<ValueError>(i.numel() > 0, "one_hot", "num_classes cannot be derived from an empty tensor");
    num_classes = max(i).item<int64_t>() + 1;
  }
  check_index("one_hot", i, num_classes);
  check<ShapeError>(i.dim() < kMaxDims, "one_hot", "index has too many dimensions: ", i.shape());
  Shape shape = i.shape();
  shape.push_back(num_classes);
  check_size("one_hot", shape);
  const Tensor out = zeros(shape, {.dtype = i.dtype(), .device = i.device()});
  out.scatter_(-1, i.unsqueeze(-1), 1);
  return out;
}

void add_index_ops(OpList& list) {
  list.add(IndexSelect::info, [](Args& a) { return index_select(a.tensor(0), a.integer("dim"), a.tensor(1)); });
  list.add(IndexAdd::info,
           [](Args& a) { return index_add(a.tensor(0), a.integer("dim"), a.tensor(1), a.tensor(2), a.number("alpha", 1)); });
  list.add(IndexCopy::info, [](Args& a) { return index_copy(a.tensor(0), a.integer("dim"), a.tensor(1), a.tensor(2)); });
  list.add(kIndexFillInfo, [](Args& a) {
    const Tensor x = a.tensor(0), index = a.tensor(1);
    const int64_t dim = a.integer("dim");
    return a.has_tensor(2) ? index_fill(x, dim, index, a.tensor(2)) : index_fill(x, dim, index, a.scalar("value"));
  });
  list.add(kTakeInfo, [](Args& a) { return take(a.tensor(0), a.tensor(1)); });
  list.add(kTakeAlongDimInfo, [](Args& a) { return take_along_dim(a.tensor(0), a.tensor(1), a.integer_or_none("dim")); });
  list.add(EmbeddingOp::info, [](Args& a) {
    check<ValueError>(!a.flag("sparse", false), a.op(), "has no sparse gradients: 'sparse' must be false");
    return embedding(a.tensor(0), a.tensor(1), a.integer_or_none("padding_idx"), a.flag("scale_grad_by_freq", false),
                     a.number_or_none("max_norm"), a.number("norm_type", 2));
  });
  list.add(kOneHotInfo, [](Args& a) { return one_hot(a.tensor(0), a.integer("num_classes", -1)); });
  list.add(EmbeddingBackward::info, [](Args& a) {
    return embedding_dense_backward(a.tensor(0), a.tensor(1), a.integer("num_weights"), a.integer("padding_idx", -1),
                                    a.flag("scale_grad_by_freq", false));
  });
}

Tensor Tensor::index_fill(int64_t dim, const Tensor& index, Number value) const {
  return halfstep::index_fill(*this, dim, index, value);
}
Tensor Tensor::take(const Tensor& index) const { return halfstep::take(*this, index); }

}  // namespace halfstep
