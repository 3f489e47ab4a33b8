// SPDX-License-Identifier: Apache-2.0
// The parts of libtorch's tensor that are more than a call of one op: conversions, memory, indexing, and factories with libtorch's
// default dtypes.
#include "torch/tensor/network.h"

namespace torch {
namespace {

bool is_channels_last(std::optional<MemoryFormat> f) {
  return f == MemoryFormat::ChannelsLast || f == MemoryFormat::ChannelsLast3d;
}

}  // namespace

Tensor Tensor::to(const TensorOptions& o, bool, bool copy, std::optional<MemoryFormat> f) const {
  TORCH_CHECK(!o.requires_grad(), "to(options) expects unset requires_grad flag, but got options.requires_grad set as true");
  TORCH_CHECK(!o.pinned_memory(), "to(options) expects unset pinned_memory flag, but got options.pinned_memory set as true");
  Tensor out = *this;
  if (o.has_device()) out = out.h_.to(o.device().h());
  if (o.has_dtype()) out = out.h_.to(detail::to_hs(o.dtype().toScalarType()));
  const std::optional<MemoryFormat> wanted = f ? f : o.memory_format_opt();
  if (wanted && *wanted != MemoryFormat::Preserve) out = out.contiguous(*wanted);
  return copy && out.is_same(*this) ? out.clone() : out;
}

Tensor Tensor::clone(std::optional<MemoryFormat> f) const {
  if (is_channels_last(f)) return h_.clone(hs::MemoryFormat::channels_last);
  if (f == MemoryFormat::Contiguous) return h_.clone(hs::MemoryFormat::contiguous);
  return h_.clone();
}

Tensor Tensor::contiguous(MemoryFormat f) const {
  TORCH_CHECK(f != MemoryFormat::Preserve, "preserve memory format is unsupported by the contiguous operator");
  return is_channels_last(f) ? h_.contiguous(hs::MemoryFormat::channels_last) : h_.contiguous();
}

// Makes this tensor share the memory of `o`, and drops its 16-bit copy.
void Tensor::set_data(const Tensor& o) const {
  TORCH_CHECK(!h_.requires_grad() || o.is_floating_point(),
              "data set to a tensor that requires gradients must be floating point, got ", o.dtype());
  hs::TensorImpl& to = *h_.impl();
  const hs::TensorImpl& from = *o.h_.impl();
  to.storage = from.storage;
  to.offset = from.offset;
  to.shape = from.shape;
  to.strides = from.strides;
  to.dtype = from.dtype;
  if (to.autograd) to.autograd->shadow = {};
}

// Keeps the leading elements. Takes new memory to grow, and for a view that is not contiguous.
Tensor& Tensor::resize_(IntArrayRef sizes) const {
  TORCH_CHECK(!requires_grad(), "cannot resize variables that require grad");
  hs::TensorImpl& own = *h_.impl();
  const int64_t need = hs::numel(detail::D(sizes));
  if (need > h_.numel() || !h_.is_contiguous()) {
    const hs::Tensor next = hs::Tensor::empty(detail::D(sizes), {.dtype = h_.dtype(), .device = h_.device()});
    const int64_t keep = std::min(need, h_.numel());
    if (keep > 0) next.reshape({-1}).slice(0, 0, keep).copy_(h_.detach().contiguous().reshape({-1}).slice(0, 0, keep));
    own.storage = next.storage();
    own.offset = 0;
  }
  own.shape = detail::D(sizes);
  own.strides = hs::contiguous_strides(own.shape);
  return self();
}

namespace indexing {

hs::TensorIndex TensorIndex::h() const {
  switch (kind_) {
    case Kind::none: return std::nullopt;
    case Kind::ellipsis: return hs::indexing::Ellipsis;
    case Kind::integer: return number_;
    case Kind::boolean: return number_ != 0;
    case Kind::slice: return hs::indexing::Slice(slice_.start(), slice_.stop(), slice_.step());
    case Kind::tensor: break;
  }
  const hs::Tensor& t = tensor_.h();
  if (!t.defined()) return t;
  if (t.dtype() == hs::DType::u8) {
    TORCH_WARN("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.");
    return t.to(hs::DType::boolean);
  }
  // A 0-dim tensor of integers is a number, which makes a view.
  const bool is_number = t.dim() == 0 && t.dtype() != hs::DType::boolean && !t.is_floating_point() && t.device().is_cpu();
  return is_number ? hs::TensorIndex(t.item<int64_t>()) : hs::TensorIndex(t);
}

std::ostream& operator<<(std::ostream& out, const TensorIndex& i) {
  if (i.is_none()) return out << "None";
  if (i.is_ellipsis()) return out << "...";
  if (i.is_integer()) return out << i.integer();
  if (i.is_boolean()) return out << (i.boolean() ? "true" : "false");
  if (i.is_slice()) return out << i.slice();
  return out << i.tensor();
}
std::ostream& operator<<(std::ostream& out, const std::vector<TensorIndex>& v) {
  out << "(";
  for (size_t i = 0; i < v.size(); ++i) out << (i ? ", " : "") << v[i];
  return out << ")";
}

}  // namespace indexing

namespace {

using Indices = std::initializer_list<hs::TensorIndex>;

// Calls f with the indices as an initializer list, as halfstep takes them: its length is fixed at compile time.
template <class F>
decltype(auto) with_indices(ArrayRef<TensorIndex> i, const F& f) {
  TORCH_CHECK(!i.empty(), "Passing an empty index list to Tensor::index() or index_put_() is not valid syntax");
  auto at = [&](size_t k) { return i[k].h(); };
  switch (i.size()) {
    case 1: return f({at(0)});
    case 2: return f({at(0), at(1)});
    case 3: return f({at(0), at(1), at(2)});
    case 4: return f({at(0), at(1), at(2), at(3)});
    case 5: return f({at(0), at(1), at(2), at(3), at(4)});
    case 6: return f({at(0), at(1), at(2), at(3), at(4), at(5)});
    case 7: return f({at(0), at(1), at(2), at(3), at(4), at(5), at(6)});
    case 8: return f({at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)});
    default: detail::fail("at most 8 indices can be passed, got ", i.size());
  }
}

}  // namespace

