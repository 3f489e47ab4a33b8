// SPDX-License-Identifier: Apache-2.0
// TensorOptions: each part may be unset.
#pragma once

#include "framework/tensor/tensor.h"
#include "torch/base/array_ref.h"
#include "torch/base/device.h"
#include "torch/base/scalar.h"
#include "torch/base/scalar_type.h"

namespace torch {

// ---- options of a new tensor
struct TensorOptions {
  TensorOptions() = default;
  TensorOptions(ScalarType t) { dtype_ = std::optional(t); }
  TensorOptions(TypeMeta t) { dtype_ = std::optional(t.toScalarType()); }
  TensorOptions(Device d) { device_ = std::optional<Device>(d); }
  TensorOptions(DeviceType d) { device_ = std::optional<Device>(Device(d)); }
  TensorOptions(DeviceType d, DeviceIndex i) { device_ = std::optional<Device>(Device(d, i)); }
  template <std::integral I>
  TensorOptions(DeviceType d, I i) {
    device_ = std::optional<Device>(Device(d, DeviceIndex(i)));
  }
  TensorOptions(const std::string& d) { device_ = std::optional<Device>(Device(d)); }
  template <size_t n>
  TensorOptions(const char (&d)[n]) {
    device_ = std::optional<Device>(Device(std::string(d)));
  }
  TensorOptions(Layout l) { layout_ = std::optional(l); }
  TensorOptions(MemoryFormat f) { format_ = std::optional(f); }

  TensorOptions dtype(std::optional<ScalarType> t) const {
    auto o = *this;
    o.dtype_ = t;
    return o;
  }
  TensorOptions dtype(TypeMeta t) const { return dtype(std::optional<ScalarType>(t.toScalarType())); }
  TensorOptions dtype(ScalarType t) const { return dtype(std::optional<ScalarType>(t)); }
  template <class T>
  TensorOptions& dtype() {
    dtype_ = std::optional(detail::scalar_type_of<T>());
    return *this;
  }
  TensorOptions device(std::optional<Device> d) const {
    auto o = *this;
    o.device_ = d;
    return o;
  }
  TensorOptions device(Device d) const { return device(std::optional<Device>(d)); }
  TensorOptions device(DeviceType t, DeviceIndex i = -1) const { return device(Device(t, i)); }
  TensorOptions device_index(DeviceIndex i) const { return device(Device(kCUDA, i)); }
  TensorOptions layout(std::optional<Layout> l) const {
    auto o = *this;
    o.layout_ = l;
    return o;
  }
  TensorOptions requires_grad(std::optional<bool> r) const {
    auto o = *this;
    o.requires_grad_ = r;
    return o;
  }
  TensorOptions pinned_memory(std::optional<bool> p) const {
    auto o = *this;
    o.pinned_ = p;
    return o;
  }
  TensorOptions memory_format(std::optional<MemoryFormat> f) const {
    auto o = *this;
    o.format_ = f;
    return o;
  }

  TypeMeta dtype() const { return dtype_.value_or(detail::default_dtype()); }
  Device device() const { return device_ ? *device_ : Device(hs::default_device()); }
  int32_t device_index() const { return device().index(); }
  Layout layout() const { return kStrided; }
  bool requires_grad() const { return requires_grad_.value_or(false); }
  bool pinned_memory() const { return pinned_.value_or(false); }
  bool is_sparse() const { return false; }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }
  bool has_layout() const { return layout_.has_value(); }
  bool has_requires_grad() const { return requires_grad_.has_value(); }
  bool has_pinned_memory() const { return pinned_.has_value(); }
  bool has_memory_format() const { return format_.has_value(); }
  std::optional<ScalarType> dtype_opt() const { return dtype_; }
  std::optional<Device> device_opt() const { return device_; }
  std::optional<Layout> layout_opt() const { return layout_; }
  std::optional<bool> requires_grad_opt() const { return requires_grad_; }
  std::optional<MemoryFormat> memory_format_opt() const { return format_; }
  TensorOptions merge_in(const TensorOptions& o) const {
    TensorOptions r = *this;
    if (o.dtype_) r.dtype_ = o.dtype_;
    if (o.device_) r.device_ = o.device_;
    if (o.layout_) r.layout_ = o.layout_;
    if (o.requires_grad_) r.requires_grad_ = o.requires_grad_;
    if (o.format_) r.format_ = o.format_;
    if (o.pinned_) r.pinned_ = o.pinned_;
    return r;
  }
  TensorOptions merge_memory_format(std::optional<MemoryFormat> f) const { return f ? memory_format(f) : *this; }
  hs::TensorOptions h() const {
    TORCH_CHECK(!pinned_memory(),
                "Pinned memory cannot be asked for: halfstep's loader copies batches through pinned memory by itself");
    return {.dtype = detail::to_hs(dtype().toScalarType()),
            .device = device().h(),
            .requires_grad = requires_grad(),
            .format = *format_ == MemoryFormat::ChannelsLast || *format_ == MemoryFormat::ChannelsLast3d
                          ? hs::MemoryFormat::channels_last
                          : hs::MemoryFormat::contiguous};
  }

