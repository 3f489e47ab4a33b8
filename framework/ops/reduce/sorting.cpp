// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/reduce/sorting.h"

#include <algorithm>
#include <iterator>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/reduce/reductions.h"

namespace halfstep {
namespace {

using Pair = ValuesIndices;

enum class Order : uint8_t { sort, topk, kthvalue };

struct Sort {
  struct Attr {
    Order kind;
    int dim;
    bool descending;
    int64_t k;   // number of elements in the result, along dim
    Shape from;  // of x
  };
  static constexpr OpInfo kInfo[3] = {
      {.name = "sort", .doc = "values and indices in order along a dimension; stable, NaN last", .dtypes = DTypeSet::any},
      {.name = "topk", .doc = "the k largest or smallest and their indices, best first", .dtypes = DTypeSet::any},
      {.name = "kthvalue", .doc = "the k-th smallest and its index", .dtypes = DTypeSet::any}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[int(attr.kind)]; }

  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}, {"descending", attr.descending}, {"k", attr.k}}; }
  static Tensors forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    Shape shape = attr.from;
    shape[attr.dim] = attr.k;
    const Tensor values = Tensor::empty(shape, {.dtype = in[0].dtype(), .device = in[0].device()});
    const Tensor indices = Tensor::empty(shape, {.dtype = DType::i64, .device = in[0].device()});
    backend_for(in[0].device()).sort(in[0].view(), attr.dim, attr.descending, attr.k, values.view(), indices.view());
    ctx.save(indices);
    return {values, indices};
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    if (!grads[0].defined()) return {};
    return {
        scatter_add(zeros(attr.from, {.dtype = grads[0].dtype(), .device = grads[0].device()}), attr.dim, ctx.saved(), grads[0])};
  }
};

// Returns the first k of x along dim in order, and their indices; a 0-dim x is one element.
Pair run_sort(Order kind, const Tensor& x, int dim, bool descending, int64_t k) {
  if (x.dim() == 0) {
    const auto [values, indices] = run_sort(kind, x.reshape({1}), 0, descending, k);
    return k == 1 ? Pair{values.reshape({}), indices.reshape({})} : Pair{values, indices};
  }
  const Tensors out = call<Sort>({x}, {kind, dim, descending, k, x.shape()});
  return {out[0], out[1]};
}

// Returns the size along dim, 1 for a 0-dim tensor.
int64_t length(const Tensor& x, int dim) { return x.dim() == 0 ? 1 : x.shape()[dim]; }

struct Median {
  struct Attr {
    bool skips_nan = false;
  };
  enum Saved : size_t { kX, kMedian };
  static constexpr OpInfo kInfo[2] = {
      {.name = "median", .doc = "the middle value of all, or with its index along a dimension", .dtypes = DTypeSet::numbers},
      {.name = "nanmedian", .doc = "median of the elements that are numbers", .dtypes = DTypeSet::numbers}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.skips_nan]; }
  static void check(const Attr& attr, const Tensors& in) {
    halfstep::check<ShapeError>(in[0].numel() > 0, info_of(attr).name, "has no value for an empty tensor, got ", in[0].shape());
  }
  static Attributes describe(const Attr&) { return {}; }  // nothing besides the name
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor line = in[0].reshape({-1}), y = (attr.skips_nan ? halfstep::nanmedian(line, 0) : halfstep::median(line, 0)).first;
    ctx.save(in[0]);
    ctx.save_output(y);
    return y;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr&, const Tensors& grads) {
    const Tensor x = ctx.saved(kX);
    const Shape one = Dims::filled(x.dim(), 1);
    return {share_gradient(x, ctx.saved(kMedian).reshape(one), grads[0].reshape(one), {})};
  }
};

constexpr OpInfo kModeInfo{
    .name = "mode", .doc = "the value that occurs most often, with its index", .dtypes = DTypeSet::numbers};
constexpr OpInfo kQuantile[2] = {
    {.name = "quantile", .policy = CastPolicy::f32, .doc = "the value below which a share of the elements lies"},
    {.name = "nanquantile", .policy = CastPolicy::f32, .doc = "quantile of the elements that are numbers"}};

