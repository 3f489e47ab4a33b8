// SPDX-License-Identifier: Apache-2.0
#include "apps/record/appended_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep::app {

AppendedFile::AppendedFile(const std::filesystem::path& path, std::string_view begin) : path_(path) {
  atomic_write(path, begin);
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) fail<IoError>("metrics", "cannot write ", path.string(), ": ", std::strerror(errno));
}

AppendedFile::~AppendedFile() {
  if (fd_ >= 0) ::close(fd_);
}

AppendedFile::AppendedFile(AppendedFile&& other) noexcept { *this = std::move(other); }

AppendedFile& AppendedFile::operator=(AppendedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(is_torn_, other.is_torn_);
  std::swap(lost_, other.lost_);
  return *this;
}

bool AppendedFile::append(std::string_view piece) {
  if (fd_ < 0) return true;
  const off_t size = ::lseek(fd_, 0, SEEK_END);
  size_t done = 0;  // bytes
  while (done < piece.size()) {
    const ssize_t written = ::write(fd_, piece.data() + done, piece.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written == 0 ? ENOSPC : errno;
      is_torn_ = is_torn_ || (done > 0 && ::ftruncate(fd_, size) != 0);
      count_loss(error);
      return false;
    }
    done += size_t(written);
  }
  is_torn_ = false;
  return true;
}

void AppendedFile::sync() {
  // EINVAL: the file system cannot sync.
  if (fd_ >= 0 && ::fsync(fd_) != 0 && errno != EINVAL) count_loss(errno);
}

void AppendedFile::count_loss(int error) {
  if (lost_++ == 0)
    logging::warn("cannot write " + path_.string() + ": " + std::strerror(error) + "; training continues without these lines");
}

}  // namespace halfstep::app