 private:
  // An optional whose value is always initialised: of copies of std::optional GCC warns where options are passed.
  template <class T>
  struct Part {
    T value;
    bool given = false;
    Part& operator=(const std::optional<T>& v) {
      given = v.has_value();
      if (v) value = *v;
      return *this;
    }
    bool has_value() const { return given; }
    explicit operator bool() const { return given; }
    const T& operator*() const { return value; }
    T value_or(T other) const { return given ? value : other; }
    operator std::optional<T>() const { return given ? std::optional<T>(value) : std::nullopt; }
  };
  Part<ScalarType> dtype_{ScalarType::Undefined};
  Part<Device> device_{Device(kCPU)};
  Part<Layout> layout_{kStrided};
  Part<bool> requires_grad_{false}, pinned_{false};
  Part<MemoryFormat> format_{MemoryFormat::Contiguous};
};
inline TensorOptions dtype(ScalarType t) { return TensorOptions(t); }
inline TensorOptions dtype(TypeMeta t) { return TensorOptions(t); }
template <class T>
TensorOptions dtype() {
  return TensorOptions(detail::scalar_type_of<T>());
}
inline TensorOptions device(Device d) { return TensorOptions(d); }
inline TensorOptions device(DeviceType d, DeviceIndex i = -1) { return TensorOptions(Device(d, i)); }
inline TensorOptions device_index(DeviceIndex i) { return TensorOptions(Device(kCUDA, i)); }
inline TensorOptions layout(Layout l) { return TensorOptions(l); }
inline TensorOptions requires_grad(bool r = true) { return TensorOptions().requires_grad(r); }
inline TensorOptions memory_format(MemoryFormat f) { return TensorOptions(f); }
std::ostream& operator<<(std::ostream& out, const TensorOptions& o);

// What x.type() returns: options of tensors like x, with the name of libtorch's first releases, "CPUFloatType".
struct DeprecatedTypeProperties {
  TensorOptions of;
  operator TensorOptions() const { return of; }
  TensorOptions options() const { return of; }
  ScalarType scalarType() const { return of.dtype().toScalarType(); }
  Device device() const { return of.device(); }
  DeviceType device_type() const { return of.device().type(); }
  bool is_cuda() const { return of.device().is_cuda(); }
  bool is_sparse() const { return false; }
  std::string toString() const { return std::string(is_cuda() ? "CUDA" : "CPU") + torch::toString(scalarType()) + "Type"; }
  bool operator==(const DeprecatedTypeProperties& o) const {
    return scalarType() == o.scalarType() && device_type() == o.device_type();
  }
};
inline std::ostream& operator<<(std::ostream& out, const DeprecatedTypeProperties& t) { return out << t.toString(); }

namespace Reduction {
enum Reduction { None, Mean, Sum, END };
}
void init_num_threads();
void set_num_threads(int threads);
int get_num_threads();
void set_num_interop_threads(int threads);  // has no effect: ops run one after another
int get_num_interop_threads();
namespace cuda {
size_t device_count();
bool is_available();
bool cudnn_is_available();
void synchronize(int64_t device_index = -1);
void manual_seed(uint64_t seed);      // seeds the one generator, of the CPU as well
void manual_seed_all(uint64_t seed);  // the same
}  // namespace cuda

}  // namespace torch
