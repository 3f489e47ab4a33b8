// SPDX-License-Identifier: Apache-2.0
// Recognises files that are not what their reader expects, for error messages.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "framework/base/check.h"

namespace halfstep {

struct OtherFile {
  std::string kind;         // "an Excel workbook"
  std::string remedy;       // may be empty
  bool is_text = false;     // also for texts such as web pages
  bool is_pointer = false;  // whether it is a git-lfs pointer in place of the file
};

constexpr size_t kOtherFileHead = 600;  // bytes that identify a file

// Returns the kind of a file by its first bytes, if it is known.
std::optional<OtherFile> other_file(std::string_view head, const std::filesystem::path& path);

// Throws E "[where] path: the file is an Excel workbook" with the remedy, if the file is of a known kind. Do not call it for a
// format that the reader accepts.
template <class E>
void refuse_other_file(std::string_view where, const std::filesystem::path& path, std::string_view head) {
  const std::optional<OtherFile> other = other_file(head.substr(0, kOtherFileHead), path);
  if (!other) return;
  if (other->remedy.empty()) fail<E>(where, path.string(), ": the file is ", other->kind);
  fail<E>(where, path.string(), ": the file is ", other->kind, Help{other->remedy});
}

// Returns the first bytes of a file; "" if it cannot be read.
std::string head_of_file(const std::filesystem::path& path);

}  // namespace halfstep
