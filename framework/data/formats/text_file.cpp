// SPDX-License-Identifier: Apache-2.0
#include "framework/data/formats/text_file.h"

#include <algorithm>
#include <utility>

#include "framework/base/check.h"
#include "framework/data/tokens/unicode.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/gzip.h"
#include "framework/io/files/mapped_file.h"
#include "framework/io/files/other_file.h"

namespace halfstep {
namespace {

constexpr std::string_view kMark8 = "\xef\xbb\xbf", kMarkLittle = "\xff\xfe", kMarkBig = "\xfe\xff";

// Code points of the bytes 0x80 to 0x9f in windows-1252; 0: none.
constexpr uint16_t kWindows[32] = {0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
                                   0x2039, 0x0152, 0,      0x017d, 0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
                                   0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178};

// Returns which byte of each pair is zero, as in UTF-16 of Latin letters: 1 the second (little-endian), 0 the first; -1: neither.
int zeros_in_pairs(std::string_view text) {
  constexpr size_t kExamined = 512;    // bytes
  constexpr size_t kBytesPerZero = 4;  // at most, where half of the characters are Latin
  const std::string_view head = text.substr(0, std::min(kExamined, text.size() / 2 * 2));
  size_t zeros[2] = {};
  for (size_t i = 0; i < head.size(); ++i) zeros[i % 2] += head[i] == '\0';
  for (const size_t which : {1, 0})
    if (head.size() >= 4 && zeros[which] * kBytesPerZero >= head.size() && zeros[1 - which] == 0) return int(which);
  return -1;
}

// Places of a text that are not UTF-8, and the lines of the first ones; and its characters beyond ASCII.
struct BrokenUtf8 {
  size_t places = 0, characters = 0;
  std::string lines{};
  // Returns whether the text is UTF-8 in the main: in other encodings such sequences of bytes are rare.
  bool is_likely() const { return characters > 0 && characters >= places; }
  std::string text() const {
    return joined("UTF-8 but for ", places, places == 1 ? " place in line " : " places in lines ", lines);
  }
};

BrokenUtf8 count_broken_utf8(std::string_view text) {
  constexpr size_t kShown = 3;  // lines
  BrokenUtf8 out;
  size_t line = 1, last_line = 0, shown = 0, counted = 0;  // counted: bytes whose ends of lines are in `line`
  for (size_t at = 0; at < text.size();) {
    const size_t valid = std::min(find_not_utf8(text.substr(at)), text.size() - at);
    for (const char c : text.substr(at, valid)) out.characters += uint8_t(c) >= 0xc0;
    if ((at += valid) == text.size()) break;
    ++out.places;
    line += size_t(std::count(text.begin() + std::ptrdiff_t(counted), text.begin() + std::ptrdiff_t(at), '\n'));
    counted = at;
    if (line != last_line && ++shown <= kShown + 1)
      out.lines += shown > kShown ? " ..." : joined(out.lines.empty() ? "" : ", ", line);
    last_line = line;
    do ++at;
    while (at < text.size() && (uint8_t(text[at]) & 0xc0) == 0x80);  // bytes that cannot begin a character
  }
  return out;
}

// Returns a command that leaves out what is not UTF-8.
std::string leave_out_command(const std::string& file) {
  return joined("iconv -f UTF-8 -t UTF-8 -c ", file, " > new-", file);
}

// Converts latin-1 or windows-1252 to UTF-8.
std::string from_single_bytes(std::string_view bytes, bool windows, const char* where, const std::string& path) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 8);
  for (size_t at = 0; at < bytes.size(); ++at) {
    char32_t point = uint8_t(bytes[at]);
    if (windows && point >= 0x80 && point < 0xa0) {
      point = kWindows[point - 0x80];
      check<DataError>(point != 0, where, place_in_text(path, bytes, at), ": the text must be windows-1252, which has no byte ",
                       int(uint8_t(bytes[at])),
                       Help{count_broken_utf8(bytes).is_likely() ? "the text is UTF-8: leave \"encoding\" out"
                                                                 : "\"encoding\": \"latin-1\" has all bytes"});
    }
    append_utf8(out, point);
  }
  return out;
}

// Converts UTF-16 to UTF-8.
std::string from_utf16(std::string_view bytes, bool little, const char* where, const std::string& path) {
  std::string out;
  out.reserve(bytes.size());
  int64_t line = 1;
  const auto refuse = [&](const char* why) { fail<DataError>(where, path, ':', line, ": the text must be UTF-16, but ", why); };
  const auto unit = [&](size_t at) {
    const char32_t first = uint8_t(bytes[at]), second = uint8_t(bytes[at + 1]);
    return little ? second << 8 | first : first << 8 | second;
  };
  if (bytes.size() % 2 != 0) refuse("has an odd number of bytes");
  for (size_t at = 0; at < bytes.size(); at += 2) {
    char32_t point = unit(at);
    if (point >= 0xd800 && point < 0xe000) {
      const char32_t next = point < 0xdc00 && at + 2 < bytes.size() ? unit(at + 2) : 0;
      if (next < 0xdc00 || next >= 0xe000) refuse("has half of a surrogate pair");
      point = 0x10000 + ((point - 0xd800) << 10) + (next - 0xdc00);
      at += 2;
    }
    if (point == '\n') ++line;
    append_utf8(out, point);
  }
  return out;
}

