// SPDX-License-Identifier: Apache-2.0
#include "framework/base/device.h"

#include <charconv>
#include <ostream>
#include <system_error>

#include "framework/base/check.h"

namespace halfstep {

Device parse_device(std::string_view text, std::string_view where) {
  if (text == "cpu") return Device::cpu;
  if (text == "cuda") return Device::cuda;
  if (text == "meta") return Device::meta;
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* end = text.data() + text.size();
    const auto [p, ec] = std::from_chars(text.data() + 5, end, index);
    if (ec == std::errc() && p == end && index >= 0 && index < 128) return {Device::Type::cuda, int8_t(index)};
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
