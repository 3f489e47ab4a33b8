// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/index/masks.h"

#include <algorithm>
#include <limits>

#include "framework/ops/core/call.h"
#include "framework/ops/core/in_place.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/index/index_ops.h"
#include "framework/ops/index/indices.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr OpInfo kMaskedFillInfo{
    .name = "masked_fill", .doc = "value where mask is true, else x; made of where", .dtypes = DTypeSet::any};
constexpr OpInfo kMaskedSelectInfo{
    .name = "masked_select", .doc = "the elements where mask is true, in order; made of index", .dtypes = DTypeSet::any};
constexpr OpInfo kMaskedScatterInfo{.name = "masked_scatter",
                                    .doc = "x with the first elements of src where mask is true; made of index_put",
                                    .dtypes = DTypeSet::any};
constexpr OpInfo kTrilInfo{.name = "tril", .doc = "x on and below a diagonal, 0 above; made of where", .dtypes = DTypeSet::any};
constexpr OpInfo kTriuInfo{.name = "triu", .doc = "x on and above a diagonal, 0 below; made of where", .dtypes = DTypeSet::any};
constexpr OpInfo kNonzeroInfo{
    .name = "nonzero", .doc = "the indices of the elements that are not 0", .differentiable = false, .dtypes = DTypeSet::any};
constexpr OpInfo kTrilIndicesInfo{
    .name = "tril_indices", .doc = "the places that tril keeps", .differentiable = false, .dtypes = DTypeSet::any};
constexpr OpInfo kTriuIndicesInfo{
    .name = "triu_indices", .doc = "the places that triu keeps", .differentiable = false, .dtypes = DTypeSet::any};
constexpr OpInfo kEqualInfo{.name = "equal",
                            .policy = CastPolicy::keep,
                            .doc = "one shape and equal values",
                            .differentiable = false,
                            .dtypes = DTypeSet::any};
constexpr OpInfo kIscloseInfo{
    .name = "isclose", .doc = "|a - b| <= atol + rtol |b|", .differentiable = false, .dtypes = DTypeSet::any};
constexpr OpInfo kAllcloseInfo{
    .name = "allclose", .doc = "|a - b| <= atol + rtol |b| everywhere", .differentiable = false, .dtypes = DTypeSet::any};

void check_mask(std::string_view op, const Tensor& x, const Tensor& mask) {
  check_same_device(op, {x, mask});
  check<DTypeError>(mask.defined() && mask.dtype() == DType::boolean, op, "mask must be bool");
}

// Converts the value to x's dtype.
Tensor as_value(std::string_view op, const Tensor& x, const Tensor& value) {
  check<ShapeError>(value.defined() && value.dim() == 0, op, "value must be a number or a 0-dim tensor");
  return value.to(x.device()).to(x.dtype());
}

// Makes a number in x's dtype, as an operand of where. Integers are truncated as in a cast.
Tensor number_operand(const Tensor& x, Number value, std::string_view op = kMaskedFillInfo.name) {
  check_fits(op, value, x.dtype());
  if (x.is_floating_point()) return wrapped_number(value, x);
  const Tensor truncated = scalar(value, {.dtype = x.dtype()}).to(x.dtype() == DType::boolean ? DType::boolean : DType::i64);
  truncated.impl()->wrapped_number = true;
  return truncated;
}

// Writes `value` into x where the mask is true.
const Tensor& fill_in_place(const Tensor& x, const Tensor& mask, const Tensor& value) {
  constexpr std::string_view op = "masked_fill_";
  check_mask(op, x, mask);
  check<ShapeError>(broadcast(x.shape(), mask.shape(), op) == x.shape(), op, "mask ", mask.shape(), " must broadcast to ",
                    x.shape());
  const auto run = [&] {
    backend_for(x.device()).where(broadcast_view(mask, x.shape()), broadcast_view(value, x.shape()), x.view(), x.view());
  };
  return change_in_place(op, x, {mask, value}, run, [&] { return where(mask, value, x); });
}