// Computes quantiles of x with dim, or all of it, last; q [Q] -> [..., Q].
Tensor last_quantile(const Tensor& x, const Tensor& q, std::string_view interpolation, bool skips_nan) {
  const int64_t n = x.size(-1);
  const Tensor sorted = sort(x, -1).first, numbers = sorted.detach();
  const Tensor is_number = eq(numbers, numbers);
  // NaNs are sorted behind the numbers.
  const Tensor count =
      skips_nan ? sum(is_number, -1, true).to(q.dtype()) : full({1}, double(n), {.dtype = q.dtype(), .device = q.device()});
  Tensor place = clamp_min(q * (count - 1), 0);
  if (!skips_nan) place = where(is_number.narrow(-1, n - 1, 1), place, double(n - 1));
  Shape shape = x.shape();
  shape[x.dim() - 1] = q.size(0);
  place = place.expand(shape);
  const auto at = [&](const Tensor& index) { return gather(sorted, -1, index.to(DType::i64)); };
  const Tensor below = floor(place), above = ceil(place);
  if (interpolation == "lower") return at(below);
  if (interpolation == "higher") return at(above);
  if (interpolation == "nearest") return at(round(place));
  const Tensor share = interpolation == "midpoint" ? full_like(place, 0.5) : place - below;
  return lerp(at(below), at(above), share);
}

// Checks the arguments and computes quantiles; q [Q], of which a q that is a number has one.
Tensor quantiles(const OpInfo& info, const Tensor& x, const Tensor& q, bool q_is_number, std::optional<int64_t> dim, bool keepdim,
                 std::string_view interpolation) {
  constexpr std::string_view kWays[] = {"linear", "lower", "higher", "nearest", "midpoint"};
  check<ValueError>(std::ranges::find(kWays, interpolation) != std::end(kWays), info.name,
                    "interpolation must be linear, lower, higher, nearest or midpoint, got \"", interpolation, '"');
  check<ShapeError>(q.dim() == 1, info.name, "q must be one number or have one dimension, got ", q.shape());
  check<DTypeError>(x.is_floating_point() && q.is_floating_point(), info.name, "needs floating tensors, got ", x.dtype(), " and ",
                    q.dtype());
  const int d = dim ? wrap_dim(*dim, x.dim(), info.name) : 0;
  return composite(info, {x}, [&](const Tensors& in) {
    const Tensor line = dim && x.dim() > 0 ? in[0].movedim(d, -1) : in[0].reshape({-1});
    check<ShapeError>(line.size(-1) > 0, info.name, "has no value for no elements, got ", x.shape());
    const Tensor found = last_quantile(line, q.to(line.dtype()), interpolation, info.name != kQuantile[0].name);
    Tensor out = q_is_number ? found.squeeze(-1) : found.movedim(-1, 0);  // of x's shape without dim
    if (keepdim) {
      Shape shape = dim ? x.shape() : Dims::filled(x.dim(), 1);
      if (dim && x.dim() > 0) shape[d] = 1;
      if (!q_is_number) shape.insert(0, q.size(0));
      out = out.reshape(shape);
    }
    return out;
  });
}
// Return q as a tensor [1] or without its history. Throw ValueError for one outside [0, 1]; a tensor is checked on the CPU only.
Tensor checked_share(const OpInfo& info, const Tensor& x, double q) {
  check<ValueError>(q >= 0 && q <= 1, info.name, "q must lie in [0, 1], got ", q);
  return full({1}, q, {.dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32, .device = x.device()});
}
Tensor checked_shares(const OpInfo& info, const Tensor& q) {
  check<ValueError>(!q.device().is_cpu() || all(logical_and(ge(q, 0), le(q, 1))).item<bool>(), info.name, "q must lie in [0, 1]");
  return q.detach();
}

constexpr OpInfo kArgsortInfo{.name = "argsort", .doc = "the indices that sort", .differentiable = false, .dtypes = DTypeSet::any};
constexpr OpInfo kMsortInfo{.name = "msort", .doc = "values in order along dimension 0", .dtypes = DTypeSet::any};

}  // namespace

Pair sort(const Tensor& x, int64_t dim, bool descending, bool) {
  const int d = wrap_dim(dim, x.dim(), "sort");
  return run_sort(Order::sort, x, d, descending, length(x, d));
}
Tensor argsort(const Tensor& x, int64_t dim, bool descending, bool) {
  const int d = wrap_dim(dim, x.dim(), "argsort");
  return run_sort(Order::sort, x.detach(), d, descending, length(x, d)).second;
}
Tensor msort(const Tensor& x) { return sort(x, 0).first; }

