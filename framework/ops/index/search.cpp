// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/index/search.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/core/call.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr OpInfo kUnique{.name = "unique",
                         .doc = "the different values, ascending, their places and counts",
                         .differentiable = false,
                         .dtypes = DTypeSet::any};
constexpr OpInfo kUniqueConsecutive{.name = "unique_consecutive",
                                    .doc = "one of each run of equal values, their places and counts",
                                    .differentiable = false,
                                    .dtypes = DTypeSet::any};
constexpr OpInfo kBincount{.name = "bincount",
                           .doc = "how often 0, 1, 2... occur, or the sums of their weights",
                           .differentiable = false,
                           .dtypes = DTypeSet::any};
constexpr OpInfo kSearchsorted{.name = "searchsorted",
                               .doc = "where values go in an ascending sequence; right: behind equals",
                               .differentiable = false,
                               .dtypes = DTypeSet::numbers};
constexpr OpInfo kBucketize{
    .name = "bucketize", .doc = "searchsorted with the arguments exchanged", .differentiable = false, .dtypes = DTypeSet::numbers};

constexpr OpInfo kIsin{
    .name = "isin", .doc = "which elements are among the values", .differentiable = false, .dtypes = DTypeSet::numbers};
constexpr OpInfo kUnravelIndex{.name = "unravel_index",
                               .doc = "the indices along each dimension of positions in a line",
                               .differentiable = false,
                               .dtypes = DTypeSet::any};

TensorOptions int64_options(const Tensor& like) { return {.dtype = DType::i64, .device = like.device()}; }

// Returns one of each run of equal neighbours of a line. inverse: in the line's own order.
Unique unique_neighbours(std::string_view op, const Tensor& line) {
  check_has_values(op, {line});
  const int64_t n = line.size(0);
  if (n == 0) return {line.clone(), zeros({0}, int64_options(line)), zeros({0}, int64_options(line))};
  const Tensor first =
      cat({ones({1}, {.dtype = DType::boolean, .device = line.device()}), ne(line.narrow(0, 1, n - 1), line.narrow(0, 0, n - 1))});
  const Tensor at = nonzero(first).squeeze(1),
               end = cat({at.narrow(0, 1, at.size(0) - 1), full({1}, double(n), int64_options(line))});
  return {index_select(line, 0, at), sub(cumsum(first, 0), 1), sub(end, at)};
}

// Returns the different rows [n, m] in lexicographic order, or, if consecutive, one of each run of equal neighbours. Computes on
// the host, in T.
template <class T>
Unique unique_rows(const Tensor& rows, bool consecutive) {
  const int64_t n = rows.size(0), m = rows.size(1);
  const std::vector<T> values = rows.to_vector<T>();
  const auto row = [&](int64_t i) { return std::span<const T>(values).subspan(size_t(i * m), size_t(m)); };
  std::vector<int64_t> order(static_cast<size_t>(n)), inverse(order.size()), kept, counts;
  std::iota(order.begin(), order.end(), 0);
  if (!consecutive)
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return std::ranges::lexicographical_compare(row(a), row(b)); });
  for (int64_t i : order) {
    if (kept.empty() || !std::ranges::equal(row(kept.back()), row(i))) kept.push_back(i), counts.push_back(0);
    ++counts.back();
    inverse[size_t(i)] = int64_t(kept.size()) - 1;
  }
  const auto tensor_of = [&](const std::vector<int64_t>& list) {
    return from_vector(list, {int64_t(list.size())}, Device::cpu).to(rows.device());
  };
  return {index_select(rows, 0, tensor_of(kept)), tensor_of(inverse), tensor_of(counts)};
}

// Returns the different slices of x along dim, or, if consecutive, one of each run of equal neighbours.
Unique unique_along(const Tensor& x, int64_t dim, std::string_view op, bool consecutive) {
  check_has_values(op, {x});
  const int d = wrap_dim(dim, x.dim(), op);
  check<ShapeError>(x.dim() > 0, op, "a 0-dim tensor has no slices");
  const Tensor front = x.movedim(d, 0), rows = front.reshape({x.size(d), x.size(d) ? x.numel() / x.size(d) : 0});
  Unique out = x.is_floating_point() ? unique_rows<double>(rows, consecutive) : unique_rows<int64_t>(rows, consecutive);
  Shape shape = front.shape();
  shape[0] = out.values.size(0);
  out.values = contiguous(out.values.reshape(shape).movedim(0, d));
  return out;
}

}  // namespace

