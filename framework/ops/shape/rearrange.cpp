// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/shape/rearrange.h"

#include <algorithm>
#include <vector>

#include "framework/ops/core/call.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/views.h"

namespace halfstep {
namespace {

TensorOptions like(const Tensor& x) { return {.dtype = x.dtype(), .device = x.device()}; }

struct Flip {
  struct Attr {
    Dims dims;
  };
  static constexpr OpInfo info{.name = "flip", .doc = "dimensions in reverse order", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"dims", attr.dims}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor out = Tensor::empty(in[0].shape(), like(in[0]));
    if (out.numel() == 0) return out;
    // Writes from the last element of each dimension on, with negative strides.
    Strides backwards = out.strides();
    int64_t start = 0;
    for (int64_t d : attr.dims) {
      start += (out.shape()[int(d)] - 1) * backwards[int(d)];
      backwards[int(d)] *= -1;
    }
    backend_for(out.device()).copy(in[0].view(), out.alias(out.shape(), backwards, start).view());
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) { return {call<Flip>({grads[0]}, attr)}; }
};

// Along one dimension; 0 <= shift < its size.
struct Roll {
  struct Attr {
    int dim;
    int64_t shift;
  };
  static constexpr OpInfo info{.name = "roll", .doc = "out[(i + shift) mod n] = x[i]", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}, {"shift", attr.shift}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const int64_t n = in[0].shape()[attr.dim], cut = n - attr.shift;
    const Tensor out = Tensor::empty(in[0].shape(), like(in[0]));
    Backend& backend = backend_for(out.device());
    backend.copy(in[0].narrow(attr.dim, cut, attr.shift).view(), out.narrow(attr.dim, 0, attr.shift).view());
    backend.copy(in[0].narrow(attr.dim, 0, cut).view(), out.narrow(attr.dim, attr.shift, cut).view());
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    const int64_t n = grads[0].shape()[attr.dim];
    return {call<Roll>({grads[0]}, {attr.dim, attr.shift == 0 ? 0 : n - attr.shift})};
  }
};

constexpr OpInfo rearranging(std::string_view name, std::string_view doc) {
  return {.name = name, .doc = doc, .dtypes = DTypeSet::any};
}
constexpr OpInfo kReshape = rearranging("reshape", "the same elements in another shape; a view where the strides allow");
constexpr OpInfo kFlatten = rearranging("flatten", "a run of dimensions made one");
constexpr OpInfo kUnflatten = rearranging("unflatten", "a dimension cut into several");
constexpr OpInfo kTranspose = rearranging("transpose", "two dimensions exchanged");
constexpr OpInfo kT = rearranging("t", "a matrix transposed");
constexpr OpInfo kSqueeze = rearranging("squeeze", "without dimensions of size 1");
constexpr OpInfo kUnsqueeze = rearranging("unsqueeze", "with a new dimension of size 1");
constexpr OpInfo kNarrow = rearranging("narrow", "a range along a dimension");
constexpr OpInfo kSelect = rearranging("select", "one slice, without its dimension");
constexpr OpInfo kMovedim = rearranging("movedim", "dimensions moved, the others in order");
constexpr OpInfo kExpandAs = rearranging("expand_as", "expand to the shape of another tensor");
constexpr OpInfo kRepeat = rearranging("repeat", "x repeated as a whole along each dimension");
constexpr OpInfo kTile = rearranging("tile", "repeat, where missing leading repeats are 1");
constexpr OpInfo kInterleave = rearranging("repeat_interleave", "each slice along a dimension repeated");
constexpr OpInfo kRot90 = rearranging("rot90", "a plane turned by quarters");
constexpr OpInfo kMeshgrid = rearranging("meshgrid", "vectors expanded to the grid that they span");

int64_t product(const Shape& shape, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; ++d) n *= shape[d];
  return n;
}

// Returns `shape` with size d multiplied by `factor`.
Shape multiplied(std::string_view op, Shape shape, int d, int64_t factor) {
  check<ShapeError>(!__builtin_mul_overflow(shape[d], factor, &shape[d]), op, "the result is too large: ", factor,
                    " times dimension ", d, " of ", shape);
  check_size(op, shape);
  return shape;
}