Tensor Tensor::index(ArrayRef<TensorIndex> i) const {
  const Tensor out = with_indices(i, [&](Indices v) { return Tensor(h_.index(v)); });
  return out.is_same(*this) ? Tensor(h_.view(h_.shape())) : out;  // x.index({...}) = y writes into x
}
Tensor& Tensor::index_put_(ArrayRef<TensorIndex> i, const Tensor& v) const {
  with_indices(i, [&](Indices k) { h_.index_put_(k, v.h_); });
  return self();
}
Tensor& Tensor::index_put_(ArrayRef<TensorIndex> i, const Scalar& v) const {
  with_indices(i, [&](Indices k) { h_.index_put_(k, v.n()); });
  return self();
}

void detail::zero_grad(const Tensor& parameter, bool set_to_none) {
  const Tensor g = parameter.grad();
  if (!g.defined()) return;
  if (set_to_none) {
    parameter.mutable_grad().reset();
    return;
  }
  const Tensor plain = g.detach();
  plain.zero_();
  parameter.mutable_grad() = plain;
}

Tensor scalar_tensor(Scalar v, const TensorOptions& o) { return full({}, v, o.has_dtype() ? o : o.dtype(get_default_dtype())); }

Tensor full(IntArrayRef s, Scalar v, const TensorOptions& o) {
  hs::NumberOptions n = detail::number_options(o);
  if (!n.dtype && v.isFloatingPoint()) n.dtype = detail::to_hs(detail::default_dtype());
  return hs::full(detail::D(s), v.n(), n);
}

Tensor randint(int64_t lo, int64_t hi, IntArrayRef s, const TensorOptions& o) {
  const hs::Tensor t = hs::randint(lo, hi, detail::D(s), {.device = o.device().h()});
  const Tensor out = t.to(o.has_dtype() ? detail::to_hs(o.dtype().toScalarType()) : hs::DType::i64);
  return o.requires_grad() ? out.requires_grad_() : out;
}

Tensor randperm(int64_t n, const TensorOptions& o) {
  const Tensor t = Tensor(hs::randperm(n)).to(TensorOptions().device(o.device_opt()));
  return o.has_dtype() ? t.to(o.dtype().toScalarType()) : t;
}

Tensor arange(Scalar from, Scalar to, Scalar step, const TensorOptions& o) {
  hs::NumberOptions n = detail::number_options(o);
  const bool whole = from.isIntegral(false) && to.isIntegral(false) && step.isIntegral(false);
  if (!n.dtype) n.dtype = whole ? hs::DType::i64 : detail::to_hs(detail::default_dtype());
  return hs::arange(from.n(), to.n(), step.n(), n);
}

}  // namespace torch
