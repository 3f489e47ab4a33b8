// SPDX-License-Identifier: Apache-2.0
// Reads and writes x[i0, :, i2, ...] with several indices at once. The gradient of x[i0, ...] is g added to zeros at its places.
// That of index_put is g, with zeros at the places unless values are accumulated, and for the values g[i0, ...].
#include <algorithm>

#include "framework/ops/core/call.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/index/index_ops.h"
#include "framework/ops/index/indices.h"
#include "framework/ops/index/masks.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

// The dimensions along which indices select, and the geometry of the result, which has index_shape in their place.
struct IndexedDims {
  Shape shape;        // of x
  Shape index_shape;  // to which the indices broadcast
  Dims dims;          // of x, one for each index
  int dim = 0;        // of the result, at which index_shape begins

  // Returns the shape of the result.
  Shape result() const {
    Shape out;
    for (int d = 0, k = 0; d <= shape.size(); ++d) {
      if (out.size() == dim && k == dim) {
        for (int64_t n : index_shape) out.push_back(n);
      }
      if (d == shape.size()) break;
      bool is_indexed = false;
      for (int64_t i : dims) is_indexed = is_indexed || i == d;
      if (!is_indexed) out.push_back(shape[d]), ++k;
    }
    return out;
  }
};

// x with its indexed dimensions folded into one, along which one index selects the same elements. The stride of that dimension is
// the greatest common divisor of theirs, so every combination of them is a whole number of steps.
struct FoldedView {
  TensorView view;
  Tensor index;  // [n]
  int dim;
};

int64_t greatest_divisor(int64_t a, int64_t b) { return b == 0 ? a : greatest_divisor(b, a % b); }

// Folds the indexed dimensions of x, and combines the indices to one.
FoldedView folded(const Tensor& x, const IndexedDims& indexed, const Tensors& indices) {
  int64_t step = 0, last = 0;
  for (int64_t d : indexed.dims) {
    if (indexed.shape[int(d)] > 1) step = greatest_divisor(step, x.strides()[int(d)]);
  }
  step = std::max<int64_t>(step, 1);
  FoldedView line{x.view(), zeros({}, {.dtype = DType::i64, .device = x.device()}).expand(indexed.index_shape), indexed.dim};
  for (size_t k = 0; k < indices.size(); ++k) {
    const int d = int(indexed.dims[int(k)]);
    const int64_t factor = indexed.shape[d] > 1 ? x.strides()[d] / step : 0;
    last += (indexed.shape[d] - 1) * factor;
    const Tensor scaled = factor == 1 ? indices[k] : mul(indices[k], factor);
    line.index = k == 0 ? scaled : add(line.index, scaled);
  }
  line.index = line.index.expand(indexed.index_shape).reshape({-1});
  for (int i = indexed.dims.size() - 1; i >= 0; --i) {
    line.view.shape.erase(int(indexed.dims[i]));
    line.view.strides.erase(int(indexed.dims[i]));
  }
  line.view.shape.insert(indexed.dim, last + 1);
  line.view.strides.insert(indexed.dim, step);
  return line;
}

// Returns t with the result's index dimensions folded into one.
TensorView with_flat_index(const Tensor& t, const IndexedDims& indexed) {
  Shape shape = t.shape();
  for (int i = 0; i < indexed.index_shape.size(); ++i) shape.erase(indexed.dim);
  shape.insert(indexed.dim, numel(indexed.index_shape));
  return t.reshape(shape).view();
}

Tensors tensors_from(const Tensors& in, size_t first) { return {in.begin() + int64_t(first), in.end()}; }

struct IndexPut {
  struct Attr {
    IndexedDims indexed;
    bool accumulate;
  };
  static constexpr OpInfo info{.name = "index_put",
                               .policy = CastPolicy::promote,
                               .doc = "x with values at, or added to, the elements that indices name",
                               .dtypes = DTypeSet::any};
  // in: x (undefined: zeros), values of the result's shape, indices
  static void check(const Attr&, const Tensors& in) { check_same_dtype("index_put", {in[0], in[1]}); }
  // Writes or adds the values to `out`.
  static void write(const Attr& attr, const Tensor& out, const Tensor& values, const Tensors& indices) {
    if (values.numel() == 0) return;
    const FoldedView to = folded(out, attr.indexed, indices);
    const Tensor from = values.contiguous();
    Backend& backend = backend_for(out.device());
    attr.accumulate ? backend.index_add(to.view, to.dim, to.index.view(), with_flat_index(from, attr.indexed))
                    : backend.index_copy(to.view, to.dim, to.index.view(), with_flat_index(from, attr.indexed));
  }
  static Attributes describe(const Attr& attr) { return {{"dims", attr.indexed.dims}, {"accumulate", attr.accumulate}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor out = in[0].defined() ? in[0].clone(MemoryFormat::contiguous)
                                       : zeros(attr.indexed.shape, {.dtype = in[1].dtype(), .device = in[1].device()});
    write(attr, out, in[1], tensors_from(in, 2));
    for (const Tensor& i : tensors_from(in, 2)) ctx.save(i);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads);
};

struct IndexOp {
  using Attr = IndexedDims;
  static constexpr OpInfo info{
      .name = "index", .policy = CastPolicy::keep, .doc = "the elements that indices name together", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"dims", attr.dims}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor out = Tensor::empty(attr.result(), {.dtype = in[0].dtype(), .device = in[0].device()});
    const Tensors indices = tensors_from(in, 1);
    if (out.numel() > 0) {
      const FoldedView from = folded(in[0], attr, indices);
      backend_for(out.device()).index_select(from.view, from.dim, from.index.view(), with_flat_index(out, attr));
    }
    for (const Tensor& i : indices) ctx.save(i);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    Tensors in{Tensor(), grads[0]};
    for (size_t i = 0; i < ctx.saved_count(); ++i) in.push_back(ctx.saved(i));
    return {call<IndexPut>(in, {attr, true})};
  }
};

