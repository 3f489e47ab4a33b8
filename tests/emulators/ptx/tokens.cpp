// SPDX-License-Identifier: Apache-2.0
#include "tests/emulators/ptx/tokens.h"

#include <cctype>

namespace halfstep::ptx {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.'; }

}  // namespace

std::vector<Token> tokens_of(std::string_view s) {
  std::vector<Token> out;
  int line = 1;
  for (size_t i = 0; i < s.size();) {
    const char c = s[i];
    if (c == '\n') {
      ++line, ++i;
    } else if (c == '\0' || std::isspace(static_cast<unsigned char>(c))) {
      ++i;
    } else if (c == '/' && i + 1 < s.size() && s[i + 1] == '/') {
      while (i < s.size() && s[i] != '\n') ++i;
    } else if (c == '/' && i + 1 < s.size() && s[i + 1] == '*') {
      for (i += 2; i + 1 < s.size() && !(s[i] == '*' && s[i + 1] == '/'); ++i) line += s[i] == '\n';
      i += 2;
    } else if (c == '"') {
      const size_t begin = i++;
      while (i < s.size() && s[i] != '"') ++i;
      out.push_back({s.substr(begin, ++i - begin), line});
    } else if (is_word(c)) {
      const size_t begin = i;
      while (i < s.size() && (is_word(s[i]) || (s[i] == ':' && i + 1 < s.size() && s[i + 1] == ':'))) i += s[i] == ':' ? 2 : 1;
      out.push_back({s.substr(begin, i - begin), line});
    } else {
      out.push_back({s.substr(i++, 1), line});
    }
  }
  return out;
}

std::vector<std::string> parts_of(std::string_view word) {
  std::vector<std::string> out;
  while (!word.empty()) {
    const size_t dot = word.find('.', 1);
    std::string_view part = word.substr(0, dot);
    if (part.starts_with('.')) part.remove_prefix(1);
    out.emplace_back(part);
    word = dot == std::string_view::npos ? std::string_view() : word.substr(dot);
  }
  return out;
}

}  // namespace halfstep::ptx
