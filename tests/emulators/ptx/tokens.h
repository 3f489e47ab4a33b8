// SPDX-License-Identifier: Apache-2.0
// The words of PTX text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfstep::ptx {

struct Token {
  std::string_view text;
  int line;
};
// Names with their dots ("ld.global.u32", "%r1"), quoted strings, and single characters of all else; without comments.
std::vector<Token> tokens_of(std::string_view text);
// "ld.global.u32" as "ld", "global", "u32".
std::vector<std::string> parts_of(std::string_view word);

}  // namespace halfstep::ptx