// Returns column <= row + diagonal for the last two dimensions of a shape.
Tensor lower_mask(std::string_view op, const Shape& shape, int64_t diagonal, Device device) {
  check<ShapeError>(shape.size() >= 2, op, "needs at least 2 dimensions, got ", shape);
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  constexpr int64_t kExactInFloat = 1 << 23;
  const TensorOptions exact{.dtype = rows + columns < kExactInFloat ? DType::f32 : DType::i64, .device = device};
  const double shift = double(std::clamp(diagonal, -rows - 1, columns + 1));
  return le(arange(double(columns), exact), arange(shift, shift + double(rows), 1, exact).unsqueeze(1));
}

// Lists the rows and columns on one side of a diagonal, [2, n].
Tensor triangle_indices(std::string_view op, int64_t rows, int64_t columns, int64_t offset, bool lower, Device device) {
  check<ValueError>(rows >= 0 && columns >= 0, op, "sizes must not be negative, got ", rows, " and ", columns);
  check<ValueError>(rows < (1 << 24) && columns < (1 << 24), op, "sizes must be below 2^24, got ", rows, " and ", columns);
  const auto columns_of = [&](int64_t row) -> std::pair<int64_t, int64_t> {
    const int64_t edge = row + std::clamp(offset, -rows - 1, columns + 1);  // column of the diagonal
    if (lower) return {0, std::clamp<int64_t>(edge + 1, 0, columns)};
    return {std::clamp<int64_t>(edge, 0, columns), columns};
  };
  int64_t n = 0;
  for (int64_t row = 0; row < rows; ++row) n += columns_of(row).second - columns_of(row).first;
  const Tensor out = Tensor::empty({2, n}, {.dtype = DType::i64, .device = Device::cpu});
  int64_t* to = out.data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    for (auto [column, end] = columns_of(row); column < end; ++column, ++to) {
      to[0] = row;
      to[n] = column;
    }
  }
  return out.to(device);
}

constexpr OpInfo kLogicalNot{.name = "logical_not", .doc = "is it 0", .differentiable = false, .dtypes = DTypeSet::any};

}  // namespace

Tensor logical_not(const Tensor& x) { return eq(x, 0.0); }
Tensor Tensor::logical_not() const { return halfstep::logical_not(*this); }
Tensors where(const Tensor& cond) { return nonzero_as_tuple(cond); }

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  check_mask("masked_fill", x, mask);
  broadcast(x.shape(), mask.shape(), "masked_fill");
  return where(mask, as_value("masked_fill", x, value), x);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value) {
  check_mask("masked_fill", x, mask);
  broadcast(x.shape(), mask.shape(), "masked_fill");
  return where(mask, number_operand(x, value), x);
}
Tensor Tensor::masked_fill(const Tensor& mask, Number value) const { return halfstep::masked_fill(*this, mask, value); }
Tensor Tensor::masked_fill(const Tensor& mask, const Tensor& value) const { return halfstep::masked_fill(*this, mask, value); }
const Tensor& Tensor::masked_fill_(const Tensor& mask, Number value) const& {
  return fill_in_place(*this, mask, number_operand(*this, value, "masked_fill_"));
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  check_mask("masked_select", x, mask);
  const Shape shape = broadcast(x.shape(), mask.shape(), "masked_select");
  check_has_values("masked_select", {mask});
  return index(x.expand(shape).reshape({-1}), {mask.expand(shape).reshape({-1})});
}
Tensor Tensor::masked_select(const Tensor& mask) const { return halfstep::masked_select(*this, mask); }

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src) {
  constexpr std::string_view op = "masked_scatter";
  check_mask(op, x, mask);
  check_same_device(op, {x, src});
  check_same_dtype(op, {x, src});
  check_has_values(op, {mask});
  const Shape shape = broadcast(x.shape(), mask.shape(), op);
  const Tensor to = shape.empty() ? x.reshape({1}) : x.expand(shape), where_true = nonzero(mask.expand(to.shape()));
  const int64_t n = where_true.shape()[0];
  check<ShapeError>(src.numel() >= n, op, "mask is true ", n, " times, but src has ", src.numel(), " elements");
  Tensors indices;
  for (int d = 0; d < to.dim(); ++d) indices.push_back(where_true.select(1, d));
  const autocast::Off off;
  return index_put(to, indices, src.reshape({-1}).narrow(0, 0, n)).reshape(shape);
}

