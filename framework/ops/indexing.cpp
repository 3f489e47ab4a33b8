// Gather, scatter, cat and stack.
#include "framework/ops/call.h"
#include "framework/ops/ops.h"
#include "framework/ops/promotion.h"
#include "framework/ops/registry.h"

namespace halfstep {
namespace {

void check_index(std::string_view op, const Tensor& index, int64_t size) {
  check<DTypeError>(index.dtype() == DType::i64, op, "index must be int64, got ", index.dtype());
  const int64_t bad = backend_for(index.device()).check_indices(index.view(), size);
  if (bad >= 0)
    fail<IndexError>(op, "index ", index.detach().reshape({-1})[bad].item<int64_t>(), " at position ", bad, " is outside [0, ", size, ")");
}

// index may be smaller than x in every dimension but `dim`, where it may have any size.
void check_shapes(std::string_view op, const Shape& x, const Shape& index, int dim) {
  bool ok = x.size() == index.size();
  for (int i = 0; ok && i < x.size(); ++i) ok = i == dim || index[i] <= x[i];
  check<ShapeError>(ok, op, "index must have the rank of ", x, " and be no larger outside dimension ", dim, ", got ", index);
}

struct Gather {
  struct Attr {
    int dim;
    Shape from;
  };
  static constexpr OpInfo info{.name = "gather", .policy = CastPolicy::keep, .doc = "out[i][j] = x[index[i][j]][j] for dim 0"};
  static Tensor forward(OpContext& ctx, const Attr& a, const Tensors& in) {
    const Tensor out = Tensor::empty(in[1].shape(), {.dtype = in[0].dtype(), .device = in[0].device()});
    backend_for(out.device()).gather(in[0].view(), a.dim, in[1].view(), out.view());
    ctx.save(in[1]);
    return out;
  }
  static Tensors backward(const OpContext& ctx, const Attr& a, const Tensors& grads) {
    const Tensor none = zeros(a.from, {.dtype = grads[0].dtype(), .device = grads[0].device()});
    return {scatter_add(none, a.dim, ctx.saved(0), grads[0]), Tensor()};
  }
};

struct ScatterAdd {
  struct Attr { int dim; };
  static constexpr OpInfo info{.name = "scatter_add", .policy = CastPolicy::promote, .doc = "x with src[i][j] added at x[index[i][j]][j] for dim 0"};
  static Tensor forward(OpContext& ctx, const Attr& a, const Tensors& in) {
    check_same_dtype("scatter_add", {in[0], in[2]});
    const Tensor out = in[0].clone();
    Tensor src = in[2];
    for (int i = 0; i < src.dim(); ++i) src = src.narrow(i, 0, in[1].shape()[i]);
    backend_for(out.device()).scatter_add(out.view(), a.dim, in[1].view(), src.view());
    ctx.save(in[1]);
    ctx.state = in[2].shape();
    return out;
  }
  static Tensors backward(const OpContext& ctx, const Attr& a, const Tensors& grads) {
    const Tensor& g = grads[0];
    Tensors result{g, Tensor(), Tensor()};
    if (ctx.needs(2)) {
      const Tensor index = ctx.saved(0);
      const Shape& full = std::any_cast<const Shape&>(ctx.state);
      Tensor d = gather(g, a.dim, index);
      for (int i = 0; i < full.size(); ++i)  // parts of src beyond the index took no part
        if (full[i] != d.shape()[i]) {
          Shape rest = d.shape();
          rest[i] = full[i] - rest[i];
          d = cat({d, zeros(rest, {.dtype = d.dtype(), .device = d.device()})}, i);
        }
      result[2] = d;
    }
    return result;
  }
};

struct Cat {
  struct Attr {
    int dim;
    std::vector<int64_t> sizes;
  };
  static constexpr OpInfo info{.name = "cat", .policy = CastPolicy::promote, .doc = "tensors joined along a dimension; dtypes promote"};
  static Tensor forward(OpContext&, const Attr& a, const Tensors& in) {
    DType dtype = in[0].dtype();
    Shape shape = in[0].shape();
    shape[a.dim] = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      dtype = promote(dtype, in[i].dtype());
      shape[a.dim] += a.sizes[i];
    }
    const Tensor out = Tensor::empty(shape, {.dtype = dtype, .device = in[0].device()});
    int64_t at = 0;
    for (const Tensor& t : in) {
      backend_for(out.device()).copy(t.view(), out.alias(t.shape(), out.strides(), at * out.strides()[a.dim]).view());
      at += t.shape()[a.dim];
    }
    return out;
  }
  static Tensors backward(const OpContext& ctx, const Attr& a, const Tensors& grads) {
    Tensors result(a.sizes.size());
    int64_t at = 0;
    for (size_t i = 0; i < a.sizes.size(); ++i) {
      if (ctx.needs(i)) result[i] = grads[0].narrow(a.dim, at, a.sizes[i]);
      at += a.sizes[i];
    }
    return result;
  }
};

constexpr OpInfo kStackInfo{.name = "stack", .policy = CastPolicy::promote, .doc = "tensors joined along a new dimension; made of cat"};

}  // namespace

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  const int d = wrap_dim(dim, x.dim(), "gather");
  if (x.dim() == 0) return gather(x.reshape({1}), 0, index.reshape({-1})).reshape(index.shape());
  check_shapes("gather", x.shape(), index.shape(), d);
  check_index("gather", index, x.shape()[d]);
  return call<Gather>({x, index}, {d, x.shape()});
}
Tensor Tensor::gather(int64_t dim, const Tensor& index) const { return halfstep::gather(*this, dim, index); }

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const int d = wrap_dim(dim, x.dim(), "scatter_add");
  if (x.dim() == 0) return scatter_add(x.reshape({1}), 0, index.reshape({-1}), src.reshape({-1})).reshape({});
  check_shapes("scatter_add", x.shape(), index.shape(), d);
  check<ShapeError>(src.dim() == index.dim(), "scatter_add", "src must have the rank of index ", index.shape(), ", got ", src.shape());
  for (int i = 0; i < src.dim(); ++i)
    check<ShapeError>(index.shape()[i] <= src.shape()[i], "scatter_add", "index ", index.shape(), " must not be larger than src ", src.shape());
  check_index("scatter_add", index, x.shape()[d]);
  return call<ScatterAdd>({x, index, src}, {d});
}

