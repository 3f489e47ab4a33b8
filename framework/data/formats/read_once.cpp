// SPDX-License-Identifier: Apache-2.0
#include "framework/data/formats/read_once.h"

#include <sys/stat.h>

#include <ctime>

#include "framework/base/check.h"

namespace halfstep {

std::string file_stamp(const std::filesystem::path& path) {
  struct stat is {};
  timespec now{};
  if (::stat(path.c_str(), &is) != 0 || !S_ISREG(is.st_mode) || ::clock_gettime(CLOCK_REALTIME, &now) != 0) return {};
  constexpr double kMoment = 0.1;  // seconds; file systems count in steps of some milliseconds
  const auto seconds = [](const timespec& t) { return double(t.tv_sec) + 1e-9 * double(t.tv_nsec); };
  if (seconds(now) - seconds(is.st_ctim) < kMoment) return {};
  std::error_code none;
  return joined(std::filesystem::absolute(path, none).string(), '\n', is.st_dev, ' ', is.st_ino, ' ', is.st_size, ' ',
                is.st_mtim.tv_sec, '.', is.st_mtim.tv_nsec, ' ', is.st_ctim.tv_sec, '.', is.st_ctim.tv_nsec);
}

}  // namespace halfstep
