// SPDX-License-Identifier: Apache-2.0
// The lock that a run holds on its output_dir, so that only one run writes there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace halfstep::app {

// Holds <dir>/run.lock from construction to destruction, which removes the file. The kernel drops the lock when the process ends
// in any way, so a remaining file blocks nothing. The file names the holder, for the error message of a second run.
class RunLock {
 public:
  // Locks `dir`, which must exist. Throws ConfigError, naming the process and its host, if another one holds the lock, and IoError
  // if the file cannot be written. If the file system has no locks, it warns and does not lock.
  [[nodiscard]] explicit RunLock(const std::filesystem::path& dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  bool is_held() const { return fd_ >= 0; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// Returns who holds the lock of this folder: "process 12 on host, started ..."; nothing if nobody does. Writes
// nothing; holds a shared lock for a moment.
std::optional<std::string> lock_holder(const std::filesystem::path& dir);

}  // namespace halfstep::app
