// SPDX-License-Identifier: Apache-2.0
// Files that exist completely or not at all: written under a temporary name, synced to disk, renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace halfstep {

// Throws IoError for a path with a NUL character, which the system would cut off there.
void check_path(const std::filesystem::path& path);

// Whether a write waits until its bytes are on the disk. Otherwise a power failure, but not a kill, may leave a file with other
// content.
enum class Waits : uint8_t { no, yes };

// Replaces `path` by `bytes`: readers, also after a crash, find the old content or the new. Throws IoError.
void atomic_write(const std::filesystem::path& path, std::string_view bytes, Waits waits = Waits::yes);

// Writes such a file in pieces. Without commit() the destructor removes the temporary, and `path` stays unchanged.
class AtomicFile {
 public:
  [[nodiscard]] explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  // Syncs the temporary, renames it to `path`, and syncs the directory; with Waits::no, only renames it.
  void commit(Waits waits = Waits::yes);

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

// Removes temporaries that AtomicFile left beside `path` in processes that are gone, and in earlier processes with this process's
// id. Process ids are unique on one host only: call it only if no other host, and no other code in this process, writes `path`.
// Throws IoError.
void remove_abandoned(const std::filesystem::path& path);

// Returns the content of the whole file, which may be a pipe, but not a directory or device, and must not have more than `limit`
// bytes. Throws IoError.
std::string read_file(const std::filesystem::path& path, size_t limit = size_t(-1));

// Waits until the file's content is on the disk. Throws IoError.
void sync_file(const std::filesystem::path& path);

// Waits until all files in a directory, and their names, are on the disk.
void sync_files(const std::filesystem::path& directory);

// Makes names that were created, renamed or removed in `directory` survive a crash. Throws IoError.
void sync_directory(const std::filesystem::path& directory);

}  // namespace halfstep
