// SPDX-License-Identifier: Apache-2.0
// Reads text files in any encoding as UTF-8.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "framework/base/options.h"
#include "framework/data/sets/dataset.h"

namespace halfstep {

// latin1: ISO 8859-1. windows1252: Western European Windows. utf16: in the byte order of its mark, and without a mark in the order
// that its zeros show.
enum class TextEncoding : uint8_t { utf8, latin1, windows1252, utf16 };
HALFSTEP_OPTION_NAMES(TextEncoding, "utf-8", "latin-1", "windows-1252", "utf-16");
template <class O>
Option<O> encoding_of(TextEncoding O::*member) {
  return option("encoding", member, "encoding of the file; a byte-order mark in it decides");
}

// Returns the text of a file as UTF-8, without a byte-order mark, and unpacked if gzip packed it. A mark overrides `encoding`.
// Does not check utf8, see not_utf8_help. Adds to `notes` that a file was unpacked, or that a mark decided. Throws IoError if the
// file cannot be read; DataError with `where` and the file for damaged packed data, for text that is not in the encoding (with
// line and byte), for unexpected UTF-16, and for a file that is not text; tables: also for a text that is not a table, such as a
// web page.
struct FileText {
  std::string_view text{};
  std::shared_ptr<const void> owner{};  // owner of the text's memory
  bool mapped = false;                  // whether it is the pages of a large file (framework/io/files/mapped_file.h)
};
// Returns the bytes of a file.
FileText open_file(const std::filesystem::path& path, const char* where);
FileText open_text_file(const std::filesystem::path& path, TextEncoding encoding, const char* where, bool tables, DataNotes& notes);
// Returns the same as a separate string.
std::string read_text_file(const std::filesystem::path& path, TextEncoding encoding, const char* where, bool tables,
                           DataNotes& notes);

// Returns the remedy for a file whose text is not UTF-8: the probable encoding, and how to read it. `wrong`: its first byte that
// is not UTF-8.
std::string not_utf8_help(std::string_view text, size_t wrong, const std::filesystem::path& path);

// Returns "path:line:byte", from 1.
std::string place_in_text(const std::string& path, std::string_view text, size_t at);

}  // namespace halfstep
