// SPDX-License-Identifier: Apache-2.0
// Files of text as UTF-8, whatever they are stored in.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "framework/data/sets/dataset.h"

namespace halfstep {

// latin1: ISO 8859-1. windows1252: what Western European versions of Windows wrote. utf16: of the order of bytes that its mark
// says, and without a mark that which its zeros say.
enum class TextEncoding : uint8_t { utf8, latin1, windows1252, utf16 };
inline constexpr std::array<const char*, 4> kTextEncodings = {"utf-8", "latin-1", "windows-1252", "utf-16"};

// The text of a file as UTF-8, without a byte-order mark, and unpacked where gzip packed it. A mark decides: the encoding is for
// text without one. utf8 is not checked, see not_utf8_help. What was unpacked, and a mark that decided, is added to `notes`.
// Throws IoError when the file cannot be read; DataError, which names `where` and the file, for packed data that is damaged, for
// text that is not in the encoding (with line and byte), for UTF-16 where another one is expected, and for a file that is no text;
// tables: also for a text that is no table, such as a web page.
struct FileText {
  std::string_view text{};
  std::shared_ptr<const void> owner{};  // what the text lies in
  bool mapped = false;                  // it is the file's own pages (framework/io/files/mapped_file.h), which a large one is
};
// The bytes of a file.
FileText open_file(const std::filesystem::path& path, const char* where);
FileText open_text_file(const std::filesystem::path& path, TextEncoding encoding, const char* where, bool tables, DataNotes& notes);
// The same as a string of its own.
std::string read_text_file(const std::filesystem::path& path, TextEncoding encoding, const char* where, bool tables,
                           DataNotes& notes);

// The remedy for text of that file that is not UTF-8: which encoding it may be in, and how to read it. `wrong`: its first byte that
// is not UTF-8.
std::string not_utf8_help(std::string_view text, size_t wrong, const std::filesystem::path& path);

// "path:line:byte", from 1.
std::string place_in_text(const std::string& path, std::string_view text, size_t at);

}  // namespace halfstep