Tensor nonzero(const Tensor& x) {
  check<ValueError>(x.defined(), "nonzero", "x is undefined");
  check_has_values("nonzero", {x});
  const NoGrad quiet;
  const Tensor mask = (x.dtype() == DType::boolean ? x.detach() : ne(x.detach(), 0)).to(Device::cpu).contiguous();
  const uint8_t* bits = static_cast<const uint8_t*>(mask.data_ptr());
  const int64_t n = mask.numel(), rank = x.dim(), row = rank ? x.shape().back() : 1;
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += bits[i];
  const Tensor out = Tensor::empty({count, rank}, {.dtype = DType::i64, .device = Device::cpu});
  int64_t *to = out.data_ptr<int64_t>(), *const end = to + count * rank;
  Dims at = Dims::filled(int(rank), 0);
  for (int64_t first = 0; to < end; first += row) {
    // Without a branch: the next element overwrites one whose mask is false.
    for (int64_t i = 0; i < row && to < end; ++i) {
      for (int d = 0; d < rank - 1; ++d) to[d] = at[d];
      to[rank - 1] = i;
      to += bits[first + i] ? rank : 0;
    }
    for (int64_t d = rank - 2; d >= 0 && ++at[int(d)] == x.shape()[int(d)]; --d) at[int(d)] = 0;
  }
  return out.to(x.device());
}

Tensors nonzero_as_tuple(const Tensor& x) {
  check<ValueError>(x.defined(), "nonzero", "x is undefined");
  return unbind(nonzero(x.dim() == 0 ? x.reshape({1}) : x), 1);
}

Tensor tril(const Tensor& x, int64_t diagonal) {
  const Tensor mask = lower_mask("tril", x.shape(), diagonal, x.device());
  return where(mask, x, number_operand(x, 0));
}
Tensor triu(const Tensor& x, int64_t diagonal) {
  check<ValueError>(diagonal > std::numeric_limits<int64_t>::min(), "triu", "diagonal is out of range");
  const Tensor mask = lower_mask("triu", x.shape(), diagonal - 1, x.device());
  return where(mask, number_operand(x, 0), x);
}
Tensor Tensor::tril(int64_t diagonal) const { return halfstep::tril(*this, diagonal); }
Tensor Tensor::triu(int64_t diagonal) const { return halfstep::triu(*this, diagonal); }
const Tensor& Tensor::tril_(int64_t diagonal) const& {
  check_in_place(*this, shape(), dtype(), false, "tril_");
  return assign_in_place(*this, halfstep::tril(*this, diagonal), "tril_");
}
const Tensor& Tensor::triu_(int64_t diagonal) const& {
  check_in_place(*this, shape(), dtype(), false, "triu_");
  return assign_in_place(*this, halfstep::triu(*this, diagonal), "triu_");
}

Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset, Device device) {
  return triangle_indices("tril_indices", rows, columns, offset, true, device);
}
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset, Device device) {
  return triangle_indices("triu_indices", rows, columns, offset, false, device);
}

bool equal(const Tensor& a, const Tensor& b) {
  Tensors in{a, b};
  check_same_device("equal", in);
  check<ValueError>(a.defined() && b.defined(), "equal", "an input is undefined");
  if (a.shape() == b.shape()) check_has_values("equal", in);
  const NoGrad quiet;
  return a.shape() == b.shape() && all(eq(a.detach(), b.detach())).item<bool>();
}