// Repeats each slice along d `repeats` times.
Tensor interleave(const Tensor& x, int d, int64_t repeats) {
  constexpr int64_t kShortSlice = 16, kFewRepeats = 8;
  const Shape out = multiplied("repeat_interleave", x.shape(), d, repeats);
  const int64_t inner = product(x.shape(), d + 1, x.dim()), rows = product(x.shape(), 0, d + 1);
  const Tensor flat = x.reshape({rows, 1, inner});
  if (inner < kShortSlice && repeats > 1 && repeats <= kFewRepeats) {  // a few long copies instead of many short ones
    const autocast::Off off;
    return cat(Tensors(size_t(repeats), flat), 1).reshape(out);
  }
  return flat.expand({rows, repeats, inner}).reshape(out);
}

// Repeats x as a whole along each dimension; repeats may have more leading dimensions than x.
Tensor repeated(std::string_view op, const Tensor& x, const Shape& repeats) {
  check<ShapeError>(repeats.size() >= x.dim(), op, "needs a number for each dimension of ", x.shape(), ", got ", repeats);
  Shape shape = Shape::filled(repeats.size(), 1);
  for (int d = 0; d < x.dim(); ++d) shape[repeats.size() - x.dim() + d] = x.shape()[d];
  Shape out = shape;
  for (int d = 0; d < shape.size(); ++d) {
    check<ValueError>(repeats[d] >= 0, op, "repeats must not be negative, got ", repeats);
    out = multiplied(op, out, d, repeats[d]);
  }
  Tensor y = reshape(x, shape);
  for (int d = shape.size() - 1; d >= 0; --d) {
    if (repeats[d] == 1) continue;
    Shape joined = y.shape();
    joined[d] *= repeats[d];
    if (y.shape()[d] == 1) {
      y = y.expand(joined);
      continue;
    }
    const int64_t outer = product(y.shape(), 0, d), rest = product(y.shape(), d, y.dim());
    y = y.reshape({outer, 1, rest}).expand({outer, repeats[d], rest}).reshape(joined);
  }
  return y.shares_memory_with(x) ? clone(y) : y;
}

}  // namespace

Tensor squeeze(const Tensor& x) {
  Shape shape;
  for (int64_t n : x.shape())
    if (n != 1) shape.push_back(n);
  return reshape(x, shape);
}
Tensor Tensor::squeeze() const { return halfstep::squeeze(*this); }

Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes) {
  const int d = wrap_dim(dim, x.dim(), "unflatten");
  check<ShapeError>(x.dim() > 0 && !sizes.empty(), "unflatten", "needs a dimension to cut and at least one size");
  const int64_t n = x.shape()[d];
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < sizes.size(); ++i) {
    check<ShapeError>(sizes[i] >= -1 && (sizes[i] != -1 || unknown < 0), "unflatten",
                      "sizes must not be negative, and one may be -1, got ", sizes);
    if (sizes[i] == -1)
      unknown = i;
    else
      check<ShapeError>(!__builtin_mul_overflow(known, sizes[i], &known), "unflatten", "sizes ", sizes, " do not make ", n);
  }
  Shape cut = sizes, shape = x.shape();
  if (unknown >= 0 && known > 0 && n % known == 0) cut[unknown] = n / known, known = n;
  check<ShapeError>(known == n && (unknown < 0 || cut[unknown] >= 0), "unflatten", "sizes ", sizes, " do not make ", n);
  shape.erase(d);
  for (int i = 0; i < cut.size(); ++i) shape.insert(d + i, cut[i]);
  return reshape(x, shape);
}

Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination) {
  check<ShapeError>(source.size() == destination.size(), "movedim", "needs as many destinations as sources, got ", source, " and ",
                    destination);
  Dims order = Dims::filled(x.dim(), -1);
  std::array<bool, kMaxDims> moved{};
  for (int i = 0; i < source.size(); ++i) {
    const int from = wrap_dim(source[i], x.dim(), "movedim"), to = wrap_dim(destination[i], x.dim(), "movedim");
    if (x.dim() == 0) return x;
    check<ValueError>(!moved[size_t(from)] && order[to] == -1, "movedim", "dimensions must not repeat, got ", source, " and ",
                      destination);
    moved[size_t(from)] = true;
    order[to] = from;
  }
  for (int d = 0, to = 0; d < x.dim(); ++d) {
    if (moved[size_t(d)]) continue;
    while (order[to] != -1) ++to;
    order[to] = d;
  }
  return permute(x, order);
}
Tensor movedim(const Tensor& x, int64_t source, int64_t destination) { return movedim(x, Dims{source}, Dims{destination}); }
Tensor Tensor::movedim(int64_t from, int64_t to) const { return halfstep::movedim(*this, from, to); }
Tensor swapaxes(const Tensor& x, int64_t a, int64_t b) { return transpose(x, a, b); }
Tensor broadcast_to(const Tensor& x, const Shape& shape) { return expand(x, shape); }