Unique unique(const Tensor& x, std::optional<int64_t> dim) {
  const NoGrad off;
  check_has_values("unique", {x});
  if (dim) return unique_along(x, *dim, "unique", /*consecutive=*/false);
  const auto [sorted, order] = sort(x.reshape({-1}), 0);
  Unique out = unique_neighbours("unique", sorted);
  out.inverse = zeros({x.numel()}, int64_options(x)).scatter(0, order, out.inverse).reshape(x.shape());
  return out;
}

Unique unique_consecutive(const Tensor& x, std::optional<int64_t> dim) {
  const NoGrad off;
  if (dim) return unique_along(x, *dim, "unique_consecutive", /*consecutive=*/true);
  Unique out = unique_neighbours("unique_consecutive", x.reshape({-1}));
  out.inverse = out.inverse.reshape(x.shape());
  return out;
}

Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength) {
  const NoGrad off;
  check_has_values("bincount", {x});
  check<DTypeError>(!x.is_floating_point() && x.dtype() != DType::boolean, "bincount", "needs integers, got ", x.dtype());
  check<ShapeError>(x.dim() == 1, "bincount", "needs one dimension, got ", x.shape());
  check<ValueError>(minlength >= 0, "bincount", "minlength must not be negative, got ", minlength);
  int64_t length = minlength;
  if (x.numel() > 0) {
    const auto [least, largest] = aminmax(x);
    check<ValueError>(least.item<int64_t>() >= 0, "bincount", "needs numbers that are not negative, got ", least.item<int64_t>());
    const int64_t last = largest.item<int64_t>();
    constexpr int64_t kMostCounts = int64_t(1) << 40;
    check<ValueError>(last < kMostCounts, "bincount", "would have ", last, " + 1 counts, more than 2^40");
    length = std::max(length, last + 1);
  }
  Tensor each = ones({x.numel()}, int64_options(x));
  if (weights.defined()) {
    check_same_device("bincount", {x, weights});
    check<ShapeError>(weights.shape() == x.shape(), "bincount", "weights must have x's shape ", x.shape(), ", got ",
                      weights.shape());
    each = weights.is_floating_point() ? weights : weights.to(DType::f64);
  }
  return index_add(zeros({length}, {.dtype = each.dtype(), .device = x.device()}), 0, x.to(DType::i64), each);
}

namespace {

// Returns the place of each element of x in `sorted`, whose last dimension is not empty: before equal elements, or behind them.
Tensor bisect(const Tensor& sorted, const Tensor& x, bool right) {
  const int64_t n = sorted.size(-1);
  Tensor low = zeros(x.shape(), int64_options(x)), high = full(x.shape(), n, int64_options(x));
  // Halves the interval [low, high] in each step; a place that is found stays.
  for (int64_t span = n; span > 0; span /= 2) {
    const Tensor middle = floor_divide(add(low, high), 2), at = gather(sorted, -1, clamp_max(middle, n - 1));
    const Tensor open = lt(low, high), behind = logical_not(right ? gt(at, x) : ge(at, x));
    low = where(open & behind, add(middle, 1), low);
    high = where(open & ~behind, middle, high);
  }
  return low;
}

}  // namespace

Tensor searchsorted(const Tensor& given, const Tensor& values, const SearchOptions& options) {
  const NoGrad off;
  constexpr std::string_view op = "searchsorted";
  check_same_device(op, {given, values, options.sorter});
  check<ValueError>(given.defined() && values.defined(), op, "an input is undefined");
  Tensor sorted = given;
  if (options.sorter.defined()) {
    check<DTypeError>(options.sorter.dtype() == DType::i64, op, "sorter must be int64, got ", options.sorter.dtype());
    check<ShapeError>(options.sorter.shape() == given.shape(), op, "sorter must have the sequence's shape ", given.shape(),
                      ", got ", options.sorter.shape());
    check<ShapeError>(given.dim() >= 1, op, "the sequence must have a dimension, got ", given.shape());
    sorted = gather(given.detach(), -1, options.sorter);
  }
  const auto result = [&](const Tensor& places) {
    check<ValueError>(!options.out_int32 || sorted.size(-1) < std::numeric_limits<int32_t>::max(), op,
                      "a sequence of that many numbers has places beyond int32, got ", sorted.shape());
    return places.reshape(values.shape()).to(options.out_int32 ? DType::i32 : DType::i64);
  };
  check<ShapeError>(sorted.dim() >= 1, op, "the sequence must have a dimension, got ", sorted.shape());
  const int64_t n = sorted.shape().back();
  const bool line = sorted.dim() == 1;
  Shape outer = sorted.shape(), of_values = values.shape();
  if (!line) {
    check<ShapeError>(values.dim() == sorted.dim(), op, "values must have the sequences' rank ", sorted.dim(), ", got ", of_values);
    outer[sorted.dim() - 1] = of_values[values.dim() - 1];
    check<ShapeError>(outer == of_values, op, "values and sequences must agree but for the last dimension, got ", of_values,
                      " and ", sorted.shape());
  }
  const Tensor x = line ? values.reshape({-1}) : values;
  return result(n == 0 ? zeros(x.shape(), int64_options(x)) : bisect(sorted.detach(), x, options.right));
}

Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right, bool out_int32) {
  check<ShapeError>(boundaries.dim() == 1, "bucketize", "boundaries must have one dimension, got ", boundaries.shape());
  return searchsorted(boundaries, x, {.right = right, .out_int32 = out_int32});
}

