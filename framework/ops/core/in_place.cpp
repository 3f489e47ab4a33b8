// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/in_place.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/autograd/autograd.h"
#include "framework/autograd/node.h"
#include "framework/backend/backend.h"
#include "framework/ops/core/call.h"
#include "framework/ops/core/promotion.h"

namespace halfstep {
namespace {

// The place of a view's elements in the memory of its base, the viewed tensor.
struct RegionAttr {
  Shape base;
  Strides base_strides;
  Shape shape;
  Strides strides;
  int64_t offset;  // from the base's first element

  // Returns the view's elements of a tensor with the base's layout.
  Tensor in(const Tensor& full) const { return full.alias(shape, strides, offset); }
  // Makes a tensor with the base's layout and the dtype of `like`, including gaps between rows.
  Tensor new_base(const Tensor& like) const {
    int64_t extent = 1;
    for (int d = 0; d < base.size(); ++d) extent += std::max<int64_t>(base[d] - 1, 0) * base_strides[d];
    return Tensor::empty({extent}, {.dtype = like.dtype(), .device = like.device()}).alias(base, base_strides);
  }
  // Returns a copy of `values` with the base's layout.
  Tensor as_base(const Tensor& values) const {
    const Tensor out = new_base(values);
    backend_for(out.device()).copy(values.view(), out.view());
    return out;
  }
};

// Takes the view's elements out of the base's gradient; dense.
struct TakeRegion {
  using Attr = RegionAttr;
  static constexpr OpInfo info{.name = "take_region", .doc = "the elements of a view, out of a tensor like its base"};
  static Attributes describe(const Attr& attr) { return {{"shape", attr.shape}, {"offset", attr.offset}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor part = attr.in(attr.as_base(in[0])), out = part.new_empty(attr.shape);
    backend_for(out.device()).copy(part.view(), out.view());
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads);
};

// Places x at the view's place in zeros; the transpose of TakeRegion.
struct PlaceRegion {
  using Attr = RegionAttr;
  static constexpr OpInfo info{.name = "place_region", .doc = "zeros like a view's base, with x where the view is"};
  static Attributes describe(const Attr& attr) { return {{"shape", attr.shape}, {"offset", attr.offset}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor out = attr.new_base(in[0]);
    backend_for(out.device()).fill(out.view(), 0);
    backend_for(out.device()).copy(in[0].view(), attr.in(out).view());
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    return {call<TakeRegion>({grads[0]}, attr)};
  }
};
Tensors TakeRegion::backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
  return {call<PlaceRegion>({grads[0]}, attr)};
}

// Sets the view's elements of the base's gradient to zero, for the old values that the view does not replace. Its own transpose.
struct EraseRegion {
  using Attr = RegionAttr;
  static constexpr OpInfo info{.name = "erase_region", .doc = "x like a view's base, with zeros where the view is"};
  static Attributes describe(const Attr& attr) { return {{"shape", attr.shape}, {"offset", attr.offset}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor out = attr.as_base(in[0]);
    backend_for(out.device()).fill(attr.in(out).view(), 0);
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    return {call<EraseRegion>({grads[0]}, attr)};
  }
};

// Writes `values` into the base's memory at the view's place, without copying the rest.
struct WriteRegion {
  using Attr = RegionAttr;
  static constexpr OpInfo info{
      .name = "write_region", .doc = "x with the elements of a view replaced, in x's memory", .dtypes = DTypeSet::any};
  static Attributes describe(const Attr& attr) { return {{"shape", attr.shape}, {"offset", attr.offset}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    backend_for(in[0].device()).copy(in[1].view(), attr.in(in[0]).view());
    return in[0].alias(attr.base, attr.base_strides);
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    Tensors out(2);
    if (ctx.needs(0)) out[0] = call<EraseRegion>({grads[0]}, attr);
    if (ctx.needs(1)) out[1] = call<TakeRegion>({grads[0]}, attr);
    return out;
  }
};

// Returns the base, whose history a recorded write to x also changes; undefined if x is not a view, or nobody holds its base.
Tensor base_of(const Tensor& x) { return x.impl()->is_view ? Tensor(x.impl()->base.lock()) : Tensor(); }

// Returns whether two elements share memory, as in an expanded tensor or overlapping windows.
bool overlaps_itself(const Tensor& x) {
  if (x.is_contiguous() || x.numel() <= 1) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size)
  for (int d = 0; d < x.dim(); ++d)
    if (x.shape()[d] > 1) dims.emplace_back(x.strides()[d], x.shape()[d]);
  std::sort(dims.begin(), dims.end());
  int64_t covered = 1;  // elements that the dimensions so far span
  bool apart = true;    // whether each dimension steps over what those before it span
  for (const auto& [stride, size] : dims) {
    if (stride == 0) return true;
    apart = apart && stride >= covered;
    covered += stride * (size - 1);
  }
  if (apart) return false;
  if (x.numel() > covered) return true;
  // Strides such as 2 and 3 may interlock: marks each element's place.
  std::vector<bool> taken(static_cast<size_t>(covered));
  std::vector<int64_t> at(dims.size());
  for (int64_t place = 0;;) {
    if (taken[size_t(place)]) return true;
    taken[size_t(place)] = true;
    size_t i = 0;
    for (; i < dims.size(); ++i) {
      place += dims[i].first;
      if (++at[i] < dims[i].second) break;
      place -= dims[i].first * dims[i].second;
      at[i] = 0;
    }
    if (i == dims.size()) return false;
  }
}

// Replaces the history of x, a non-leaf or a leaf that does not require grad, by that of `from`.
void take_history(const Tensor& x, const Tensor& from) {
  AutogradMeta& meta = x.impl()->meta();
  const bool retains = std::exchange(meta.retains_grad, false);
  if (retains) meta.node->retained[meta.output_index].reset();
  meta.hooks.reset();  // they belong to the old value
  meta.node = from.node();
  meta.output_index = from.impl()->meta().output_index;
  if (retains && meta.node) x.retain_grad();
}

}  // namespace

void check_apart(const Tensor& x, std::string_view op) {
  for (int d = 0; d < x.dim(); ++d)
    check<ValueError>(x.shape()[d] <= 1 || x.strides()[d] != 0 || x.numel() == 0, op,
                      "in place, the elements of an expanded tensor share memory, got shape ", x.shape(), " with strides ",
                      x.strides(), Help{"clone() it first"});
  check<ValueError>(!overlaps_itself(x), op, "in place, elements of the view share memory, got shape ", x.shape(), " with strides ",
                    x.strides(), Help{"clone() it first"});
}

bool check_in_place(const Tensor& x, const Shape& shape, DType dtype, bool records, std::string_view op) {
  check<ShapeError>(shape == x.shape(), op, "in place, the result must have the shape of the tensor, ", x.shape(), ", got ", shape);
  check<DTypeError>(category(dtype) <= category(x.dtype()), op, "in place, a result of ", dtype, " cannot be stored in ",
                    x.dtype());
  check_apart(x, op);
  if (!grad_enabled()) return false;
  const Tensor base = base_of(x);
  const Tensor& owner = base.defined() ? base : x;
  if (!records && !x.requires_grad() && !owner.requires_grad()) return false;
  const auto is_trained = [](const Tensor& t) { return t.is_leaf() && t.requires_grad(); };
  check<AutogradError>(!is_trained(x) && !is_trained(owner), op, "a leaf that requires grad cannot be changed in place",
                       base.defined() ? ", nor can a view of it" : "", Help{"update parameters inside NoGrad"});
  if (base.defined()) check_view(*x.impl());
  return true;
}

const Tensor& assign_in_place(const Tensor& x, const Tensor& result, std::string_view op) {
  const bool recorded = check_in_place(x, result.shape(), result.dtype(), result.requires_grad(), op);
  const Tensor base = recorded ? base_of(x) : Tensor();
  const Tensor value = recorded ? result.to(x.dtype()) : result;
  if (base.defined()) {
    take_history(base, call<WriteRegion>({base, value}, {base.shape(), base.strides(), x.shape(), x.strides(),
                                                         x.impl()->offset - base.impl()->offset}));
  } else {
    backend_for(x.device()).copy(value.view(), x.view());
  }
  x.bump_version();
  if (Observing::any()) [[unlikely]]
    Observing::report([&](OpObserver& o) { o.written(result, x); });
  if (recorded) {
    x.impl()->recorded_writes_seen = ++x.storage()->recorded_writes;
    take_history(x, value);
  }
  return x;
}

}  // namespace halfstep
