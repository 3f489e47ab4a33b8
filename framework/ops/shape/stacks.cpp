// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/shape/stacks.h"

#include <algorithm>
#include <vector>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr OpInfo joins(std::string_view name, std::string_view doc) {
  return {.name = name, .policy = CastPolicy::promote, .doc = doc, .dtypes = DTypeSet::any};
}
constexpr OpInfo kHstack = joins("hstack", "cat along dimension 1, or 0 of vectors");
constexpr OpInfo kVstack = joins("vstack", "cat of rows");
constexpr OpInfo kDstack = joins("dstack", "cat along dimension 2");
constexpr OpInfo kColumnStack = joins("column_stack", "cat along dimension 1, a vector being a column");
constexpr OpInfo kBlockDiag = joins("block_diag", "matrices on a diagonal, zeros beside them");
constexpr OpInfo kTensorSplit{
    .name = "tensor_split", .doc = "parts of nearly equal size, or cut at indices; views", .dtypes = DTypeSet::any};
constexpr OpInfo kAtleast[3] = {{.name = "atleast_1d", .doc = "with at least one dimension", .dtypes = DTypeSet::any},
                                {.name = "atleast_2d", .doc = "with at least two dimensions", .dtypes = DTypeSet::any},
                                {.name = "atleast_3d", .doc = "with at least three dimensions", .dtypes = DTypeSet::any}};

// Returns cat of each(x) along dim.
template <class Each>
Tensor joined_along(const OpInfo& info, const Tensors& xs, int64_t dim, const Each& each) {
  check<ValueError>(!xs.empty(), info.name, "needs at least one tensor");
  Tensors parts;
  for (const Tensor& x : xs) {
    check<ValueError>(x.defined(), info.name, "an input is undefined");
    parts.push_back(each(x));
  }
  return under_name(info.name, [&] { return cat(parts, dim); });
}

Tensor as_column(const Tensor& x) { return x.dim() < 2 ? x.reshape({x.numel(), 1}) : x; }

}  // namespace

Tensor atleast_1d(const Tensor& x) { return x.dim() == 0 ? x.reshape({1}) : x; }
Tensor atleast_2d(const Tensor& x) { return x.dim() < 2 ? x.reshape({1, x.numel()}) : x; }
Tensor atleast_3d(const Tensor& x) { return x.dim() < 3 ? atleast_2d(x).unsqueeze(-1) : x; }

Tensor hstack(const Tensors& xs) {
  const bool vectors = !xs.empty() && xs[0].defined() && xs[0].dim() < 2;
  return joined_along(kHstack, xs, vectors ? 0 : 1, atleast_1d);
}
Tensor vstack(const Tensors& xs) { return joined_along(kVstack, xs, 0, atleast_2d); }
Tensor dstack(const Tensors& xs) { return joined_along(kDstack, xs, 2, atleast_3d); }
Tensor column_stack(const Tensors& xs) { return joined_along(kColumnStack, xs, 1, as_column); }

Tensor block_diag(const Tensors& matrices) {
  check<ValueError>(!matrices.empty(), kBlockDiag.name, "needs at least one tensor");
  check_same_device(kBlockDiag.name, matrices);
  int64_t columns = 0;
  for (const Tensor& m : matrices) {
    check<ShapeError>(m.defined() && m.dim() <= 2, kBlockDiag.name, "needs tensors of at most two dimensions, got ",
                      m.defined() ? m.shape() : Shape{});
    columns += atleast_2d(m).size(1);
  }
  Tensors rows;
  int64_t before = 0;
  for (const Tensor& m : matrices) {
    const Tensor block = atleast_2d(m);
    const TensorOptions like{.dtype = m.dtype(), .device = m.device()};
    const int64_t n = block.size(0), after = columns - before - block.size(1);
    rows.push_back(cat({zeros({n, before}, like), block, zeros({n, after}, like)}, 1));
    before += block.size(1);
  }
  return cat(rows, 0);
}

Tensors tensor_split(const Tensor& x, int64_t sections, int64_t dim) {
  check<ShapeError>(x.dim() > 0, kTensorSplit.name, "needs at least one dimension");
  constexpr int64_t kMost = int64_t(1) << 20;
  check<ValueError>(sections > 0 && sections <= kMost, kTensorSplit.name, "the number of sections must lie in [1, ", kMost,
                    "], got ", sections);
  const int d = wrap_dim(dim, x.dim(), kTensorSplit.name);
  const int64_t n = x.size(d), least = n / sections, longer = n % sections;  // the first `longer` parts have one more
  Tensors out;
  for (int64_t i = 0, at = 0; i < sections; ++i) {
    const int64_t size = least + (i < longer);
    out.push_back(x.narrow(d, at, size));
    at += size;
  }
  return out;
}

Tensors tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim) {
  check<ShapeError>(x.dim() > 0, kTensorSplit.name, "needs at least one dimension");
  const int d = wrap_dim(dim, x.dim(), kTensorSplit.name);
  const int64_t n = x.size(d);
  Tensors out;
  int64_t begin = 0;
  for (size_t i = 0; i <= indices.size(); ++i) {
    const int64_t index = i < indices.size() ? indices[i] : n;
    const int64_t end = std::clamp<int64_t>(index < 0 ? index + n : index, 0, n);
    out.push_back(x.narrow(d, std::min(begin, end), std::max<int64_t>(end - begin, 0)));
    begin = end;
  }
  return out;
}

Tensors Tensor::tensor_split(int64_t sections, int64_t dim) const { return halfstep::tensor_split(*this, sections, dim); }
Tensors Tensor::tensor_split(const std::vector<int64_t>& indices, int64_t dim) const {
  return halfstep::tensor_split(*this, indices, dim);
}
Tensors Tensor::tensor_split(std::initializer_list<int64_t> indices, int64_t dim) const {
  return halfstep::tensor_split(*this, std::vector<int64_t>(indices), dim);
}

void add_stacks(OpList& list) {
  list.add(kAtleast[0], [](Args& a) { return atleast_1d(a.tensor(0)); });
  list.add(kAtleast[1], [](Args& a) { return atleast_2d(a.tensor(0)); });
  list.add(kAtleast[2], [](Args& a) { return atleast_3d(a.tensor(0)); });
  list.add(kHstack, [](Args& a) { return hstack(a.list(0)); });
  list.add(kVstack, [](Args& a) { return vstack(a.list(0)); });
  list.add(kDstack, [](Args& a) { return dstack(a.list(0)); });
  list.add(kColumnStack, [](Args& a) { return column_stack(a.list(0)); });
  list.add(kBlockDiag, [](Args& a) { return block_diag(a.list(0)); });
  list.add(kTensorSplit, [](Args& a) {
    const Tensor x = a.tensor(0);
    const int64_t dim = a.integer("dim", 0);
    if (!a.has("indices")) return tensor_split(x, a.integer("sections"), dim);
    const Dims indices = a.ints("indices");
    return tensor_split(x, std::vector<int64_t>(indices.begin(), indices.end()), dim);
  });
  list.alias("row_stack", "vstack");
}

}  // namespace halfstep
