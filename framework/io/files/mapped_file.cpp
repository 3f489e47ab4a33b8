// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "framework/base/check.h"
#include "framework/base/fork_mutex.h"

namespace halfstep {
namespace {

// Plain memory, so that a signal handler may read it. An entry with begin == 0 is free.
struct Mapping {
  std::atomic<uintptr_t> begin{0};
  size_t bytes = 0;
  char path[1024] = {};
};
Mapping g_mappings[64];
ForkMutex g_mappings_mutex;  // for writers

// Lists a mapping for mapped_file_at(), unless 64 are listed.
void note_mapping(void* pages, size_t bytes, const std::string& path) {
  const std::lock_guard lock(g_mappings_mutex);
  for (Mapping& m : g_mappings) {
    if (m.begin.load() != 0) continue;
    m.bytes = bytes;
    const size_t length = std::min(path.size(), sizeof m.path - 1);
    std::memcpy(m.path, path.data(), length);
    m.path[length] = 0;
    m.begin.store(reinterpret_cast<uintptr_t>(pages));
    return;
  }
}

void forget_mapping(void* pages) {
  for (Mapping& m : g_mappings) {
    uintptr_t begin = reinterpret_cast<uintptr_t>(pages);
    m.begin.compare_exchange_strong(begin, 0);
  }
}

}  // namespace

const char* mapped_file_at(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Mapping& m : g_mappings) {
    const uintptr_t begin = m.begin.load();
    if (begin != 0 && at >= begin && at - begin < m.bytes) return m.path;
  }
  return nullptr;
}

std::shared_ptr<void> map_file(const std::filesystem::path& path, uint64_t bytes, std::string_view where) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check<IoError>(descriptor >= 0, where, path.string(), ": cannot read");
  struct stat status {};
  const bool has_size = ::fstat(descriptor, &status) == 0 && uint64_t(status.st_size) == bytes;
  void* const pages =
      has_size ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0) : MAP_FAILED;
  ::close(descriptor);
  check<IoError>(has_size, where, path.string(), ": the file is being changed");
  check<IoError>(pages != MAP_FAILED, where, path.string(), ": cannot be mapped into memory");
  note_mapping(pages, bytes, path.string());
  return {pages, [bytes](void* p) {
            forget_mapping(p);
            ::munmap(p, bytes);
          }};
}

void PageWindow::enter(uintptr_t section) {
  const uintptr_t text = reinterpret_cast<uintptr_t>(text_.data()), page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const uintptr_t from = (std::max(text, section_ << kShift) + page - 1) / page * page;
  const uintptr_t to = std::min(text + text_.size(), (section_ + 1) << kShift) / page * page;
  if (from < to) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
  section_ = section;
}

}  // namespace halfstep