Pair topk(const Tensor& x, int64_t k, int64_t dim, bool largest, bool) {
  const int d = wrap_dim(dim, x.dim(), "topk");
  check<ValueError>(k >= 0 && k <= length(x, d), "topk", "k must lie in [0, ", length(x, d), "], the size of dimension ", dim,
                    " of ", x.shape(), ", got ", k);
  return run_sort(Order::topk, x, d, largest, k);
}

Pair kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
  const int d = wrap_dim(dim, x.dim(), "kthvalue");
  check<ValueError>(k >= 1 && k <= length(x, d), "kthvalue", "k must lie in [1, ", length(x, d), "], the size of dimension ", dim,
                    " of ", x.shape(), ", got ", k);
  const auto [values, indices] = run_sort(Order::kthvalue, x, d, false, k);
  if (x.dim() == 0) return {values, indices};
  const Pair last{values.narrow(d, k - 1, 1), indices.narrow(d, k - 1, 1)};
  return keepdim ? last : Pair{last.first.squeeze(d), last.second.squeeze(d)};
}

Tensor median(const Tensor& x) { return call<Median>({x}); }
Pair median(const Tensor& x, int64_t dim, bool keepdim) {
  const int d = wrap_dim(dim, x.dim(), "median");
  const int64_t n = length(x, d);
  check<ShapeError>(n > 0, "median", "has no value over an empty dimension, got ", x.shape());
  if (x.dim() == 0) return run_sort(Order::kthvalue, x, 0, false, 1);
  Tensor index = kthvalue(x.detach(), (n + 1) / 2, d, true).second;
  if (x.is_floating_point()) {
    const Tensor largest = argmax(x, d, true), value = gather(x.detach(), d, largest);  // the first NaN, if any
    index = where(ne(value, value), largest, index);
  }
  const Tensor value = gather(x, d, index);
  return keepdim ? Pair{value, index} : Pair{value.squeeze(d), index.squeeze(d)};
}

Tensor nanmedian(const Tensor& x) { return call<Median>({x}, {.skips_nan = true}); }
Pair nanmedian(const Tensor& x, int64_t dim, bool keepdim) {
  if (!x.is_floating_point()) return under_name("nanmedian", [&] { return median(x, dim, keepdim); });
  const int d = wrap_dim(dim, x.dim(), "nanmedian");
  check<ShapeError>(length(x, d) > 0, "nanmedian", "has no value over an empty dimension, got ", x.shape());
  if (x.dim() == 0) return run_sort(Order::kthvalue, x, 0, false, 1);
  // NaNs are sorted behind the numbers. Without any number the place is 0, which holds a NaN.
  const Tensor numbers = sum(eq(x.detach(), x.detach()), {d}, true);
  const Tensor place = clamp_min(floor_divide(numbers - 1, 2), 0);
  const Tensor index = gather(argsort(x.detach(), d), d, place), value = gather(x, d, index);
  return keepdim ? Pair{value, index} : Pair{value.squeeze(d), index.squeeze(d)};
}

Pair mode(const Tensor& x, int64_t dim, bool keepdim) {
  const int d = wrap_dim(dim, x.dim(), "mode");
  const int64_t n = length(x, d);
  check<ShapeError>(n > 0, "mode", "has no value over an empty dimension, got ", x.shape());
  if (x.dim() == 0) return run_sort(Order::kthvalue, x, 0, false, 1);
  const auto [sorted, order] = sort(x.detach(), d);
  // Length of the run of equals that ends at each place: the longest run ends at the last occurrence of the mode.
  Shape line = Shape::filled(x.dim(), 1);
  line[d] = n;
  const Tensor at = arange(n, {.device = x.device()}).reshape(line).expand(x.shape());
  const Tensor differs = ne(sorted.narrow(d, 1, n - 1), sorted.narrow(d, 0, n - 1));
  const Tensor starts = cat({at.narrow(d, 0, 1), where(differs, at.narrow(d, 1, n - 1), 0)}, d);
  const Tensor last = argmax(at - cummax(starts, d).first, d, true);
  const Tensor index = gather(order, d, last), value = gather(x, d, index);
  return keepdim ? Pair{value, index} : Pair{value.squeeze(d), index.squeeze(d)};
}