// Warns of a text in UTF-8 that is read in another encoding, which makes several characters of each beyond ASCII.
void warn_of_utf8(std::string_view text, TextEncoding encoding, const std::string& file, DataNotes& notes) {
  const std::string name = OptionNames<TextEncoding>::kNames[size_t(encoding)];
  const BrokenUtf8 found = count_broken_utf8(text);
  if (found.places == 0)
    notes.warnings.push_back("the file is UTF-8, but is read as " + name + R"(: is "encoding" the one of another file?)");
  else if (found.is_likely())
    notes.warnings.push_back("the file is " + found.text() + ", but is read as " + name +
                             ", which makes wrong characters of all others: correct it, or leave such places out by " +
                             leave_out_command(file) + R"(, and leave "encoding" out)");
}

FileText owned_text(std::string text) {
  const auto own = std::make_shared<const std::string>(std::move(text));
  return {*own, own, false};
}

}  // namespace

std::string place_in_text(const std::string& path, std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  const size_t line_start = before.rfind('\n');
  const auto lines = std::count(before.begin(), before.end(), '\n');
  return joined(path, ':', lines + 1, ':', at - (line_start == before.npos ? 0 : line_start + 1) + 1);
}

FileText open_file(const std::filesystem::path& path, const char* where) {
  constexpr uintmax_t kLeastMapped = 1 << 20;  // bytes; a smaller file is copied, since it may be rewritten while it is in use
  std::error_code error;
  const bool is_regular = std::filesystem::is_regular_file(path, error);
  const uintmax_t bytes = is_regular ? std::filesystem::file_size(path, error) : 0;
  if (error || bytes < kLeastMapped) return owned_text(read_file(path));
  std::shared_ptr<const void> pages = map_file(path, bytes, where);
  return {{static_cast<const char*>(pages.get()), size_t(bytes)}, pages, true};
}

FileText open_text_file(const std::filesystem::path& path, TextEncoding encoding, const char* where, bool tables,
                        DataNotes& notes) {
  const std::string file = path.string();
  FileText out = open_file(path, where);
  const auto note = [&](const std::string& what) { notes.summary += (notes.summary.empty() ? "" : "; ") + what; };
  if (is_gzip(out.text)) {
    Unpacked unpacked = unpack_gzip(out.text, out.mapped, where, file);
    note(unpacked.note);
    out = {unpacked.bytes, std::move(unpacked.owner), unpacked.mapped};
  }
  const std::string_view text = out.text;
  if (const auto other = other_file(text.substr(0, kOtherFileHead), path)) {
    if (tables || !other->is_text || other->is_pointer) refuse_other_file<DataError>(where, path, text);
    notes.warnings.push_back(joined("the file is ", other->kind, ", which is read as a text, marks and all"));
  }
  if (text.starts_with(kMark8)) {
    if (encoding != TextEncoding::utf8) note("read as UTF-8, as its byte-order mark says");
    out.text.remove_prefix(kMark8.size());
    return out;
  }
  using namespace std::string_view_literals;
  check<DataError>(!text.starts_with("\xff\xfe\0\0"sv) && !text.starts_with("\0\0\xfe\xff"sv), where, file,
                   ": the text is UTF-32, as its byte-order mark says, which is not read",
                   Help{joined("iconv -f UTF-32 -t UTF-8 ", path.filename().string(), " > new-", path.filename().string())});
  const bool little = text.starts_with(kMarkLittle);
  if (little || text.starts_with(kMarkBig)) {
    if (encoding != TextEncoding::utf16) note("read as UTF-16, as its byte-order mark says");
    return owned_text(from_utf16(text.substr(2), little, where, file));
  }
  const int zeros = zeros_in_pairs(text);
  check<DataError>(
      encoding != TextEncoding::utf16 || text.empty() || text.find('\0') != text.npos || find_not_utf8(text) != text.npos, where,
      file, ": the text is UTF-8, but is to be read as utf-16", Help{"leave \"encoding\" out"});
  if (encoding == TextEncoding::utf16) return owned_text(from_utf16(text, zeros != 0, where, file));
  check<DataError>(zeros < 0, where, file, ": the text is UTF-16, but is to be read as ",
                   OptionNames<TextEncoding>::kNames[size_t(encoding)], Help{R"("encoding": "utf-16" reads it)"});
  if (encoding == TextEncoding::utf8) return out;
  const auto is_ascii = [](char c) { return uint8_t(c) < 0x80; };
  if (!std::all_of(text.begin(), text.end(), is_ascii)) warn_of_utf8(text, encoding, path.filename().string(), notes);
  return owned_text(from_single_bytes(text, encoding == TextEncoding::windows1252, where, file));
}

std::string read_text_file(const std::filesystem::path& path, TextEncoding encoding, const char* where, bool tables,
                           DataNotes& notes) {
  return std::string(open_text_file(path, encoding, where, tables, notes).text);
}

std::string not_utf8_help(std::string_view text, size_t wrong, const std::filesystem::path& path) {
  if (const BrokenUtf8 found = count_broken_utf8(text); found.is_likely())
    return joined("the file is ", found.text(), ": correct it, or leave ", found.places == 1 ? "it" : "them", " out: ",
                  leave_out_command(path.filename().string()));
  bool windows = false;  // whether there are bytes that only windows-1252 uses
  for (size_t at = wrong; at < text.size(); ++at) windows |= uint8_t(text[at]) >= 0x80 && uint8_t(text[at]) < 0xa0;
  const char* const likely = windows ? "windows-1252" : "latin-1";
  return joined(R"("encoding": ")", likely, R"(" reads it, if it comes from an older spreadsheet; or convert it: iconv -f )",
                windows ? "WINDOWS-1252" : "ISO-8859-1", " -t UTF-8 ", path.filename().string(), " > new-",
                path.filename().string());
}

}  // namespace halfstep