namespace {

// Returns |x - y|: in the dtype of floating tensors, in which a tolerance of 0.1 is their 0.1; else in float64, from a difference
// of integers where that fits.
Tensor distance_of(const Tensor& x, const Tensor& y) {
  if (x.is_floating_point()) return abs(sub(x, y));
  const Tensor wide = abs(sub(x.to(DType::f64), y.to(DType::f64)));
  return where(lt(wide, 0x1p62), abs(sub(x.to(DType::i64), y.to(DType::i64))).to(DType::f64), wide);
}

// Returns where |a - b| <= atol + rtol |b|.
Tensor close_elements(std::string_view op, const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  check_same_device(op, {a, b});
  check<ValueError>(a.defined() && b.defined(), op, "an input is undefined");
  check_same_dtype(op, {a, b});
  check<ValueError>(rtol >= 0 && atol >= 0, op, "tolerances must not be negative, got ", rtol, " and ", atol);
  broadcast(a.shape(), b.shape(), op);
  const NoGrad quiet;
  const autocast::Off off;
  const Tensor x = a.detach(), y = b.detach();
  // eq accepts equal infinities, and isfinite rejects different ones.
  Tensor close = eq(x, y);
  if (rtol > 0 || atol > 0) {
    const Tensor distance = distance_of(x, y);
    close = logical_or(close, logical_and(isfinite(distance), le(distance, add(mul(abs(y.to(distance.dtype())), rtol), atol))));
  }
  if (equal_nan) close = logical_or(close, logical_and(isnan(x), isnan(y)));
  return close;
}

}  // namespace

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  return close_elements("isclose", a, b, rtol, atol, equal_nan);
}
Tensor Tensor::isclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  return halfstep::isclose(*this, other, rtol, atol, equal_nan);
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  const Tensor close = close_elements("allclose", a, b, rtol, atol, equal_nan);
  check_has_values("allclose", {close});
  return all(close).item<bool>();
}

void add_masks(OpList& list) {
  list.add(kMaskedFillInfo, [](Args& a) {
    const Tensor x = a.tensor(0), mask = a.tensor(1);
    return a.has_tensor(2) ? masked_fill(x, mask, a.tensor(2)) : masked_fill(x, mask, a.scalar("value"));
  });
  list.add(kLogicalNot, [](Args& a) { return logical_not(a.tensor(0)); });
  list.add(kMaskedSelectInfo, [](Args& a) { return masked_select(a.tensor(0), a.tensor(1)); });
  list.add(kMaskedScatterInfo, [](Args& a) { return masked_scatter(a.tensor(0), a.tensor(1), a.tensor(2)); });
  list.add(kTrilInfo, [](Args& a) { return tril(a.tensor(0), a.integer("diagonal", 0)); });
  list.add(kTriuInfo, [](Args& a) { return triu(a.tensor(0), a.integer("diagonal", 0)); });
  list.add(kNonzeroInfo, [](Args& a) {
    const Tensor x = a.tensor(0);
    return a.flag("as_tuple", false) ? nonzero_as_tuple(x) : Tensors{nonzero(x)};
  });
  list.add(kTrilIndicesInfo, [](Args& a) {
    return tril_indices(a.integer("row"), a.integer("col"), a.integer("offset", 0)).to(a.dtype().value_or(DType::i64));
  });
  list.add(kTriuIndicesInfo, [](Args& a) {
    return triu_indices(a.integer("row"), a.integer("col"), a.integer("offset", 0)).to(a.dtype().value_or(DType::i64));
  });
  list.add(kEqualInfo, [](Args& a) {
    const Tensor x = a.tensor(0);
    return scalar(equal(x, a.tensor(1)), {.dtype = DType::boolean, .device = x.device()});
  });
  list.add(kIscloseInfo, [](Args& a) {
    const Tensor x = a.tensor(0), y = a.tensor(1);
    const double rtol = a.number("rtol", 1e-5), atol = a.number("atol", 1e-8);
    return isclose(x, y, rtol, atol, a.flag("equal_nan", false));
  });
  list.add(kAllcloseInfo, [](Args& a) {
    const Tensor x = a.tensor(0), y = a.tensor(1);
    const double rtol = a.number("rtol", 1e-5), atol = a.number("atol", 1e-8);
    return scalar(allclose(x, y, rtol, atol, a.flag("equal_nan", false)), {.dtype = DType::boolean, .device = x.device()});
  });
}

bool Tensor::equal(const Tensor& other) const { return halfstep::equal(*this, other); }
bool Tensor::allclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  return halfstep::allclose(*this, other, rtol, atol, equal_nan);
}
Tensor Tensor::masked_scatter(const Tensor& mask, const Tensor& src) const { return halfstep::masked_scatter(*this, mask, src); }
Tensor Tensor::nonzero() const { return halfstep::nonzero(*this); }

}  // namespace halfstep
