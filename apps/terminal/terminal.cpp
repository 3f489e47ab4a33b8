// SPDX-License-Identifier: Apache-2.0
#include "apps/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <streambuf>
#include <utility>

#include "framework/base/text_stream.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep::app {
namespace {

constexpr size_t kMostIndent = 24;  // columns before a further line, below the text after a label

// Ranges of characters of two columns and of none; wcwidth would need a locale. Enough for names of classes, columns and files.
constexpr std::pair<uint32_t, uint32_t> kWide[] = {{0x1100, 0x115f},   {0x2e80, 0xa4cf},  {0xac00, 0xd7a3}, {0xf900, 0xfaff},
                                                   {0xfe30, 0xfe6f},   {0xff00, 0xff60},  {0xffe0, 0xffe6}, {0x1f300, 0x1f64f},
                                                   {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
constexpr std::pair<uint32_t, uint32_t> kNone[] = {{0x300, 0x36f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}};

template <size_t N>
bool is_in(const std::pair<uint32_t, uint32_t> (&ranges)[N], uint32_t letter) {
  return std::any_of(ranges, ranges + N, [&](const auto& r) { return letter >= r.first && letter <= r.second; });
}

// Returns the bytes of the escape sequence or the letter at `at`, and adds its width to `columns`.
size_t bytes_at(std::string_view text, size_t at, size_t& columns) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  if (byte(at) == 0x1b && byte(at + 1) == '[') {
    size_t end = at + 2;
    while (end < text.size() && !(text[end] >= '@' && text[end] <= '~')) ++end;
    return std::min(end + 1, text.size()) - at;
  }
  const size_t wanted = byte(at) >= 0xf0 ? 4 : byte(at) >= 0xe0 ? 3 : byte(at) >= 0xc0 ? 2 : 1;
  uint32_t letter = wanted == 1 ? byte(at) : byte(at) & (0xffu >> (wanted + 1));
  size_t bytes = 1;
  while (bytes < wanted && (byte(at + bytes) & 0xc0) == 0x80) letter = letter << 6 | (byte(at + bytes++) & 0x3fu);
  columns += is_in(kNone, letter) ? 0 : is_in(kWide, letter) ? 2 : 1;
  return bytes;
}

std::string without_escapes(const std::string& text) {
  std::string out;
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = bytes_at(text, at, columns);
    if (text[at] != 0x1b) out += text.substr(at, bytes);
    at += bytes;
  }
  return out;
}

// Wraps JSON without breaking its strings.
std::string wrapped_json(std::string line, size_t width) {
  constexpr char kBlank = 1;  // replaces blanks within strings, so that the line is not broken there
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == '\\') ++i;
    if (i < line.size() && line[i] == ' ' && quoted) line[i] = kBlank;
  }
  line = wrapped(line, width);
  std::replace(line.begin(), line.end(), kBlank, ' ');
  return line;
}

// Returns the indent of the lines after the first.
size_t indent_of(const std::string& painted, size_t width) {
  const std::string line = without_escapes(painted);
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const size_t most = std::min(kMostIndent, width / 2);
  const size_t word = std::min(line.find(' ', begin), line.size()), gap = std::min(line.find("  ", begin), line.size());
  if (word > begin && line[word - 1] == ':')
    if (const size_t after = columns_of(line.substr(0, word)) + 1; after <= most) return after;
  const size_t after = std::min(line.find_first_not_of(' ', gap), line.size());
  if (const size_t columns = columns_of(line.substr(0, after)); after > gap && columns <= most) return columns;
  return std::min(begin + 2, most);
}

}  // namespace

size_t terminal_width(int descriptor) {
  winsize size{};
  return isatty(descriptor) != 0 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) at += bytes_at(text, at, columns);
  return columns;
}