Tensor flip(const Tensor& x, const Dims& dims) {
  Dims wrapped;
  for (int64_t dim : dims) {
    const int d = wrap_dim(dim, x.dim(), "flip");
    check<ValueError>(std::find(wrapped.begin(), wrapped.end(), d) == wrapped.end(), "flip", "dimension ", d, " appears twice in ",
                      dims);
    if (x.dim() > 0) wrapped.push_back(d);
  }
  return call<Flip>({x}, {wrapped});
}
Tensor Tensor::flip(const Dims& dims) const { return halfstep::flip(*this, dims); }

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  if (dims.empty()) {
    check<ValueError>(shifts.size() == 1, "roll", "without dims there is one shift, got ", shifts);
    return roll(x.reshape({-1}), shifts, {0}).reshape(x.shape());
  }
  check<ValueError>(shifts.size() == dims.size(), "roll", "needs a shift for each dimension, got ", shifts, " and ", dims);
  Tensor y = x;
  for (int i = 0; i < dims.size(); ++i) {
    check<IndexError>(x.dim() > 0, "roll", "a 0-dim tensor has no dimension ", dims[i]);
    const int d = wrap_dim(dims[i], x.dim(), "roll");
    const int64_t n = x.shape()[d];
    if (n > 0) y = call<Roll>({y}, {d, (shifts[i] % n + n) % n});
  }
  return y.same(x) ? clone(x) : y;
}
Tensor Tensor::roll(const Dims& shifts, const Dims& dims) const { return halfstep::roll(*this, shifts, dims); }

Tensor rot90(const Tensor& x, int64_t k, const Dims& dims) {
  check<ValueError>(dims.size() == 2 && x.dim() >= 2, "rot90", "needs two dimensions, got ", dims, " for shape ", x.shape());
  const int a = wrap_dim(dims[0], x.dim(), "rot90"), b = wrap_dim(dims[1], x.dim(), "rot90");
  check<ValueError>(a != b, "rot90", "the dimensions must differ, got ", dims);
  switch ((k % 4 + 4) % 4) {
    case 1: return flip(x, {b}).transpose(a, b);
    case 2: return flip(x, {a, b});
    case 3: return flip(x, {a}).transpose(a, b);
    default: return clone(x);
  }
}

Tensor repeat(const Tensor& x, const Shape& repeats) { return repeated("repeat", x, repeats); }
Tensor Tensor::repeat(const Shape& repeats) const { return halfstep::repeat(*this, repeats); }

Tensor tile(const Tensor& x, const Shape& repeats) {
  Shape full = repeats;
  while (full.size() < x.dim()) full.insert(0, 1);
  return repeated("tile", x, full);
}

