// SPDX-License-Identifier: Apache-2.0
// Files that are something else than their reader takes, named for what they are.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "framework/base/check.h"

namespace halfstep {

struct OtherFile {
  std::string what;         // "an Excel workbook"
  std::string remedy;       // may be empty
  bool is_text = false;     // such as a web page, which is a text, too
  bool is_pointer = false;  // of git-lfs: never what anyone wants to read
};

constexpr size_t kOtherFileHead = 600;  // bytes that say what a file is

// What a file that begins so is, if it is anything that is known by its first bytes.
std::optional<OtherFile> other_file(std::string_view head, const std::filesystem::path& path);

// Throws E "[where] path: the file is an Excel workbook" with the remedy, if the file is known. The formats that a reader takes
// are not to be given to it.
template <class E>
void refuse_other_file(std::string_view where, const std::filesystem::path& path, std::string_view head) {
  const std::optional<OtherFile> other = other_file(head.substr(0, kOtherFileHead), path);
  if (!other) return;
  if (other->remedy.empty()) fail<E>(where, path.string(), ": the file is ", other->what);
  fail<E>(where, path.string(), ": the file is ", other->what, Help{other->remedy});
}

// The first bytes of a file, of which only the path is at hand; "" of one that cannot be read.
std::string head_of_file(const std::filesystem::path& path);

}  // namespace halfstep
