// SPDX-License-Identifier: Apache-2.0
// Views of several parts of a tensor at once, and of its diagonals.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/ops/core/call.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/rearrange.h"
#include "framework/ops/shape/views.h"

namespace halfstep {
namespace {

struct SplitAttr {
  int dim;
  std::vector<int64_t> sizes;  // of the parts along dim
  Shape full;                  // of the input
};

// Returns one tensor over `parts` if they lie in memory as its parts would, so that their gradients need no copy; else undefined.
Tensor side_by_side(const Tensors& parts, const Shape& full, int dim) {
  const Strides strides = contiguous_strides(full);
  int64_t at = 0;
  for (const Tensor& p : parts) {
    if (p.numel() == 0 || p.dtype() != parts[0].dtype() || p.storage() != parts[0].storage()) return {};
    for (int d = 0; d < full.size(); ++d)
      if (p.size(d) > 1 && p.strides()[d] != strides[d]) return {};
    const char* const first = parts[0].view().as<const char>();
    if (p.view().as<const char>() != first + at * strides[dim] * int64_t(size_of(p.dtype()))) return {};
    at += p.size(dim);
  }
  return parts[0].alias(full, strides);
}

template <bool unbinds>
struct Parts {
  using Attr = SplitAttr;
  static constexpr OpInfo info = unbinds ? OpInfo{.name = "unbind", .doc = "the slices along a dimension", .dtypes = DTypeSet::any}
                                         : OpInfo{.name = "split", .doc = "parts along a dimension", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}, {"sizes", attr.sizes}}; }
  static Tensors forward(OpContext&, const Attr& attr, const Tensors& in) {
    Tensors out;
    int64_t at = 0;
    for (int64_t size : attr.sizes) {
      Shape shape = in[0].shape();
      Strides strides = in[0].strides();
      shape[attr.dim] = size;
      if (unbinds) shape.erase(attr.dim), strides.erase(attr.dim);
      out.push_back(as_view(in[0], shape, strides, numel(shape) ? at * in[0].strides()[attr.dim] : 0));
      at += size;
    }
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    const Tensor* defined = nullptr;
    for (const Tensor& g : grads) defined = g.defined() ? &g : defined;
    Tensors parts;
    for (size_t i = 0; i < grads.size(); ++i) {
      Shape shape = attr.full;
      shape[attr.dim] = attr.sizes[i];
      if (!grads[i].defined())
        parts.push_back(zeros({}, {.dtype = defined->dtype(), .device = defined->device()}).expand(shape));
      else
        parts.push_back(unbinds ? grads[i].unsqueeze(attr.dim) : grads[i]);
    }
    const Tensor joined_gradient = grad_enabled() ? Tensor() : side_by_side(parts, attr.full, attr.dim);
    return {joined_gradient.defined() ? joined_gradient : cat(parts, attr.dim)};
  }
};

// A diagonal of dimensions dim1 and dim2 of `full`: elements [.., i, .., i + offset, ..]. It becomes the last dimension.
struct DiagonalAttr {
  Shape full;
  int dim1, dim2;
  int64_t offset;

  int64_t length() const {
    return std::max<int64_t>(0,
                             offset >= 0 ? std::min(full[dim1], full[dim2] - offset) : std::min(full[dim1] + offset, full[dim2]));
  }
  Shape shape() const { return without_both(full, length()); }
  // Return the strides and the offset of the diagonal in a tensor with the strides `full_strides`.
  Strides strides(const Strides& full_strides) const { return without_both(full_strides, full_strides[dim1] + full_strides[dim2]); }
  int64_t start(const Strides& full_strides) const {
    return length() == 0 ? 0 : offset >= 0 ? offset * full_strides[dim2] : -offset * full_strides[dim1];
  }

 private:
  Dims without_both(Dims dims, int64_t last) const {
    dims.erase(std::max(dim1, dim2));
    dims.erase(std::min(dim1, dim2));
    dims.push_back(last);
    return dims;
  }
};

struct Diagonal {
  using Attr = DiagonalAttr;
  static constexpr OpInfo info{.name = "diagonal", .doc = "the diagonal of two dimensions", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"offset", attr.offset}, {"dim1", attr.dim1}, {"dim2", attr.dim2}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Strides& s = in[0].strides();
    return as_view(in[0], attr.shape(), attr.strides(s), attr.start(s));
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads);
};
struct DiagEmbed {
  using Attr = DiagonalAttr;
  static constexpr OpInfo info{.name = "diag_embed", .doc = "zeros, with x on a diagonal", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"offset", attr.offset}, {"dim1", attr.dim1}, {"dim2", attr.dim2}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor out = zeros(attr.full, {.dtype = in[0].dtype(), .device = in[0].device()});
    const Strides& s = out.strides();
    backend_for(out.device()).copy(in[0].view(), out.alias(attr.shape(), attr.strides(s), attr.start(s)).view());
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    return {call<Diagonal>({grads[0]}, attr)};
  }
};
Tensors Diagonal::backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
  return {call<DiagEmbed>({grads[0]}, attr)};
}

