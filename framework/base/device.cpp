#include "framework/base/device.h"

#include <charconv>
#include <ostream>
#include <system_error>

#include "framework/base/check.h"

namespace halfstep {

Device parse_device(std::string_view text) {
  if (text == "cpu") return Device::cpu;
  if (text == "cuda") return Device::cuda;
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* end = text.data() + text.size();
    const auto [p, ec] = std::from_chars(text.data() + 5, end, index);
    if (ec == std::errc() && p == end && index >= 0 && index < 128) return {Device::Type::cuda, int8_t(index)};
  }
  fail<DeviceError>("device", "unknown device \"", text, "\"", Help{"use \"cpu\", \"cuda\" or \"cuda:<index>\""});
}

std::string_view name(Device::Type t) { return t == Device::Type::cpu ? "cpu" : "cuda"; }

std::ostream& operator<<(std::ostream& out, Device d) {
  out << name(d.type);
  return d.is_cuda() ? out << ':' << int(d.index) : out;
}

}  // namespace halfstep
