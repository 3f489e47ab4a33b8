// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/base64.h"

#include <cstdint>

#include "framework/base/check.h"

namespace halfstep {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;  // 3 bytes, which 4 digits of 6 bits encode
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (i + k < bytes.size() ? uint8_t(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return out;
}

std::string from_base64(std::string_view text, std::string_view what) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t group = 0;
  size_t digits = 0;  // read so far; 4 make 3 bytes
  for (const char c : text.substr(0, text.find('='))) {
    const size_t digit = kDigits.find(c);
    check<IoError>(digit != kDigits.npos, what, "is no base64");
    group = group << 6 | uint32_t(digit);
    if (++digits % 4 == 0) {
      for (const int shift : {16, 8, 0}) out += char(group >> shift & 255);
      group = 0;
    }
  }
  if (const size_t rest = digits % 4; rest > 0) {
    group <<= 6 * (4 - rest);
    for (size_t k = 0; k + 1 < rest; ++k) out += char(group >> (16 - 8 * k) & 255);
  }
  check<IoError>(to_base64(out) == text, what, "is no base64");
  return out;
}

}  // namespace halfstep
