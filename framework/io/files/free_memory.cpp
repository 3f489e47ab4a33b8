// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/free_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "framework/base/check.h"
#include "framework/base/number_text.h"

namespace halfstep {
namespace {

// Returns the first word of a file as a number; -1 if it is none.
double number_in(const char* file) {
  std::string word;
  std::ifstream(file) >> word;
  return number_of(word).value_or(-1);  // "max": no limit
}

// Returns the number behind a word in a file of words and numbers; -1 if it is missing.
double number_after(const char* file, std::string_view word) {
  std::ifstream in(file);
  std::string value, rest;
  for (std::string key; in >> key >> value; std::getline(in, rest))
    if (key == word) return number_of(value).value_or(-1);
  return -1;
}

// Returns the free bytes of this process's control group. Pages of files count as free, because the system drops them on demand.
double free_in_group() {
  const double limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (limit <= 0 || used < 0) return std::numeric_limits<double>::infinity();
  return std::clamp(limit - used + std::max(0.0, number_after("/sys/fs/cgroup/memory.stat", "file")), 0.0, limit);
}

std::string gigabytes(double bytes) { return fixed_text(bytes / 1e9, bytes < 1e8 ? 3 : 1) + " GB"; }

}  // namespace

double free_memory() {
  const double kib = number_after("/proc/meminfo", "MemAvailable:");
  return kib < 0 ? 0 : std::min(kib * 1024, free_in_group());
}

void check_room(std::string_view where, const std::filesystem::path& path, double bytes, const std::string& what,
                std::string_view remedy) {
  constexpr double kAlwaysFits = 1 << 26;  // bytes: fewer are not checked
  if (bytes < kAlwaysFits) return;
  const double free = free_memory();
  check<MemoryError>(free == 0 || bytes <= free, where, path.string(), ": reading ", what, " needs ", gigabytes(bytes), ", but ",
                     gigabytes(free), " are free", Help{remedy});
}

}  // namespace halfstep
