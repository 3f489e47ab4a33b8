// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/reduce/scans.h"

#include "framework/ops/core/call.h"
#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/reduce/reductions.h"

namespace halfstep {
namespace {

Tensor run_scan(Scan op, const Tensor& x, int dim, bool reverse, DType dtype) {
  const Tensor out = Tensor::empty(x.shape(), {.dtype = dtype, .device = x.device()});
  backend_for(x.device()).scan(op, x.view(), dim, reverse, out.view());
  return out;
}

// Scans in log2 n steps: after each step an element covers twice as many before it. join(earlier, later) takes tensors.
template <class Join>
Tensor by_doubling(Tensor x, int64_t dim, const Join& join) {
  const int64_t n = x.dim() == 0 ? 1 : x.size(dim);
  for (int64_t d = 1; d < n; d *= 2) x = cat({x.narrow(dim, 0, d), join(x.narrow(dim, 0, n - d), x.narrow(dim, d, n - d))}, dim);
  return x;
}

// reverse: sums from the end. The gradient of sums is sums in the other direction.
struct CumSum {
  struct Attr {
    int dim;
    bool reverse;
    std::optional<DType> dtype;
  };
  static constexpr OpInfo info{.name = "cumsum",
                               .policy = CastPolicy::f32_output,
                               .doc = "running sums along a dimension; integers in int64",
                               .dtypes = DTypeSet::any,
                               .takes_dtype = true};
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}, {"reverse", attr.reverse}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    return run_scan(Scan::sum, in[0], attr.dim, attr.reverse, sum_dtype(in[0], attr.dtype));
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    return {call<CumSum>({grads[0]}, {attr.dim, !attr.reverse, {}})};
  }
};

struct CumProd {
  struct Attr {
    int dim;
    std::optional<DType> dtype;
  };
  static constexpr OpInfo info{.name = "cumprod",
                               .policy = CastPolicy::f32_output,
                               .doc = "running products along a dimension; integers in int64",
                               .dtypes = DTypeSet::any,
                               .takes_dtype = true};
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    ctx.save(in[0]);
    return run_scan(Scan::prod, in[0], attr.dim, false, sum_dtype(in[0], attr.dtype));
  }
  // Returns sum over i >= j of g[i] y[i] / x[j] before the first zero; at it the same with 1 in its place; 0 after it.
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor x = widened(ctx.saved()), g = widened(grads[0]), zero = eq(x, 0);
    const Tensor first = logical_and(zero, eq(run_scan(Scan::sum, zero, attr.dim, false, DType::i64), 1));
    const auto sums_above = [&](const Tensor& t) {
      return run_scan(Scan::sum, g * run_scan(Scan::prod, t, attr.dim, false, t.dtype()), attr.dim, true, t.dtype());
    };
    return {where(first, sums_above(where(first, 1, x)), where(zero, 0, sums_above(x) / x))};
  }
  static Tensor composite(const Attr& attr, const Tensors& in) {
    return by_doubling(widened(in[0]).clone(), attr.dim, [](const Tensor& u, const Tensor& v) { return u * v; });
  }
};

constexpr OpInfo kLogInfo{.name = "logcumsumexp", .doc = "ln of the running sums of e^x"};
constexpr OpInfo kCumulativeInfo[2] = {
    {.name = "cummin", .doc = "smallest so far and its index, the last of equals", .dtypes = DTypeSet::any},
    {.name = "cummax", .doc = "largest so far and its index, the last of equals", .dtypes = DTypeSet::any}};
constexpr OpInfo kDiffInfo{.name = "diff", .doc = "differences of neighbours, n times over", .dtypes = DTypeSet::any};

