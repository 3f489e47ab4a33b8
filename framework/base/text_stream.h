// SPDX-License-Identifier: Apache-2.0
// A text that is put together, or taken apart, in the classic locale: std::locale::global() belongs to the program.
#pragma once

#include <sstream>
#include <string>

namespace halfstep {

class TextWriter : public std::ostringstream {
 public:
  TextWriter() { imbue(std::locale::classic()); }
};
class TextReader : public std::istringstream {
 public:
  explicit TextReader(const std::string& text) : std::istringstream(text) { imbue(std::locale::classic()); }
};

}  // namespace halfstep
