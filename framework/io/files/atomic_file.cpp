// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "framework/base/check.h"

namespace halfstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFile = "file";
constexpr const char* kTemporary = ".tmp-";  // followed by the process id, '-' and a number

[[noreturn]] void fail_errno(const char* verb, const fs::path& path) {
  fail<IoError>(kFile, "cannot ", verb, ' ', path.string(), ": ", std::strerror(errno));
}

// Returns the process that made the temporary of that name; 0 for any other name.
pid_t writer_of(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return 0;
  const char *at = name.data() + prefix.size(), *end = name.data() + name.size();
  pid_t pid = 0;
  unsigned number = 0;
  const auto first = std::from_chars(at, end, pid);
  if (first.ec != std::errc() || pid <= 0 || first.ptr == end || *first.ptr != '-') return 0;
  const auto second = std::from_chars(first.ptr + 1, end, number);
  return second.ec == std::errc() && second.ptr == end ? pid : 0;
}

}  // namespace

void check_path(const fs::path& path) {
  check<IoError>(path.native().find('\0') == std::string::npos, kFile, "a path must not hold a NUL character, got one after \"",
                 path.c_str(), '"');
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  check_path(path_);
  static std::atomic<unsigned> counter = 0;
  do {
    temporary_ = path_.string() + kTemporary + std::to_string(::getpid()) + '-' + std::to_string(counter++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) fail_errno("write", path_);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, next, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("write", path_);
    next += n;
    bytes -= size_t(n);
  }
}

void AtomicFile::commit(Waits waits) {
  if (waits == Waits::yes && ::fsync(fd_) != 0) fail_errno("write", path_);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) fail_errno("write", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("rename a temporary file to", path_);
  temporary_.clear();
  if (waits == Waits::yes) sync_directory(path_.parent_path());
}

void atomic_write(const fs::path& path, std::string_view bytes, Waits waits) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit(waits);
}

void remove_abandoned(const fs::path& path) {
  const fs::path dir = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  const std::string prefix = path.filename().string() + kTemporary;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error)) {
    const pid_t pid = writer_of(entry->path().filename().string(), prefix);
    const bool gone = pid > 0 && (pid == ::getpid() || (::kill(pid, 0) != 0 && errno == ESRCH));
    if (gone && ::unlink(entry->path().c_str()) != 0 && errno != ENOENT) fail_errno("remove", entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    fail<IoError>(kFile, "cannot read ", dir.string(), ": ", error.message());
}

std::string read_file(const fs::path& path, size_t limit) {
  check_path(path);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail_errno("read", path);
  check<IoError>(S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode), kFile, "cannot read ", path.string(), ": it is a ",
                 S_ISDIR(status.st_mode) ? "directory" : "device", ", not a file");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);  // for a pipe, waits for its writer
  if (fd < 0) fail_errno("read", path);
  const struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  std::string out;
  constexpr size_t kLeastRead = 1 << 16;  // bytes of room for one call; the room doubles as the text grows
  size_t size = 0;
  for (;;) {
    if (out.size() - size < kLeastRead) out.resize(out.size() + std::max(kLeastRead, out.size()));
    const ssize_t n = ::read(fd, out.data() + size, out.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("read", path);
    if (n == 0) break;
    size += size_t(n);
    check<IoError>(size <= limit, kFile, "cannot read ", path.string(), ": it has more than ", limit, " bytes");
  }
  out.resize(size);
  return out;
}

namespace {

// Waits until the file or directory, opened with `flags`, is on the disk.
void sync(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (fd < 0) fail_errno("open", path);
  // Some file systems cannot sync a directory and return EINVAL; then there is nothing to wait for.
  const bool ok = ::fsync(fd) == 0 || errno == EINVAL;
  const int error = errno;
  ::close(fd);
  errno = error;
  if (!ok) fail_errno("sync", path);
}

}  // namespace

void sync_file(const fs::path& path) { sync(path, 0); }

void sync_files(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (std::error_code ignored; entry->is_regular_file(ignored)) sync_file(entry->path());
  if (error) fail<IoError>(kFile, "cannot read ", directory.string(), ": ", error.message());
  sync_directory(directory);
}

void sync_directory(const fs::path& directory) { sync(directory.empty() ? fs::path(".") : directory, O_DIRECTORY); }

}  // namespace halfstep
