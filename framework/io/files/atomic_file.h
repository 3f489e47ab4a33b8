// SPDX-License-Identifier: Apache-2.0
// Files that are either wholly there or not at all: written beside their name, synced to disk, renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace halfstep {

// Throws IoError for a path with a NUL character, which the system would take for the shorter path before it.
void check_path(const std::filesystem::path& path);

// Does a write wait until its bytes are on the disk? Without, a power failure may leave a file of another content; a kill may not.
enum class Waits : uint8_t { no, yes };

// Replaces `path` by `bytes`: a reader, and a crash at any time, finds the old content or the new. Throws IoError.
void atomic_write(const std::filesystem::path& path, std::string_view bytes, Waits waits = Waits::yes);

// The same in pieces. Without commit() the destructor removes the temporary and `path` stays as it was.
class AtomicFile {
 public:
  [[nodiscard]] explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void commit(Waits waits = Waits::yes);  // fsync, rename, fsync of the directory

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

// Removes what AtomicFile left beside `path` in processes that are gone, and in earlier ones that had this process's id. Process
// ids mean something on one host only: call it only if no other host, and no other code in this process, writes `path`. Throws
// IoError.
void remove_abandoned(const std::filesystem::path& path);

// The whole file. Throws IoError.
// It may be a pipe, but no directory or device, and must not hold more than `limit` bytes.
std::string read_file(const std::filesystem::path& path, size_t limit = size_t(-1));

// Waits until the file's content is on the disk. Throws IoError.
void sync_file(const std::filesystem::path& path);

// The same for all files in a directory, and their names.
void sync_files(const std::filesystem::path& directory);

// Makes names created, renamed or removed in `directory` survive a crash. Throws IoError.
void sync_directory(const std::filesystem::path& directory);

}  // namespace halfstep
