// SPDX-License-Identifier: Apache-2.0
#include "framework/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/check.h"

namespace halfstep {

std::shared_ptr<void> map_file(const std::filesystem::path& path, uint64_t bytes, std::string_view where) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check<IoError>(descriptor >= 0, where, path.string(), ": cannot read");
  struct stat now {};
  const bool whole = ::fstat(descriptor, &now) == 0 && uint64_t(now.st_size) == bytes;
  void* const pages = whole ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
  ::close(descriptor);
  check<IoError>(whole, where, path.string(), ": the file is being changed");
  check<IoError>(pages != MAP_FAILED, where, path.string(), ": cannot be mapped into memory");
  return {pages, [bytes](void* p) { ::munmap(p, bytes); }};
}

}  // namespace halfstep
