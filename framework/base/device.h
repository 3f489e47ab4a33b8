// Where a tensor lives.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string_view>

namespace halfstep {

struct Device {
  enum class Type : uint8_t { cpu, cuda };
  Type type = Type::cpu;
  int8_t index = 0;

  static const Device cpu;
  static const Device cuda;  // cuda:0

  constexpr bool is_cpu() const { return type == Type::cpu; }
  constexpr bool is_cuda() const { return type == Type::cuda; }
  constexpr bool operator==(const Device&) const = default;
};
inline constexpr Device Device::cpu{Device::Type::cpu, 0};
inline constexpr Device Device::cuda{Device::Type::cuda, 0};
inline constexpr int kDeviceTypeCount = 2;

// "cpu", "cuda", "cuda:1". Throws DeviceError for anything else.
Device parse_device(std::string_view text);
std::string_view name(Device::Type t);                      // "cpu", "cuda"
std::ostream& operator<<(std::ostream& out, Device d);      // cpu, cuda:0

}  // namespace halfstep
