// SPDX-License-Identifier: Apache-2.0
#include "apps/record/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include "framework/base/check.h"
#include "framework/base/log.h"

namespace halfstep::app {
namespace {

// Locks the file; returns 0 or the errno. flock also works across hosts if an NFS server supports it; where it does not exist, a
// lock of fcntl may. Both belong to this process: the file is closed on exec.
int try_lock(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
  if (errno == EWOULDBLOCK) return EWOULDBLOCK;
  struct flock range = {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  if (::fcntl(fd, F_SETLK, &range) == 0) return 0;
  return errno == EACCES || errno == EAGAIN ? EWOULDBLOCK : errno;
}

// Returns whether `fd` is still the file at `path`: its holder may have removed it between open and lock.
bool is_at(int fd, const std::filesystem::path& path) {
  struct stat opened = {}, present = {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &present) == 0 && opened.st_dev == present.st_dev &&
         opened.st_ino == present.st_ino;
}

// Returns the text of a lock's file for this process.
std::string own_description() {
  char host[256] = "an unknown host", started[32] = "";
  ::gethostname(host, sizeof host - 1);
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  ::gmtime_r(&now, &utc);
  std::strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return "process " + std::to_string(::getpid()) + " on " + host + ", started " + started;
}

// Reads the holder's text, as one line of printable characters. Waits half a second for it: the file is empty just after locking.
std::string holder_of(int fd) {
  constexpr int kTries = 50, kMicroseconds = 10000;  // between two tries
  char text[512];
  ssize_t size = 0;
  for (int i = 0; i < kTries && size <= 0; ++i) {
    if (i > 0) ::usleep(kMicroseconds);
    size = ::pread(fd, text, sizeof text, 0);
  }
  std::string out(text, size > 0 ? size_t(size) : 0);
  out = out.substr(0, out.find('\n'));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return out.empty() ? "another process" : out;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& dir) : path_(dir / "run.lock") {
  for (;;) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
      fail<IoError>("train", "output_dir must be a folder that can be written, got ", dir.string(), " (", std::strerror(errno),
                    ")");
    }
    int error = try_lock(fd);
    constexpr int kMicroseconds = 20000;  // lock_holder may hold the lock for a moment
    if (error == EWOULDBLOCK) ::usleep(kMicroseconds), error = try_lock(fd);
    if (error == 0 && !is_at(fd, path_)) {
      ::close(fd);
      continue;
    }
    if (error == 0) {
      fd_ = fd;
      break;
    }
    const std::string who = error == EWOULDBLOCK ? holder_of(fd) : "";
    ::close(fd);
    check<ConfigError>(error != EWOULDBLOCK, "train", dir.string(), " is in use by another run: ", who,
                       Help{"wait for it or stop it; --set output_dir=DIR writes elsewhere"});
    logging::warn(dir.string() + " cannot be locked (" + std::strerror(error) + "): take care that no other run writes there");
    return;
  }
  const std::string text = own_description() + '\n';
  // Ignore failures: the text is only for messages of other processes.
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, text.data(), text.size(), 0) < 0) return;
}

std::optional<std::string> lock_holder(const std::filesystem::path& dir) {
  const int fd = ::open((dir / "run.lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  struct flock range = {};
  range.l_type = F_WRLCK;
  const bool is_held =
      ::flock(fd, LOCK_SH | LOCK_NB) != 0 ? errno == EWOULDBLOCK : ::fcntl(fd, F_GETLK, &range) == 0 && range.l_type != F_UNLCK;
  const std::optional<std::string> out = is_held ? std::optional(holder_of(fd)) : std::nullopt;
  ::close(fd);
  return out;
}

RunLock::~RunLock() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());  // before unlocking, so that no process removes another's file
  ::close(fd_);
}

}  // namespace halfstep::app
