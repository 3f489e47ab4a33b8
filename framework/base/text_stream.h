// SPDX-License-Identifier: Apache-2.0
// Streams that write and read text in the classic locale, whatever locale the program sets with std::locale::global().
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
