// SPDX-License-Identifier: Apache-2.0
#include "framework/base/device.h"

#include <charconv>
#include <limits>
#include <ostream>
#include <system_error>

#include "framework/base/check.h"

namespace halfstep {

Device parse_device(std::string_view text, std::string_view where) {
  if (text == "cpu") return Device::cpu;
  if (text == "cuda") return Device::cuda;
  if (text == "meta") return Device::meta;
  constexpr std::string_view prefix = "cuda:";
  if (text.starts_with(prefix)) {
    int index = -1;
    const char* const end = text.data() + text.size();
    const auto [parsed_to, error] = std::from_chars(text.data() + prefix.size(), end, index);
    const bool fits = index >= 0 && index <= std::numeric_limits<int8_t>::max();
    if (error == std::errc() && parsed_to == end && fits) return {Device::Type::cuda, int8_t(index)};
  }
  fail<DeviceError>(where, "unknown device \"", text, "\"", Help{"use \"cpu\", \"cuda\", \"cuda:<index>\" or \"meta\""});
}

std::string_view name(Device::Type t) {
  constexpr std::string_view names[kDeviceTypeCount] = {"cpu", "cuda", "meta"};
  return names[size_t(t)];
}

std::ostream& operator<<(std::ostream& out, Device d) {
  out << name(d.type);
  return d.is_cuda() ? out << ':' << int(d.index) : out;
}

}  // namespace halfstep
