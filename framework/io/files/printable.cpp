// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/printable.h"

#include <cstdint>

namespace halfstep {
namespace {

// Returns the bytes of the first UTF-8 character of `s`, and its number in `c`; 0 if `s` begins with no valid character.
size_t take_character(std::string_view s, uint32_t& c) {
  const auto first = uint8_t(s[0]);
  const size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length == 0 || length > s.size()) return 0;
  c = length == 1 ? first : first & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((uint8_t(s[i]) & 0xc0) != 0x80) return 0;
    c = c << 6 | (uint8_t(s[i]) & 0x3fU);
  }
  const bool too_long = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
  return too_long || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff ? 0 : length;
}

// Returns whether a terminal shows the character and does not act on it.
bool is_shown(uint32_t c) {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;
  const bool hides = (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xad ||
                     c == 0x61c || c == 0xfeff;
  return !hides && (c < 0xe000 || c >= 0xf900) && c < 0xe0000;  // excludes private characters and tags
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  size_t at = 0;
  while (at < text.size() && at < max_bytes) {
    uint32_t c = 0;
    const size_t length = take_character(text.substr(at), c);
    if (length > 0 && is_shown(c))
      out += text.substr(at, length);
    else
      out += '?';
    at += length > 0 ? length : 1;
  }
  return at < text.size() ? out + "..." : out;
}

}  // namespace halfstep