struct UnfoldAttr {
  Shape full;
  int dim;
  int64_t size, step;
  int64_t windows() const { return (full[dim] - size) / step + 1; }
};

struct UnfoldDim {
  using Attr = UnfoldAttr;
  static constexpr OpInfo info{
      .name = "unfold_dimension", .doc = "windows along a dimension, Tensor.unfold of PyTorch; a view", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"dim", attr.dim}, {"size", attr.size}, {"step", attr.step}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    Shape shape = in[0].shape();
    Strides strides = in[0].strides();
    shape[attr.dim] = attr.windows();
    shape.push_back(attr.size);
    strides.push_back(strides[attr.dim]);
    strides[attr.dim] *= attr.step;
    return as_view(in[0], shape, strides);
  }
  // Adds the elements at each place k of all windows in one pass: those of different windows are different elements of x.
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    const Tensor& g = grads[0];
    Tensor sum = zeros(attr.full, {.dtype = g.dtype(), .device = g.device()});
    for (int64_t k = 0; k < attr.size; ++k)
      sum = add(sum, slice_backward(g.select(-1, k), attr.full, attr.dim, k, attr.windows(), attr.step));
    return {sum};
  }
};

constexpr OpInfo kChunkInfo{
    .name = "chunk", .doc = "at most `chunks` equal parts along a dimension; made of split", .dtypes = DTypeSet::any};
constexpr OpInfo kDiagInfo{.name = "diag", .doc = "a vector as a diagonal, or a matrix's diagonal", .dtypes = DTypeSet::any};

int part_dim(std::string_view op, const Tensor& x, int64_t dim) {
  check<ShapeError>(x.dim() > 0, op, "a 0-dim tensor has no parts");
  return wrap_dim(dim, x.dim(), op);
}

}  // namespace

Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  const int d = part_dim("split", x, dim);
  int64_t left = x.shape()[d];
  for (int64_t size : sizes) {
    check<ValueError>(size >= 0 && size <= left, "split", "sizes must not be negative and add up to ", x.shape()[d], ", got ", size,
                      " with ", left, " left");
    left -= size;
  }
  check<ValueError>(left == 0 && !sizes.empty(), "split", "sizes must add up to ", x.shape()[d], ", but leave ", left);
  return call<Parts<false>>({x}, {d, sizes, x.shape()});
}
Tensors split(const Tensor& x, int64_t size, int64_t dim) {
  const int d = part_dim("split", x, dim);
  const int64_t n = x.shape()[d];
  check<ValueError>(size > 0 || (size == 0 && n == 0), "split", "size must be positive, got ", size);
  std::vector<int64_t> sizes;
  for (int64_t at = 0; at < n; at += size) sizes.push_back(std::min(size, n - at));
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, d);
}
Tensors Tensor::split(int64_t size, int64_t dim) const { return halfstep::split(*this, size, dim); }
Tensors Tensor::split(std::initializer_list<int64_t> sizes, int64_t dim) const { return halfstep::split(*this, sizes, dim); }

Tensors chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  const int d = part_dim("chunk", x, dim);
  check<ValueError>(chunks > 0, "chunk", "chunks must be positive, got ", chunks);
  const int64_t n = x.shape()[d], size = n / chunks + (n % chunks != 0);
  if (n > 0) return split(x, size, d);
  constexpr int64_t kMostEmpty = 4096;
  check<ValueError>(chunks <= kMostEmpty, "chunk", "an empty dimension has no ", chunks, " parts");
  return split(x, std::vector<int64_t>(size_t(chunks), 0), d);
}
Tensors Tensor::chunk(int64_t chunks, int64_t dim) const { return halfstep::chunk(*this, chunks, dim); }