Tensor cat(const Tensors& xs, int64_t dim) {
  check<ValueError>(!xs.empty(), "cat", "needs at least one tensor");
  const int d = wrap_dim(dim, xs[0].dim(), "cat");
  check<ShapeError>(xs[0].dim() > 0, "cat", "0-dim tensors cannot be joined", Help{"use stack"});
  std::vector<int64_t> sizes;
  for (const Tensor& t : xs) {
    Shape other = t.shape();
    if (other.size() == xs[0].dim()) other[d] = xs[0].shape()[d];
    check<ShapeError>(other == xs[0].shape(), "cat", "sizes must agree outside dimension ", d, ", got ", xs[0].shape(), " and ", t.shape());
    sizes.push_back(t.shape()[d]);
  }
  return call<Cat>(xs, {d, sizes});
}

Tensor stack(const Tensors& xs, int64_t dim) {
  check<ValueError>(!xs.empty(), "stack", "needs at least one tensor");
  Tensors rows;
  for (const Tensor& t : xs) {
    check<ShapeError>(t.shape() == xs[0].shape(), "stack", "all tensors must have one shape, got ", xs[0].shape(), " and ", t.shape());
    rows.push_back(t.unsqueeze(dim));
  }
  return cat(rows, dim < 0 ? dim + rows[0].dim() : dim);
}

void add_indexing(OpList& list) {
  list.add(Gather::info, [](Args& a) { return gather(a.tensor(0), a.integer("dim"), a.tensor(1)); });
  list.add(ScatterAdd::info, [](Args& a) { return scatter_add(a.tensor(0), a.integer("dim"), a.tensor(1), a.tensor(2)); });
  list.add(Cat::info, [](Args& a) { return cat(a.list(0), a.integer("dim", 0)); });
  list.add(kStackInfo, [](Args& a) { return stack(a.list(0), a.integer("dim", 0)); });
}

}  // namespace halfstep
