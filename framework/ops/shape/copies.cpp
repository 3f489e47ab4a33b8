// SPDX-License-Identifier: Apache-2.0
// Casts and copies.
#include "framework/ops/core/call.h"
#include "framework/ops/core/in_place.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

// Makes a dense copy in `dtype`. Its gradient flows back in the input's dtype.
struct Cast {
  struct Attr {
    DType to;
    DType from;
    MemoryFormat format;
  };
  static constexpr OpInfo info{
      .name = "to", .policy = CastPolicy::keep, .doc = "a copy in another dtype, rounded once; or a plain copy"};

  static Attributes describe(const Attr& attr) { return {{"dtype", name(attr.to)}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor& x = in[0];
    const Tensor out = Tensor::empty(x.shape(), {.dtype = attr.to, .device = x.device(), .format = attr.format});
    backend_for(x.device()).copy(in_memory_order(x.view(), attr.format), in_memory_order(out.view(), attr.format));
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) { return {grads[0].to(attr.from)}; }
};

// Copies across devices, through host memory.
struct Move {
  struct Attr {
    Device to, from;
  };
  static constexpr OpInfo info{.name = "to_device", .policy = CastPolicy::keep, .doc = "a copy on another device"};

  static Attributes describe(const Attr& attr) { return {{"device", name(attr.to.type)}}; }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const MemoryFormat format = in[0].format();
    const Tensor x = in[0].to(format);
    const Tensor out = Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = attr.to, .format = format});
    if (attr.from.is_cpu()) {
      backend_for(attr.to).copy_from_host(x.const_data_ptr(), out.view().data, x.nbytes());
    } else {
      const Tensor host = attr.to.is_cpu() ? out : Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = Device::cpu});
      backend_for(attr.from).copy_to_host(x.const_data_ptr(), host.view().data, x.nbytes());
      if (!attr.to.is_cpu()) backend_for(attr.to).copy_from_host(host.const_data_ptr(), out.view().data, x.nbytes());
    }
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) { return {grads[0].to(attr.from)}; }
};

}  // namespace

Tensor to(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : call<Cast>({x}, {dtype, x.dtype(), x.format()}); }
Tensor to(const Tensor& x, Device device) { return x.device() == device ? x : call<Move>({x}, {device, x.device()}); }
Tensor clone(const Tensor& x, MemoryFormat format) {
  check<ShapeError>(format == MemoryFormat::contiguous || x.dim() == 4 || x.dim() == 5, "clone",
                    "channels_last is a format of tensors [N, C, H, W] or [N, C, D, H, W], got ", x.shape());
  return call<Cast>({x}, {x.dtype(), x.dtype(), format});
}
Tensor clone(const Tensor& x) { return clone(x, x.format()); }
Tensor to(const Tensor& x, MemoryFormat format) { return x.is_contiguous(format) ? x : clone(x, format); }
Tensor contiguous(const Tensor& x) { return to(x, MemoryFormat::contiguous); }

Tensor Tensor::to(DType dtype) const { return halfstep::to(*this, dtype); }
Tensor Tensor::to(Device device) const { return halfstep::to(*this, device); }
Tensor Tensor::clone() const { return halfstep::clone(*this); }
Tensor Tensor::clone(MemoryFormat format) const { return halfstep::clone(*this, format); }
Tensor Tensor::to(MemoryFormat format) const { return halfstep::to(*this, format); }
Tensor Tensor::contiguous() const { return halfstep::contiguous(*this); }

const Tensor& Tensor::copy_(const Tensor& src) const& {
  const Tensor local = src.to(device());
  // The expanded view has its own place in the graph, also if src is a leaf.
  const Tensor full = local.shape() == shape() && !local.requires_grad() ? local : local.expand(shape());
  return assign_in_place(*this, full.dtype() == dtype() ? full : full.to(dtype()), "copy_");
}

const Tensor& Tensor::fill_(Number value) const& {
  check_fits("fill_", value, dtype());
  const bool recorded = check_in_place(*this, shape(), dtype(), false, "fill_");
  if (recorded && impl()->is_view) return assign_in_place(*this, new_full(shape(), value), "fill_");
  fill(*this, value);
  bump_version();
  if (recorded) {  // the old values no longer matter
    ++storage()->recorded_writes;
    impl()->autograd.reset();
  }
  return *this;
}

void Tensor::read_host(std::vector<double>* floats, std::vector<int64_t>* integers) const {
  if (Observing::any()) [[unlikely]]
    Observing::report([&](OpObserver& o) { o.host_read(*this); });
  const size_t n = size_t(numel());
  if (floats)
    floats->resize(n);
  else
    integers->resize(n);
  if (n == 0) return;
  const DType dtype = floats ? DType::f64 : DType::i64;
  void* const to = floats ? static_cast<void*>(floats->data()) : integers->data();
  if (device().is_cpu()) {
    const TensorView out{to, dtype, shape(), contiguous_strides(shape())};
    return backend_for(device()).copy(view(), out);
  }
  const NoGrad off;
  const Tensor t = detach().to(dtype).contiguous();
  backend_for(t.device()).copy_to_host(t.const_data_ptr(), to, t.nbytes());
}

void add_copies(OpList& list) {
  list.add(Cast::info, [](Args& a) {
    const Tensor x = a.tensor(0);
    const auto dtype = a.dtype();
    return dtype ? to(x, *dtype) : clone(x);
  });
  list.add(Move::info, [](Args& a) { return to(a.tensor(0), parse_device(a.text("device"), a.op())); });
}

}  // namespace halfstep
