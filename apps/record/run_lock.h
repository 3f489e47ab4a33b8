// SPDX-License-Identifier: Apache-2.0
// One writer a folder: the lock that a run holds on its output_dir.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace halfstep::app {

// Holds <dir>/run.lock from construction to destruction, which removes the file. The kernel drops the lock when the process ends,
// however it ends, so a file that remains blocks nobody. The file names the holder, for the error message of a second run.
class RunLock {
 public:
  // `dir` must exist. Throws ConfigError, naming the process and its host, when another one holds the lock, and IoError when the
  // file cannot be written. Where the file system has no locks, there is a warning and no lock.
  [[nodiscard]] explicit RunLock(const std::filesystem::path& dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  bool held() const { return fd_ >= 0; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// Who holds the lock of this folder: "process 12 on host, started ..."; nothing if nobody does. Writes nothing.
std::optional<std::string> lock_holder(const std::filesystem::path& dir);

}  // namespace halfstep::app
