// SPDX-License-Identifier: Apache-2.0
// Fits text to the width of a person's terminal: wraps lines at words, and shortens texts. Pipes and files get unwrapped lines, for
// programs.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

namespace halfstep::app {

// Returns its current columns; 0: the descriptor is not a terminal, or its width is unknown.
size_t terminal_width(int descriptor);

// Returns the columns that UTF-8 text takes: none for escape sequences, two for East Asian letters.
size_t columns_of(std::string_view text);

// Breaks the line at spaces. Further lines start below the text that follows "word:" or a gap, or else two columns further right.
// A word that is too long is not broken, so that a path can be copied. width 0: no wrapping.
std::string wrapped(const std::string& line, size_t width);

// Truncates text to fit, with "..." at its end. Escape sequences count as text.
std::string shortened(const std::string& text, size_t columns);

// Returns a name for use within a line: quoted, with escapes, if it is empty or has line breaks or blanks at its ends.
std::string in_line(const std::string& name);

// Moves comments that do not fit above their lines of a config.
std::string with_fitting_comments(const std::string& config, size_t width);

// Wraps the stream's lines while it lives, if the descriptor is a terminal's. Buffers a line until it ends.
class FittedStream {
 public:
  [[nodiscard]] FittedStream(std::ostream& out, int descriptor);
  ~FittedStream();
  FittedStream(const FittedStream&) = delete;

 private:
  class Buffer;
  std::ostream& out_;
  std::unique_ptr<Buffer> buffer_;  // null: the stream is unchanged
};

}  // namespace halfstep::app
