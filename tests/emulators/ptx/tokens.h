// SPDX-License-Identifier: Apache-2.0
// Splits PTX text into tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfstep::ptx {

struct Token {
  std::string_view text;
  int line;
};
// Returns names with their dots ("ld.global.u32", "%r1"), quoted strings, and single other characters; drops comments.
std::vector<Token> tokens_of(std::string_view text);
// Splits "ld.global.u32" into "ld", "global", "u32".
std::vector<std::string> parts_of(std::string_view word);

}  // namespace halfstep::ptx