Tensor isin(const Tensor& x, const Tensor& values, bool invert) {
  const NoGrad off;
  check_same_device(kIsin.name, {x, values});
  if (values.numel() == 0) return full_like(x, invert).to(DType::boolean);
  const Tensor sorted = sort(values.detach().reshape({-1}), 0).first;
  const Tensor place = clamp_max(searchsorted(sorted, x.detach()), values.numel() - 1);
  const Tensor found = eq(index_select(sorted, 0, place.reshape({-1})).reshape(x.shape()), x.detach());
  return invert ? logical_not(found) : found;
}

Tensors unravel_index(const Tensor& positions, const Shape& shape) {
  const NoGrad off;
  constexpr std::string_view op = kUnravelIndex.name;
  check<DTypeError>(positions.defined() && is_integral(positions.dtype()) && positions.dtype() != DType::boolean, op,
                    "positions must be integers");
  check_size(op, shape);
  const int64_t n = numel(shape);
  if (positions.numel() > 0 && !positions.device().is_meta()) {
    const auto [least, largest] = aminmax(positions);
    check<IndexError>(least.item<int64_t>() >= 0 && largest.item<int64_t>() < n, op, "positions must lie in [0, ", n,
                      "), the elements of ", shape, ", got ", least.item<int64_t>(), " to ", largest.item<int64_t>());
  }
  Tensors out(size_t(shape.size()));
  Tensor rest = positions.to(DType::i64);
  for (int d = shape.size() - 1; d >= 0; --d) {
    out[size_t(d)] = remainder(rest, shape[d]);
    rest = floor_divide(rest, shape[d]);
  }
  return out;
}

void add_search(OpList& list) {
  const auto parts = [](Args& a, const Unique& u) {
    Tensors out{u.values};
    if (a.flag("return_inverse", false)) out.push_back(u.inverse);
    if (a.flag("return_counts", false)) out.push_back(u.counts);
    return out;
  };
  list.add(kUnique, [parts](Args& a) {
    a.flag("sorted", true);  // always true
    return parts(a, unique(a.tensor(0), a.integer_or_none("dim")));
  });
  list.add(kUniqueConsecutive, [parts](Args& a) { return parts(a, unique_consecutive(a.tensor(0), a.integer_or_none("dim"))); });
  list.add(kBincount, [](Args& a) { return bincount(a.tensor(0), a.tensor_or_none(1), a.integer("minlength", 0)); });
  list.add(kSearchsorted, [](Args& a) {
    const std::string side = a.text("side", a.flag("right", false) ? "right" : "left");
    check<ValueError>(side == "left" || side == "right", a.op(), "'side' must be left or right, got '", side, "'");
    check<ValueError>(side == "right" || !a.flag("right", false), a.op(), "'side' left and 'right' true contradict each other");
    // A number instead of values means one value.
    const Tensor sorted = a.tensor(0);
    const auto tensor_of_number = [&](Number value) {
      check_fits(a.op(), value, value.natural_dtype());
      return full({}, value, {.device = sorted.device()});
    };
    const Tensor values = a.has_tensor(1) ? a.tensor(1) : tensor_of_number(a.scalar("self"));
    return searchsorted(sorted, values, {side == "right", a.flag("out_int32", false), a.tensor_or_none(2)});
  });
  list.add(kIsin, [](Args& a) {
    a.flag("assume_unique", false);  // has no effect
    return isin(a.tensor(0), a.tensor(1), a.flag("invert", false));
  });
  list.add(kUnravelIndex, [](Args& a) { return unravel_index(a.tensor(0), a.ints("shape")); });
  list.add(kBucketize,
           [](Args& a) { return bucketize(a.tensor(0), a.tensor(1), a.flag("right", false), a.flag("out_int32", false)); });
}

Tensor Tensor::bincount(const Tensor& weights, int64_t minlength) const { return halfstep::bincount(*this, weights, minlength); }

}  // namespace halfstep
