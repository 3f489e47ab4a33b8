// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/promotion.h"

#include <cmath>
#include <utility>

#include "framework/backend/backend.h"

namespace halfstep {
int category(DType t) { return is_floating(t) ? 2 : t == DType::boolean ? 0 : 1; }

namespace {

// Promotes two dtypes; `low` counts only if its category is higher.
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
    const bool is_wrapped = t.impl()->wrapped_number;
    auto& group = is_wrapped ? wrapped : t.dim() == 0 ? zero_dim : with_dims;
    const DType type = is_wrapped && t.dtype() == DType::f64 ? DType::f32 : t.dtype();
    group = group ? promote(*group, type) : type;
  }
  return combine(combine(with_dims, zero_dim), wrapped).value_or(DType::f32);
}

Tensor wrapped_number(Number value, const Tensor& like) {
  const bool floating = like.is_floating_point() || value.is_floating();
  const bool is_bool = value.dtype() == DType::boolean && like.dtype() == DType::boolean;
  Tensor t = Tensor::empty({}, {.dtype = floating ? DType::f64 : is_bool ? DType::boolean : DType::i64, .device = Device::cpu});
  if (floating)
    *t.data_ptr<double>() = value.floating();
  else if (is_bool)
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
  constexpr int64_t kLargestExact = int64_t(1) << 53;  // larger integers are rounded in double
  const TensorView all = ordered(to, to.format());
  Backend& backend = backend_for(to.device());
  if (value.is_floating() || (value.whole() >= -kLargestExact && value.whole() <= kLargestExact))
    return backend.fill(all, value.floating());
  const Tensor number = Tensor::empty({}, {.dtype = DType::i64, .device = Device::cpu});
  *number.data_ptr<int64_t>() = value.whole();
  backend.copy(broadcast_view(number.to(to.device()), to.shape(), to.format()), all);
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

}  // namespace halfstep
