// SPDX-License-Identifier: Apache-2.0
// Maps files into memory: pages are loaded when they are accessed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace halfstep {

// Maps a file of `bytes` > 0 bytes, which may exceed the memory. Writing to a page makes a copy of it in memory. The file may be
// replaced or removed meanwhile, but not shortened: an access to a missing part raises SIGBUS, which ends a program without a
// handler. Throws IoError "[where] ..." if the file cannot be mapped or has another size.
std::shared_ptr<void> map_file(const std::filesystem::path& path, uint64_t bytes, std::string_view where);

// Unloads the pages that a reader of a mapping has left, so that they do not count as this program's memory; a new access loads
// them again. Changes to such pages are lost.
class PageWindow {
 public:
  // Makes a window over a text; unless `mapped`, it unloads nothing.
  [[nodiscard]] PageWindow(std::string_view text, bool mapped) : text_(mapped ? text : std::string_view()) {}
  // Unloads the section that the reader has left, when it enters the one of `place`.
  void move_to(const char* place) {
    const uintptr_t section = reinterpret_cast<uintptr_t>(place) >> kShift;
    if (section != section_) enter(section);
  }

 private:
  static constexpr int kShift = 22;  // sections of 4 MiB
  void enter(uintptr_t section);
  std::string_view text_;
  uintptr_t section_ = 0;  // address >> kShift
};

// Returns the path of the mapped file with the address among its pages; null if it is not in one of the first 64 mapped files.
// Signal handlers may call it.
const char* mapped_file_at(const void* address);

}  // namespace halfstep
