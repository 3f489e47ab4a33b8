// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cores.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace halfstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDefaultPeriod = 100'000;  // microseconds, of Linux
constexpr int64_t kMostCores = 1 << 20;      // bounds of numbers that could exceed an int
constexpr int64_t kMostThreads = 1 << 16;

// Returns the integer that a text begins with, or `otherwise`.
int64_t number_at(std::string_view text, int64_t otherwise) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t out = otherwise;
  return std::from_chars(text.data(), text.data() + text.size(), out).ec == std::errc() ? out : otherwise;
}

std::string line_of(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file) >> std::ws, line);
  return line;
}

// Returns the cores that a quota of each period keeps busy, rounded up; 0: no limit.
int cores_of_quota(int64_t quota, int64_t period) {
  return quota > 0 && period > 0 ? int(std::min<int64_t>((quota + period - 1) / period, kMostCores)) : 0;
}

// Returns the limit of one control group; 0: none.
int cores_in(const fs::path& group) {
  if (const std::string most = line_of(group / "cpu.max"); !most.empty()) {  // quota and period: "150000 100000", "max 100000"
    const std::string_view period = std::string_view(most).substr(std::min(most.find(' '), most.size()));
    return cores_of_quota(number_at(most, 0), number_at(period, kDefaultPeriod));
  }
  return cores_of_quota(number_at(line_of(group / "cpu.cfs_quota_us"), 0),
                        number_at(line_of(group / "cpu.cfs_period_us"), kDefaultPeriod));
}

// Returns the lowest limit of the folders from `top` down to `name`; 0: none. A container may not see the lower folders.
int cores_from(const fs::path& top, const fs::path& name) {
  int least = 0;
  fs::path at = top;
  const auto apply_limit = [&] {
    if (const int cores = cores_in(at); cores > 0) least = least == 0 ? cores : std::min(least, cores);
  };
  apply_limit();
  for (const fs::path& part : name.relative_path()) {
    at /= part;
    apply_limit();
  }
  return least;
}

}  // namespace

int cores_of_group(const fs::path& root) {
  const fs::path groups = root / "sys/fs/cgroup";
  int least = 0;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "0::/a/b", or "4:cpu,cpuacct:/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), name = line.substr(second + 1);
    const bool of_cpu = (',' + controllers + ',').find(",cpu,") != std::string::npos;
    if (!of_cpu && !controllers.empty()) continue;
    for (const fs::path& top : {of_cpu ? groups / controllers : groups, of_cpu ? groups / "cpu" : groups / "unified"})
      if (const int cores = cores_from(top, name); cores > 0) least = least == 0 ? cores : std::min(least, cores);
  }
  return least;
}

int default_threads(const char* omp_num_threads, int processors, int of_group) {
  if (const int64_t requested = omp_num_threads ? number_at(omp_num_threads, 0) : 0; requested > 0)
    return int(std::min(requested, kMostThreads));
  return std::max(1, of_group > 0 ? std::min(processors, of_group) : processors);
}

}  // namespace halfstep