namespace {

void check_output_size(std::optional<int64_t> wanted, int64_t size) {
  check<ShapeError>(!wanted || *wanted == size, "repeat_interleave", "output_size must be ", size, " for these repeats, got ",
                    wanted.value_or(0));
}

}  // namespace

Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim, std::optional<int64_t> output_size) {
  check<ValueError>(repeats >= 0, "repeat_interleave", "repeats must not be negative, got ", repeats);
  if (!dim || x.dim() == 0) {
    if (dim) wrap_dim(*dim, x.dim(), "repeat_interleave");
    return repeat_interleave(x.reshape({-1}), repeats, 0, output_size);
  }
  const int d = wrap_dim(*dim, x.dim(), "repeat_interleave");
  check_output_size(output_size, multiplied("repeat_interleave", x.shape(), d, repeats)[d]);
  const Tensor y = interleave(x, d, repeats);
  return y.shares_memory_with(x) ? clone(y) : y;
}
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim, std::optional<int64_t> output_size) {
  constexpr std::string_view op = "repeat_interleave";
  check<DTypeError>(repeats.defined() && is_integral(repeats.dtype()), op, "repeats must be integers");
  check<ShapeError>(repeats.dim() <= 1, op, "repeats must have at most one dimension, got ", repeats.shape());
  if (repeats.device().is_meta()) {  // the caller must give the sum of the repeats
    if (!output_size) check_has_values(op, {repeats});
    if (!dim) return repeat_interleave(x.reshape({-1}), repeats, 0, output_size);
    check_size(op, {*output_size});
    return index_select(x, *dim, Tensor::empty({*output_size}, {.dtype = DType::i64, .device = x.device()}));
  }
  const std::vector<int64_t> counts = repeats.to_vector<int64_t>();
  if (counts.size() == 1) return repeat_interleave(x, counts[0], dim, output_size);
  if (!dim) return repeat_interleave(x.reshape({-1}), repeats, 0, output_size);
  const int d = wrap_dim(*dim, x.dim(), op);
  const int64_t n = x.dim() ? x.shape()[d] : 1;
  check<ShapeError>(int64_t(counts.size()) == n, op, "repeats must have one element, or ", n, ", got ", counts.size());
  int64_t total = 0;
  for (int64_t c : counts) {
    check<ValueError>(c >= 0 && !__builtin_add_overflow(total, c, &total), op, "repeats must not be negative or too large, got ",
                      c);
    check_size(op, {total});
  }
  check_output_size(output_size, total);
  const Tensor chosen = Tensor::empty({total}, {.dtype = DType::i64, .device = Device::cpu});
  int64_t* to = chosen.data_ptr<int64_t>();
  for (int64_t i = 0; i < n; ++i) to = std::fill_n(to, counts[size_t(i)], i);
  return index_select(x, d, chosen.to(x.device()));
}

Tensors meshgrid(const Tensors& xs, bool xy) {
  check<ValueError>(!xs.empty(), "meshgrid", "needs at least one tensor");
  check_same_device("meshgrid", xs);
  Shape shape;
  for (const Tensor& x : xs) {
    check<ShapeError>(x.defined() && x.dim() <= 1, "meshgrid", "needs tensors of at most one dimension");
    check<DTypeError>(x.dtype() == xs[0].dtype(), "meshgrid", "all tensors must have one dtype, got ", xs[0].dtype(), " and ",
                      x.dtype());
    check<ShapeError>(shape.size() < kMaxDims, "meshgrid", "takes at most ", kMaxDims, " tensors, got ", xs.size());
    shape.push_back(x.numel());
  }
  check_size("meshgrid", shape);
  Tensors out;
  for (int i = 0; i < shape.size(); ++i) {
    Shape line = Shape::filled(shape.size(), 1);
    line[i] = shape[i];
    const Tensor grid = xs[size_t(i)].reshape(line).expand(shape);
    out.push_back(xy && shape.size() > 1 ? grid.transpose(0, 1) : grid);
  }
  return out;
}

