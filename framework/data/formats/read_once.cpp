// SPDX-License-Identifier: Apache-2.0
#include "framework/data/formats/read_once.h"

#include <sys/stat.h>

#include <ctime>

#include "framework/base/check.h"

namespace halfstep {

std::string file_stamp(const std::filesystem::path& path) {
  struct stat status {};
  timespec now{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || ::clock_gettime(CLOCK_REALTIME, &now) != 0) return {};
  constexpr double kClockStep = 0.1;  // seconds; file systems count in steps of some milliseconds
  const auto seconds = [](const timespec& t) { return double(t.tv_sec) + 1e-9 * double(t.tv_nsec); };
  if (seconds(now) - seconds(status.st_ctim) < kClockStep) return {};
  std::error_code ignored;
  return joined(std::filesystem::absolute(path, ignored).string(), '\n', status.st_dev, ' ', status.st_ino, ' ', status.st_size,
                ' ', status.st_mtim.tv_sec, '.', status.st_mtim.tv_nsec, ' ', status.st_ctim.tv_sec, '.', status.st_ctim.tv_nsec);
}

}  // namespace halfstep
