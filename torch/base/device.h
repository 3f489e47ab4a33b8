// SPDX-License-Identifier: Apache-2.0
// Devices, layouts and memory formats, with libtorch's names.
#pragma once

#include "framework/base/device.h"
#include "torch/base/error.h"

namespace torch {

enum class DeviceType : int8_t { CPU = 0, CUDA = 1, Meta = 14 };
inline constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;
using DeviceIndex = int8_t;
inline std::ostream& operator<<(std::ostream& out, DeviceType t) {
  return out << (t == kCPU ? "cpu" : t == kCUDA ? "cuda" : "meta");
}
struct Device {
  using Type = DeviceType;
  Device(DeviceType t, DeviceIndex i = -1) : type_(t), index_(i) { check(); }
  Device(const std::string& text) : type_(kCPU) {
    const size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    if (name == "cpu")
      type_ = kCPU;
    else if (name == "cuda")
      type_ = kCUDA;
    else if (name == "meta")
      type_ = kMeta;
    else
      detail::fail("Invalid device string: '", text, "'");
    if (colon != std::string::npos) {
      const std::string digits = text.substr(colon + 1);
      if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos)
        detail::fail("Could not parse device index '", digits, "' in device string '", text, "'");
      index_ = DeviceIndex(std::stoi(digits));
    }
    check();
  }
  template <size_t n>
  Device(const char (&text)[n]) : Device(std::string(text)) {}
  Device(hs::Device d) : type_(d.is_cuda() ? kCUDA : d.is_meta() ? kMeta : kCPU), index_(d.is_cuda() ? d.index : -1) {}
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ >= 0; }
  void set_index(DeviceIndex i) { index_ = i; }
  bool is_cpu() const { return type_ == kCPU; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_meta() const { return type_ == kMeta; }
  bool operator==(const Device& o) const { return type_ == o.type_ && index_ == o.index_; }
  std::string str() const {
    std::string out = type_ == kCPU ? "cpu" : type_ == kCUDA ? "cuda" : "meta";
    return has_index() ? out + ":" + std::to_string(index_) : out;
  }
  hs::Device h() const {
    if (type_ == kCUDA) return {hs::Device::Type::cuda, index_ < 0 ? int8_t(0) : index_};
    return type_ == kMeta ? hs::Device::meta : hs::Device::cpu;
  }

 private:
  void check() const {
    if (index_ < -1) detail::fail("Device index must be -1 or non-negative, got ", int(index_));
    if (type_ == kCPU && index_ > 0) detail::fail("CPU device index must be -1 or zero, got ", int(index_));
  }
  DeviceType type_;
  DeviceIndex index_ = -1;
};
inline std::ostream& operator<<(std::ostream& out, const Device& d) { return out << d.str(); }
enum class Layout : int8_t { Strided };
inline constexpr Layout kStrided = Layout::Strided;
inline std::ostream& operator<<(std::ostream& out, Layout) { return out << "Strided"; }
enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };
inline std::ostream& operator<<(std::ostream& out, MemoryFormat f) {
  static const char* names[] = {"Contiguous", "Preserve", "ChannelsLast", "ChannelsLast3d"};
  return out << names[size_t(f)];
}

}  // namespace torch