namespace {

// Removes the dimensions `dim`, a number or a list, that have size 1; without it all of size 1.
Tensor squeeze_by_name(Args& a) {
  const Tensor x = a.tensor(0);
  if (!a.raw("dim")) return squeeze(x);
  std::vector<int64_t> dims;
  for (int64_t d : a.ints("dim")) dims.push_back(wrap_dim(d, x.dim(), "squeeze"));
  std::sort(dims.begin(), dims.end());
  Tensor y = x;
  for (size_t i = dims.size(); i-- > 0;) {
    check<ValueError>(i == 0 || dims[i] != dims[i - 1], "squeeze", "dimension ", dims[i], " appears twice");
    y = squeeze(y, dims[i]);
  }
  return y;
}
// Reads start as a number or as a 0-dim tensor, whose value the host reads.
Tensor narrow_by_name(Args& a) {
  const Tensor x = a.tensor(0);
  const int64_t dim = a.integer("dim"), length = a.integer("length");
  if (!a.has_tensor(1)) return narrow(x, dim, a.integer("start"), length);
  const Tensor start = a.tensor(1);
  check<DTypeError>(is_integral(start.dtype()) && start.dim() == 0, "narrow",
                    "start must be an integer or a 0-dim tensor of integers");
  check_has_values("narrow", {start});
  return narrow(x, dim, start.item<int64_t>(), length);
}
// Reads repeats as a number or as a tensor. If only repeats are given, as x, returns each index as often as they say.
Tensor interleave_by_name(Args& a) {
  const Tensor x = a.tensor(0);
  const auto dim = a.integer_or_none("dim");
  const auto size = a.integer_or_none("output_size");
  if (!a.has_tensor(1) && !a.has("repeats"))
    return repeat_interleave(arange(0, double(x.numel()), 1, {.dtype = DType::i64, .device = x.device()}), x, 0, size);
  return a.has_tensor(1) ? repeat_interleave(x, a.tensor(1), dim, size) : repeat_interleave(x, a.integer("repeats"), dim, size);
}

}  // namespace

void add_rearrange(OpList& list) {
  list.add(kReshape, [](Args& a) { return reshape(a.tensor(0), a.ints("shape")); });
  list.add(kFlatten, [](Args& a) { return flatten(a.tensor(0), a.integer("start_dim", 0), a.integer("end_dim", -1)); });
  list.add(kUnflatten, [](Args& a) { return unflatten(a.tensor(0), a.integer("dim"), a.ints("sizes")); });
  list.add(kTranspose, [](Args& a) { return transpose(a.tensor(0), a.integer("dim0"), a.integer("dim1")); });
  list.add(kT, [](Args& a) { return a.tensor(0).t(); });
  list.add(kSqueeze, squeeze_by_name);
  list.add(kUnsqueeze, [](Args& a) { return unsqueeze(a.tensor(0), a.integer("dim")); });
  list.add(kNarrow, narrow_by_name);
  list.add(kSelect, [](Args& a) { return select(a.tensor(0), a.integer("dim"), a.integer("index")); });
  list.add(kMovedim, [](Args& a) { return movedim(a.tensor(0), a.ints("source"), a.ints("destination")); });
  list.add(kExpandAs, [](Args& a) { return expand_as(a.tensor(0), a.tensor(1)); });
  list.add(Flip::info, [](Args& a) { return flip(a.tensor(0), a.ints("dims")); });
  list.add(Roll::info, [](Args& a) { return roll(a.tensor(0), a.ints("shifts"), a.ints("dims", Dims{})); });
  list.add(kRot90, [](Args& a) { return rot90(a.tensor(0), a.integer("k", 1), a.ints("dims", Dims{0, 1})); });
  list.add(kRepeat, [](Args& a) { return repeat(a.tensor(0), a.ints("repeats")); });
  list.add(kTile, [](Args& a) { return tile(a.tensor(0), a.ints("dims")); });
  list.add(kInterleave, interleave_by_name);
  list.add(kMeshgrid, [](Args& a) {
    const std::string indexing = a.text("indexing", "ij");
    check<ValueError>(indexing == "ij" || indexing == "xy", "meshgrid", "indexing must be ij or xy, got '", indexing, "'");
    return meshgrid(a.list(0), indexing == "xy");
  });
  list.alias("swapaxes", "transpose");
  list.alias("broadcast_to", "expand");
  list.alias("concat", "cat");
}

Tensor Tensor::broadcast_to(const Shape& shape) const { return halfstep::broadcast_to(*this, shape); }
Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int64_t> dim) const {
  return halfstep::repeat_interleave(*this, repeats, dim);
}
Tensor Tensor::repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim) const {
  return halfstep::repeat_interleave(*this, repeats, dim);
}
Tensor Tensor::rot90(int64_t k, const Dims& dims) const { return halfstep::rot90(*this, k, dims); }
Tensor Tensor::tile(const Shape& repeats) const { return halfstep::tile(*this, repeats); }
Tensor Tensor::unflatten(int64_t dim, const Shape& sizes) const { return halfstep::unflatten(*this, dim, sizes); }

}  // namespace halfstep