Tensor Tensor::median() const { return halfstep::median(*this); }
Pair Tensor::median(int64_t dim, bool keepdim) const { return halfstep::median(*this, dim, keepdim); }
Tensor Tensor::nanmedian() const { return halfstep::nanmedian(*this); }
Pair Tensor::nanmedian(int64_t dim, bool keepdim) const { return halfstep::nanmedian(*this, dim, keepdim); }
Pair Tensor::mode(int64_t dim, bool keepdim) const { return halfstep::mode(*this, dim, keepdim); }

Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim, bool keepdim, std::string_view interpolation) {
  return quantiles(kQuantile[0], x, checked_share(kQuantile[0], x, q), true, dim, keepdim, interpolation);
}
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim, std::string_view interpolation) {
  const Tensor shares = checked_shares(kQuantile[0], q);
  return quantiles(kQuantile[0], x, q.dim() == 0 ? shares.reshape({1}) : shares, q.dim() == 0, dim, keepdim, interpolation);
}
Tensor nanquantile(const Tensor& x, double q, std::optional<int64_t> dim, bool keepdim, std::string_view interpolation) {
  return quantiles(kQuantile[1], x, checked_share(kQuantile[1], x, q), true, dim, keepdim, interpolation);
}
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim, std::string_view interpolation) {
  const Tensor shares = checked_shares(kQuantile[1], q);
  return quantiles(kQuantile[1], x, q.dim() == 0 ? shares.reshape({1}) : shares, q.dim() == 0, dim, keepdim, interpolation);
}

Pair Tensor::sort(int64_t dim, bool descending) const { return halfstep::sort(*this, dim, descending); }
Tensor Tensor::argsort(int64_t dim, bool descending) const { return halfstep::argsort(*this, dim, descending); }
Pair Tensor::topk(int64_t k, int64_t dim, bool largest) const { return halfstep::topk(*this, k, dim, largest); }

void add_sorting(OpList& list) {
  const auto both = [](const Pair& p) { return Tensors{p.first, p.second}; };
  list.add(Sort::kInfo[0], [both](Args& a) {
    return both(sort(a.tensor(0), a.integer("dim", -1), a.flag("descending", false), a.flag("stable", false)));
  });
  list.add(kArgsortInfo, [](Args& a) {
    return argsort(a.tensor(0), a.integer("dim", -1), a.flag("descending", false), a.flag("stable", false));
  });
  for (const OpInfo& info : kQuantile) {
    const bool skips_nan = &info != &kQuantile[0];
    list.add(info, [skips_nan](Args& a) {
      const Tensor x = a.tensor(0);
      const auto dim = a.integer_or_none("dim");
      const bool keepdim = a.flag("keepdim", false);
      const std::string how = a.text("interpolation", "linear");
      if (a.has_tensor(1))
        return skips_nan ? nanquantile(x, a.tensor(1), dim, keepdim, how) : quantile(x, a.tensor(1), dim, keepdim, how);
      const double q = a.number("q");
      return skips_nan ? nanquantile(x, q, dim, keepdim, how) : quantile(x, q, dim, keepdim, how);
    });
  }
  list.add(kMsortInfo, [](Args& a) { return msort(a.tensor(0)); });
  list.add(Sort::kInfo[1], [both](Args& a) {
    return both(topk(a.tensor(0), a.integer("k"), a.integer("dim", -1), a.flag("largest", true), a.flag("sorted", true)));
  });
  list.add(Sort::kInfo[2],
           [both](Args& a) { return both(kthvalue(a.tensor(0), a.integer("k"), a.integer("dim", -1), a.flag("keepdim", false))); });
  for (const bool skips_nan : {false, true}) {
    list.add(Median::kInfo[skips_nan], [both, skips_nan](Args& a) -> Tensors {
      const std::optional<int64_t> dim = a.integer_or_none("dim");
      if (!dim) return {skips_nan ? nanmedian(a.tensor(0)) : median(a.tensor(0))};
      const bool keepdim = a.flag("keepdim", false);
      return both(skips_nan ? nanmedian(a.tensor(0), *dim, keepdim) : median(a.tensor(0), *dim, keepdim));
    });
  }
  list.add(kModeInfo, [both](Args& a) { return both(mode(a.tensor(0), a.integer("dim", -1), a.flag("keepdim", false))); });
}

ValuesIndices Tensor::kthvalue(int64_t k, int64_t dim, bool keepdim) const {
  return halfstep::kthvalue(*this, k, dim, keepdim);
}
Tensor Tensor::msort() const { return halfstep::msort(*this); }
Tensor Tensor::quantile(double q, std::optional<int64_t> dim, bool keepdim) const {
  return halfstep::quantile(*this, q, dim, keepdim);
}
Tensor Tensor::nanquantile(double q, std::optional<int64_t> dim, bool keepdim) const {
  return halfstep::nanquantile(*this, q, dim, keepdim);
}

}  // namespace halfstep
