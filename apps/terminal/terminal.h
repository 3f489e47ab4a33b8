// SPDX-License-Identifier: Apache-2.0
// Lines for the terminal that a person looks at: they are broken at words. Pipes and files get whole lines, which programs read.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

namespace halfstep::app {

// Its columns now; 0: the descriptor is no terminal, or one of unknown width.
size_t terminal_width(int descriptor);

// What a terminal shows of a text in UTF-8: escape sequences take no column, and letters of East Asia two.
size_t columns_of(std::string_view text);

// The line, broken at spaces. What follows the first lies below the text that follows "word:" or a gap, and else two columns
// further right. A word that is too long stays whole, so that a path can be copied. width 0: as it is.
std::string wrapped(const std::string& line, size_t width);

// As much as fits, with "..." in place of the rest. An escape sequence counts as text.
std::string shortened(const std::string& text, size_t columns);

// A name among others in a line: one with line breaks or blanks at its ends, or an empty one, in quotes, with escapes.
std::string in_line(const std::string& name);

// A config whose lines fit: a comment that does not goes above its line.
std::string with_fitting_comments(const std::string& config, size_t width);

// While it lives, the stream's lines are wrapped, if the descriptor is a terminal's. A line is held back until it ends.
class FittedStream {
 public:
  [[nodiscard]] FittedStream(std::ostream& out, int descriptor);
  ~FittedStream();
  FittedStream(const FittedStream&) = delete;

 private:
  class Buffer;
  std::ostream& out_;
  std::unique_ptr<Buffer> buffer_;  // null: the stream is as it was
};

}  // namespace halfstep::app