std::string wrapped(const std::string& line, size_t width) {
  if (width == 0 || columns_of(line) <= width) return line;
  const size_t indent = indent_of(line, width);
  std::string out;
  size_t column = 0;
  bool has_word = false;  // the line so far
  for (size_t at = 0; at < line.size();) {
    const size_t word = std::min(line.find_first_not_of(' ', at), line.size());
    size_t end = std::min(line.find(' ', word), line.size());
    if (line.compare(end, 2, " %") == 0) end = std::min(line.find(' ', end + 1), line.size());  // keeps " %" with its number
    const std::string text = line.substr(word, end - word);
    const size_t columns = columns_of(text);
    if (has_word && !text.empty() && column + (word - at) + columns > width) {
      out += '\n' + std::string(indent, ' ') + text;
      column = indent + columns;
    } else {
      out += line.substr(at, end - at);
      column += word - at + columns;
    }
    has_word = has_word || !text.empty();
    at = end;
  }
  return out;
}

std::string shortened(const std::string& text, size_t columns) {
  if (columns_of(text) <= columns) return text;
  const std::string end = columns > 3 ? "..." : "";
  size_t taken = 0, at = 0;
  while (at < text.size()) {
    size_t more = taken;
    const size_t bytes = bytes_at(text, at, more);
    if (more + end.size() > columns) break;
    taken = more, at += bytes;
  }
  return text.substr(0, at) + end;
}

std::string in_line(const std::string& name) {
  const bool plain = !name.empty() && name.front() != ' ' && name.back() != ' ' &&
                     std::none_of(name.begin(), name.end(), [](char c) { return uint8_t(c) < 0x20 || c == 0x7f; });
  return plain ? name : spelled(name);
}

std::string with_fitting_comments(const std::string& config, size_t width) {
  std::string out;
  TextReader lines(config);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = std::min(line.find_first_not_of(' '), line.size()), at = line.find(" // ");
    const bool follows_text = at != std::string::npos && at > begin;  // the comment
    const bool is_long = width > 0 && columns_of(line) > width;
    const std::string margin(begin, ' ');
    constexpr size_t kLeastComment = 23;  // columns of a comment's line, with "// "
    const size_t comment = follows_text ? at + 4 : begin + 3;
    if (is_long && (follows_text || line.compare(begin, 3, "// ") == 0)) {
      TextReader parts(wrapped(line.substr(comment), std::max(width, begin + kLeastComment) - begin - 3));
      for (std::string part; std::getline(parts, part);)
        out += margin + "// " + part.substr(std::min(part.find_first_not_of(' '), part.size())) + '\n';
      if (follows_text) out += wrapped_json(line.substr(0, line.find_last_not_of(' ', at) + 1), width) + '\n';
    } else {
      out += wrapped_json(line, is_long ? width : 0) + '\n';
    }
  }
  return out;
}

class FittedStream::Buffer : public std::streambuf {
 public:
  Buffer(std::streambuf* to, int descriptor) : to_(to), descriptor_(descriptor) {}
  // Writes a line that has not ended, and returns the buffer that this one replaced.
  std::streambuf* finish() {
    write(line_);
    line_.clear();
    return to_;
  }

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char letter = traits_type::to_char_type(c);
    if (letter != '\n') return line_ += letter, c;
    const bool is_written =
        write(line_.find('\r') == std::string::npos ? wrapped(line_, terminal_width(descriptor_)) : line_) && write("\n");
    line_.clear();
    return is_written ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    for (std::streamsize i = 0; i < size; ++i)
      if (traits_type::eq_int_type(overflow(traits_type::to_int_type(text[i])), traits_type::eof())) return i;
    return size;
  }
  int sync() override { return to_->pubsync(); }

 private:
  bool write(const std::string& text) { return to_->sputn(text.data(), std::streamsize(text.size())) == std::ssize(text); }
  std::streambuf* to_;
  int descriptor_;
  std::string line_;
};

FittedStream::FittedStream(std::ostream& out, int descriptor) : out_(out) {
  if (terminal_width(descriptor) == 0) return;
  buffer_ = std::make_unique<Buffer>(out.rdbuf(), descriptor);
  out.rdbuf(buffer_.get());
}

FittedStream::~FittedStream() {
  if (buffer_) out_.rdbuf(buffer_->finish());
}

}  // namespace halfstep::app
