// SPDX-License-Identifier: Apache-2.0
// Files mapped into memory: pages are loaded when they are accessed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace halfstep {

// The pages of a file of `bytes` bytes, more than 0, which may be more than there is memory. Writing to one makes a copy of it, in
// memory alone. The file may be replaced or removed meanwhile, but not shortened: the system sends SIGBUS to a program that
// accesses a missing part, which ends it unless it has a handler. Throws IoError "[where] ..." when the file cannot be mapped or
// has another size.
std::shared_ptr<void> map_file(const std::filesystem::path& path, uint64_t bytes, std::string_view where);

// Unloads the pages of a mapping that a reader has left, so that they do not count as this program's memory; they are loaded again
// when they are accessed. What was written to them is lost.
class PageWindow {
 public:
  // Of a text in a mapping; of others (mapped is false) nothing is unloaded.
  [[nodiscard]] PageWindow(std::string_view text, bool mapped) : text_(mapped ? text : std::string_view()) {}
  void move_to(const char* place) {
    const uintptr_t now = reinterpret_cast<uintptr_t>(place) >> kShift;
    if (now != at_) leave(now);
  }

 private:
  static constexpr int kShift = 22;  // 4 MiB
  void leave(uintptr_t next);
  std::string_view text_;
  uintptr_t at_ = 0;
};

// Returns the path of the mapped file that has the address among its pages, null if none of the first 64 that are mapped does. May
// be called by a handler of signals.
const char* mapped_file_at(const void* address);

}  // namespace halfstep