Tensors unbind(const Tensor& x, int64_t dim) {
  const int d = part_dim("unbind", x, dim);
  if (x.shape()[d] == 0) return {};
  return call<Parts<true>>({x}, {d, std::vector<int64_t>(size_t(x.shape()[d]), 1), x.shape()});
}
Tensors Tensor::unbind(int64_t dim) const { return halfstep::unbind(*this, dim); }

Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  const int d = part_dim("unfold", x, dim);
  check<ShapeError>(x.dim() < kMaxDims, "unfold", "the result would have more than ", kMaxDims, " dimensions");
  check<ValueError>(size >= 0 && size <= x.shape()[d], "unfold", "size must lie in [0, ", x.shape()[d], "], the size of dimension ",
                    dim, " of ", x.shape(), ", got ", size);
  check<ValueError>(step > 0, "unfold", "step must be positive, got ", step);
  return call<UnfoldDim>({x}, {x.shape(), d, size, std::min(step, x.shape()[d] + 1)});  // a larger step makes no difference
}
Tensor Tensor::unfold(int64_t dim, int64_t size, int64_t step) const { return halfstep::unfold(*this, dim, size, step); }

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  check<ShapeError>(x.dim() >= 2, "diagonal", "needs at least 2 dimensions, got ", x.shape());
  const int a = wrap_dim(dim1, x.dim(), "diagonal"), b = wrap_dim(dim2, x.dim(), "diagonal");
  check<ValueError>(a != b, "diagonal", "the dimensions must differ, got ", dim1, " and ", dim2);
  return call<Diagonal>({x}, {x.shape(), a, b, std::clamp(offset, -x.shape()[a], x.shape()[b])});
}
Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const { return halfstep::diagonal(*this, offset, dim1, dim2); }

namespace {

// Returns diag_embed under the name of the op that was called.
Tensor embed(std::string_view op, const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  check<ShapeError>(x.dim() >= 1 && x.dim() < kMaxDims, op, "needs 1 to ", kMaxDims - 1, " dimensions, got ", x.shape());
  const int rank = x.dim() + 1, a = wrap_dim(dim1, rank, op), b = wrap_dim(dim2, rank, op);
  check<ValueError>(a != b, op, "the dimensions must differ, got ", dim1, " and ", dim2);
  constexpr int64_t kOffsetLimit = int64_t(1) << 31;
  check<ValueError>(offset > -kOffsetLimit && offset < kOffsetLimit, op, "offset ", offset, " is too large");
  const int64_t n = x.shape().back() + std::abs(offset);
  Shape full = x.shape();
  full.erase(x.dim() - 1);
  full.insert(std::min(a, b), n);
  full.insert(std::max(a, b), n);
  check_size(op, full);
  return call<DiagEmbed>({x}, {full, a, b, offset});
}

}  // namespace

Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  return embed("diag_embed", x, offset, dim1, dim2);
}

Tensor diag(const Tensor& x, int64_t diagonal) {
  check<ShapeError>(x.dim() == 1 || x.dim() == 2, "diag", "needs a vector or a matrix, got ", x.shape());
  return x.dim() == 1 ? embed("diag", x, diagonal, -2, -1) : halfstep::diagonal(x, diagonal);
}

void add_part_views(OpList& list) {
  list.add(Parts<false>::info, [](Args& a) {
    const Tensor x = a.tensor(0);
    const int64_t dim = a.integer("dim", 0);
    const nlohmann::json* sizes = a.raw("split_size_or_sections");
    if (!sizes || !sizes->is_array()) return split(x, a.integer("split_size_or_sections"), dim);
    std::vector<int64_t> list;
    for (double size : a.numbers("split_size_or_sections")) list.push_back(int64_t(std::clamp(size, -1.0, 0x1p62)));
    return split(x, list, dim);
  });
  list.add(UnfoldDim::info,
           [](Args& a) { return unfold(a.tensor(0), a.integer("dimension"), a.integer("size"), a.integer("step")); });
  list.add(kChunkInfo, [](Args& a) { return chunk(a.tensor(0), a.integer("chunks"), a.integer("dim", 0)); });
  list.add(Parts<true>::info, [](Args& a) { return unbind(a.tensor(0), a.integer("dim", 0)); });
  list.add(Diagonal::info,
           [](Args& a) { return diagonal(a.tensor(0), a.integer("offset", 0), a.integer("dim1", 0), a.integer("dim2", 1)); });
  list.add(DiagEmbed::info,
           [](Args& a) { return diag_embed(a.tensor(0), a.integer("offset", 0), a.integer("dim1", -2), a.integer("dim2", -1)); });
  list.add(kDiagInfo, [](Args& a) { return diag(a.tensor(0), a.integer("diagonal", 0)); });
}

Tensor Tensor::diag(int64_t diagonal) const { return halfstep::diag(*this, diagonal); }
Tensor Tensor::diag_embed(int64_t offset, int64_t dim1, int64_t dim2) const {
  return halfstep::diag_embed(*this, offset, dim1, dim2);
}

}  // namespace halfstep
