// SPDX-License-Identifier: Apache-2.0
// The device on which a tensor's memory is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "framework/base/guard.h"

namespace halfstep {

struct Device {
  enum class Type : uint8_t { cpu, cuda, meta };
  Type type = Type::cpu;
  int8_t index = 0;

  constexpr Device() = default;
  constexpr Device(Type t, int8_t i = 0) : type(t), index(i) {}
  // Parses a literal like parse_device: x.to("cuda"), {.device = "cuda:1"}. (Not any pointer, because 0 would convert to one.)
  template <size_t n>
  Device(const char (&text)[n]);
  Device(const std::string& text);

  static const Device cpu;
  static const Device cuda;  // cuda:0
  // A device that computes nothing: its tensors have shape, dtype and strides, but no values. It shows what a program would
  // allocate, cast and compute. Any function that needs a value throws MetaError.
  static const Device meta;

  constexpr bool is_cpu() const { return type == Type::cpu; }
  constexpr bool is_cuda() const { return type == Type::cuda; }
  constexpr bool is_meta() const { return type == Type::meta; }
  constexpr bool operator==(const Device&) const = default;
};
inline constexpr Device Device::cpu{Device::Type::cpu, 0};
inline constexpr Device Device::cuda{Device::Type::cuda, 0};
inline constexpr Device Device::meta{Device::Type::meta, 0};
inline constexpr int kDeviceTypeCount = 3;
inline constexpr Device kCPU = Device::cpu, kCUDA = Device::cuda;  // PyTorch's names in C++

// Makes `device` the default for tensors that this thread creates without naming a device:
// { DefaultDevice on(Device::meta); Net net; }
class DefaultDevice : public OrderedGuard<DefaultDevice> {
 public:
  [[nodiscard]] explicit DefaultDevice(Device device) : saved_(current_) { current_ = device; }
  ~DefaultDevice() {
    if (ends_here("DefaultDevice")) (next() ? next()->saved_ : current_) = saved_;
  }
  static Device current() { return current_; }

 private:
  static inline thread_local constinit Device current_ = Device::cpu;
  Device saved_;
};
inline Device default_device() { return DefaultDevice::current(); }  // cpu outside of any such scope

// Parses "cpu", "cuda", "cuda:1" or "meta". Throws DeviceError for anything else.
Device parse_device(std::string_view text, std::string_view where = "device");
template <size_t n>
Device::Device(const char (&text)[n]) : Device(parse_device(text)) {}
inline Device::Device(const std::string& text) : Device(parse_device(text)) {}
std::string_view name(Device::Type t);                  // "cpu", "cuda", "meta"
std::ostream& operator<<(std::ostream& out, Device d);  // cpu, cuda:0, meta

}  // namespace halfstep
