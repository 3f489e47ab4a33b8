// SPDX-License-Identifier: Apache-2.0
// Text of files in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halfstep {

// At most `n` printable characters of text that may hold anything.
inline std::string printable(std::string_view text, size_t n = 160) {
  std::string out;
  for (char c : text.substr(0, n)) out += (c >= 0x20 && c < 0x7f) ? c : '?';
  if (text.size() > n) out += "...";
  return out;
}

}  // namespace halfstep
