// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/promotion.h"

#include <cmath>
#include <utility>

#include "framework/backend/backend.h"
#include "framework/ops/core/call.h"
#include "framework/ops/core/op_policy.h"

namespace halfstep {
int category(DType t) { return is_floating(t) ? 2 : t == DType::boolean ? 0 : 1; }

namespace {

// Combines two dtypes; `low` matters only if its category is higher.
std::optional<DType> combine(std::optional<DType> high, std::optional<DType> low) {
  if (!high) return low;
  if (!low || category(*low) <= category(*high)) return high;
  return promote(*high, *low);
}

}  // namespace

DType result_type(const Tensors& in) {
  std::optional<DType> with_dims, zero_dim, wrapped;
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    const bool number = t.impl()->wrapped_number;
    auto& slot = number ? wrapped : t.dim() == 0 ? zero_dim : with_dims;
    const DType type = number && t.dtype() == DType::f64 ? DType::f32 : t.dtype();
    slot = slot ? promote(*slot, type) : type;
  }
  return combine(combine(with_dims, zero_dim), wrapped).value_or(DType::f32);
}

Tensor wrapped_number(Number value, const Tensor& like) {
  const bool floating = like.is_floating_point() || value.is_floating();
  const bool truth = value.dtype() == DType::boolean && like.dtype() == DType::boolean;
  Tensor t = Tensor::empty({}, {.dtype = floating ? DType::f64 : truth ? DType::boolean : DType::i64, .device = Device::cpu});
  if (floating)
    *t.data_ptr<double>() = value.floating();
  else if (truth)
    *t.data_ptr<bool>() = value.whole() != 0;
  else
    *t.data_ptr<int64_t>() = value.whole();
  t.impl()->wrapped_number = true;
  return t;
}

Number number_beside(double value, const Tensor& like) {
  const bool is_integer = !like.is_floating_point() && value == std::nearbyint(value) && std::fabs(value) < 0x1p63;
  return is_integer ? Number(int64_t(value)) : Number(value);
}

void fill(const Tensor& to, Number value) {
  constexpr int64_t kExact = int64_t(1) << 53;  // larger integers are rounded in double
  const TensorView all = ordered(to, to.format());
  Backend& backend = backend_for(to.device());
  if (value.is_floating() || (value.whole() >= -kExact && value.whole() <= kExact)) return backend.fill(all, value.floating());
  const Tensor one = Tensor::empty({}, {.dtype = DType::i64, .device = Device::cpu});
  *one.data_ptr<int64_t>() = value.whole();
  backend.copy(broadcast_view(one.to(to.device()), to.shape(), to.format()), all);
}

Device device_of(const Tensors& in) {
  for (const Tensor& t : in)
    if (t.defined() && !t.impl()->wrapped_number) return t.device();
  return Device::cpu;
}

TensorView broadcast_view(const Tensor& t, const Shape& shape) {
  return {t.view().data, t.dtype(), shape, broadcast_strides(t.shape(), t.strides(), shape), t.impl()->wrapped_number};
}

MemoryFormat format_of(const Shape& shape, std::span<const Tensor> in) {
  if (shape.size() != 4 && shape.size() != 5) return MemoryFormat::contiguous;
  for (const Tensor& t : in) {
    if (!t.defined() || t.shape() != shape) continue;
    const bool rows = t.is_contiguous(), channels = t.is_contiguous(MemoryFormat::channels_last);
    if (rows != channels) return rows ? MemoryFormat::contiguous : MemoryFormat::channels_last;
  }
  return MemoryFormat::contiguous;
}

bool apply_policy(const OpInfo& info, std::span<Tensor> in) {
  if (autocast::any_policies()) [[unlikely]]
    check_names(autocast::policies_for(in));
  const std::optional<CastPolicy> policy = autocast::apply(info.name, info.policy, info.reads_half, in, info.advice);
  return policy == CastPolicy::f32 || policy == CastPolicy::f32_output;
}

void check_same_device(std::string_view op, const Tensors& in) {
  const Tensor* first = nullptr;
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    if (!first || first->impl()->wrapped_number) first = &t;
    check<DeviceError>(t.impl()->wrapped_number || t.device() == first->device(), op, "all tensors must be on one device, got ",
                       first->device(), " and ", t.device(), Help{"move them with to(device)"});
  }
  check<ValueError>(first != nullptr, op, "needs a defined tensor");
}

void check_has_values(std::string_view op, const Tensors& in) {
  for (const Tensor& t : in) {
    check<MetaError>(!t.defined() || !t.device().is_meta(), op,
                     "needs the values of its inputs, and a tensor on the device meta has none, got ",
                     t.defined() ? t.dtype() : DType::f32, " ", t.defined() ? t.shape() : Shape(),
                     Help{"only shapes, dtypes and sizes are known there: run this on the cpu or a GPU"});
  }
}

void check_same_dtype(std::string_view op, const Tensors& in) {
  const Tensor* first = nullptr;
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    if (!first) first = &t;
    check<DTypeError>(t.dtype() == first->dtype(), op, "all inputs must have one dtype, got ", first->dtype(), " ", first->shape(),
                      " and ", t.dtype(), " ", t.shape(), Help{"convert with to(dtype), or compute inside an Autocast region"});
  }
}

}  // namespace halfstep