// Returns the index of the extreme so far, by doubling.
Tensor index_so_far(bool largest, const Tensor& x, int dim) {
  const NoGrad quiet;
  Shape along = Dims::filled(x.dim(), 1);
  along[dim] = x.shape()[dim];
  const Tensor own = arange(double(along[dim]), {.dtype = DType::i64, .device = x.device()}).reshape(along).expand(x.shape());
  return by_doubling(own.clone(), dim, [&](const Tensor& earlier, const Tensor& later) {
    const Tensor a = gather(x, dim, earlier), b = gather(x, dim, later);
    return where(logical_or(ne(b, b), largest ? ge(b, a) : le(b, a)), later, earlier);  // NaN, or an equal, too
  });
}
// Returns the extremes so far along dim, and their indices.
ValuesIndices extremes_so_far(bool largest, const Tensor& x, int64_t dim) {
  const int d = wrap_dim(dim, x.dim(), kCumulativeInfo[largest].name);
  if (x.dim() == 0) return {x.clone(), zeros({}, {.dtype = DType::i64, .device = x.device()})};
  const Tensor index = index_so_far(largest, x, d);
  return {gather(x, d, index), index};
}

}  // namespace

Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  return call<CumSum>({before_sum(x, dtype)}, {wrap_dim(dim, x.dim(), "cumsum"), false, dtype});
}
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  return call<CumProd>({before_sum(x, dtype)}, {wrap_dim(dim, x.dim(), "cumprod"), dtype});
}
Tensor logcumsumexp(const Tensor& x, int64_t dim) {
  const int d = wrap_dim(dim, x.dim(), "logcumsumexp");
  check_floating("logcumsumexp", {x});
  return composite(kLogInfo, {x}, [d](const Tensors& in) {
    return by_doubling(in[0].clone(), d, [](const Tensor& u, const Tensor& v) { return logaddexp(u, v); });
  });
}
ValuesIndices cummax(const Tensor& x, int64_t dim) { return extremes_so_far(true, x, dim); }
ValuesIndices cummin(const Tensor& x, int64_t dim) { return extremes_so_far(false, x, dim); }

Tensor diff(const Tensor& x, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) {
  check<ShapeError>(x.dim() > 0, "diff", "needs a tensor of at least one dimension, got ", x.shape());
  check<ValueError>(n >= 0, "diff", "n must not be negative, got ", n);
  const int d = wrap_dim(dim, x.dim(), "diff");
  if (n == 0) return clone(x);  // as in PyTorch, which then joins nothing
  return composite(kDiffInfo, {x, prepend, append}, [&](const Tensors& in) {
    Tensors parts;
    for (size_t i : {1, 0, 2})
      if (in[i].defined()) parts.push_back(in[i]);
    Tensor y = parts.size() > 1 ? cat(parts, d) : in[0];
    for (int64_t k = 0; k < n && y.size(d) > 0; ++k) {
      const int64_t left = y.size(d) - 1;
      const Tensor later = y.narrow(d, 1, left), earlier = y.narrow(d, 0, left);
      y = y.dtype() == DType::boolean ? ne(later, earlier) : later - earlier;
    }
    return y;
  });
}

Tensor Tensor::cumsum(int64_t dim, std::optional<DType> dtype) const { return halfstep::cumsum(*this, dim, dtype); }
Tensor Tensor::cumprod(int64_t dim, std::optional<DType> dtype) const { return halfstep::cumprod(*this, dim, dtype); }

void add_scans(OpList& list) {
  list.add(CumSum::info, [](Args& a) { return cumsum(a.tensor(0), a.integer("dim"), a.dtype()); });
  list.add(CumProd::info, [](Args& a) { return cumprod(a.tensor(0), a.integer("dim"), a.dtype()); });
  list.add(kLogInfo, [](Args& a) { return logcumsumexp(a.tensor(0), a.integer("dim")); });
  for (bool largest : {false, true}) {
    list.add(kCumulativeInfo[largest], [largest](Args& a) -> Tensors {
      const auto [values, indices] = extremes_so_far(largest, a.tensor(0), a.integer("dim"));
      return {values, indices};
    });
  }
  list.add(kDiffInfo, [](Args& a) {
    return diff(a.tensor(0), a.integer("n", 1), a.integer("dim", -1), a.tensor_or_none(1), a.tensor_or_none(2));
  });
}

ValuesIndices Tensor::cummax(int64_t dim) const { return halfstep::cummax(*this, dim); }
ValuesIndices Tensor::cummin(int64_t dim) const { return halfstep::cummin(*this, dim); }
Tensor Tensor::logcumsumexp(int64_t dim) const { return halfstep::logcumsumexp(*this, dim); }
Tensor Tensor::diff(int64_t n, int64_t dim) const { return halfstep::diff(*this, n, dim); }

}  // namespace halfstep