Tensors IndexPut::backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
  const Tensor& g = grads[0];
  Tensors result(2), indices;
  for (size_t i = 0; i < ctx.saved_count(); ++i) indices.push_back(ctx.saved(i));
  if (ctx.needs(0)) {
    result[0] = g;
    if (!attr.accumulate) {
      Tensors in{g, zeros({}, {.dtype = g.dtype(), .device = g.device()}).expand(attr.indexed.result())};
      in.insert(in.end(), indices.begin(), indices.end());
      result[0] = call<IndexPut>(in, {attr.indexed, false});
    }
  }
  if (ctx.needs(1)) {
    Tensors in{g};
    in.insert(in.end(), indices.begin(), indices.end());
    result[1] = call<IndexOp>(in, attr.indexed);
  }
  return result;
}

// The checked indices, with bool ones replaced by the places where they are true.
struct Chosen {
  IndexedDims indexed;
  Tensors indices;

  Chosen(std::string_view op, const Tensor& x, const Tensors& given) {
    Tensors all = given;
    all.push_back(x);
    check_same_device(op, all);
    indexed.shape = x.shape();
    int d = 0;
    for (const Tensor& t : given) {
      const int takes = !t.defined() ? 1 : t.dtype() == DType::boolean ? t.dim() : 1;
      check<IndexError>(d + takes <= x.dim(), op, "too many indices for shape ", x.shape());
      if (t.defined() && t.dtype() == DType::boolean)
        add_mask(op, t, d);
      else if (t.defined())
        add_index(op, t, d);
      d += takes;
    }
    check<ValueError>(!indices.empty(), op, "needs at least one index");
    for (const Tensor& i : indices) indexed.index_shape = broadcast(indexed.index_shape, i.shape(), op);
    const int first = int(indexed.dims[0]), count = indexed.dims.size();
    indexed.dim = indexed.dims[count - 1] - first == count - 1 ? first : 0;
    check<ShapeError>(x.dim() - count + indexed.index_shape.size() <= kMaxDims, op, "the result would have more than ", kMaxDims,
                      " dimensions");
  }

 private:
  void add_index(std::string_view op, const Tensor& t, int d) {
    indices.push_back(wrap_index(op, index_tensor(op, t), indexed.shape[d]));
    indexed.dims.push_back(d);
  }
  void add_mask(std::string_view op, const Tensor& t, int d) {
    check<ShapeError>(t.dim() > 0, op, "a bool index must have a dimension", Help{"use where or masked_select"});
    for (int k = 0; k < t.dim(); ++k)
      check<IndexError>(t.shape()[k] == indexed.shape[d + k], op, "a mask of shape ", t.shape(),
                        " does not fit the dimensions from ", d, " of ", indexed.shape);
    const Tensor where_true = nonzero(t);
    for (int k = 0; k < t.dim(); ++k) {
      indices.push_back(where_true.select(1, k));
      indexed.dims.push_back(d + k);
    }
  }
};

// Returns values in the shape that the op needs.
Tensor spread_values(std::string_view op, const Tensor& values, const Shape& shape) {
  check<ShapeError>(values.dim() <= shape.size() && broadcast(values.shape(), shape, op) == shape, op, "values ", values.shape(),
                    " must broadcast to the shape of the indexed elements, ", shape);
  return values.expand(shape);
}

Tensor put(const Tensor& x, const Chosen& chosen, const Tensor& values, bool accumulate) {
  Tensors in{x, spread_values("index_put", values, chosen.indexed.result())};
  in.insert(in.end(), chosen.indices.begin(), chosen.indices.end());
  return call<IndexPut>(in, {chosen.indexed, accumulate});
}

}  // namespace

Tensor index(const Tensor& x, const Tensors& indices) {
  const Chosen chosen("index", x, indices);
  Tensors in{x};
  in.insert(in.end(), chosen.indices.begin(), chosen.indices.end());
  return call<IndexOp>(in, chosen.indexed);
}
Tensor Tensor::index(const Tensors& indices) const {
  const Tensor out = halfstep::index(*this, indices);
  out.impl()->selected = true;
  return out;
}

Tensor index_put(const Tensor& x, const Tensors& indices, const Tensor& values, bool accumulate) {
  check_same_device("index_put", {x, values});
  return put(x, Chosen("index_put", x, indices), values, accumulate);
}
Tensor Tensor::index_put(const Tensors& indices, const Tensor& values, bool accumulate) const {
  return halfstep::index_put(*this, indices, values, accumulate);
}
const Tensor& Tensor::index_put_(const Tensors& indices, const Tensor& values, bool accumulate) const& {
  check_same_device("index_put_", {*this, values});
  check_same_dtype("index_put_", {*this, values});
  const Chosen chosen("index_put_", *this, indices);
  const Tensor spread = spread_values("index_put_", values.detach(), chosen.indexed.result());
  Tensors others = chosen.indices;
  others.push_back(values);
  return change_in_place(
      "index_put_", *this, others,
      [&] {
        IndexPut::write({chosen.indexed, accumulate}, detach(), spread, chosen.indices);
      },
      [&] { return put(*this, chosen, values, accumulate); });
}

void add_index_put(OpList& list) {
  list.add(IndexOp::info, [](Args& a) { return index(a.tensor(0), a.list(1)); });
  list.add(IndexPut::info, [](Args& a) { return index_put(a.tensor(0), a.list(1), a.tensor(2), a.flag("accumulate", false)); });
}

}  // namespace halfstep
