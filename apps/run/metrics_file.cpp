// SPDX-License-Identifier: Apache-2.0
#include "apps/run/metrics_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/io/atomic_file.h"
#include "framework/io/json.h"

namespace halfstep::app {
namespace {

// After how many steps a line was written, skipped ones included; -1 when it is not one of a run: cut off by a crash, or somebody
// else's.
int64_t step_of(std::string_view line, bool& evaluation) {
  try {
    const Json entry = read_json<Json>(line);
    if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer()) return -1;
    evaluation = entry.contains("val/loss");
    const Json& tried = entry.contains("attempted") ? entry["attempted"] : entry["step"];  // older files have none
    return tried.is_number_integer() ? tried.get<int64_t>() : -1;
  } catch (const JsonError&) { return -1; }
}

// The lines of steps up to `from` that have been written and will not be written again.
std::string lines_until(const ResumePoint& from, const std::string& text, int64_t& foreign) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    bool evaluation = false;
    const int64_t step = step_of(line, evaluation);
    if (step < 0 && !line.empty()) ++foreign;
    const bool written = step < from.step || (step == from.step && (evaluation ? from.last_eval_step : from.last_log_step) == step);
    if (step >= 0 && written) kept.append(line).push_back('\n');
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, const ResumePoint& from) : path_(path) {
  std::string kept;
  struct stat there = {};
  if (::stat(path.c_str(), &there) == 0) {
    check<IoError>(S_ISREG(there.st_mode), "metrics", path.string(), " must be a regular file");
    int64_t foreign = 0;
    if (from.step > 0) kept = lines_until(from, read_file(path), foreign);
    if (foreign > 0)
      logging::warn(path.string() + ": left out lines that are not metrics of a run, " + std::to_string(foreign) + " in all");
  }
  atomic_write(path, kept);
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) fail<IoError>("metrics", "cannot write ", path.string(), ": ", std::strerror(errno));
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

MetricsFile::MetricsFile(MetricsFile&& other) noexcept { *this = std::move(other); }

MetricsFile& MetricsFile::operator=(MetricsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(torn_, other.torn_);
  std::swap(lost_, other.lost_);
  return *this;
}

void MetricsFile::write(const Json& entry) {
  if (fd_ < 0) return;
  const std::string line = (torn_ ? "\n" : "") + entry.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  const off_t size = ::lseek(fd_, 0, SEEK_END);
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n == 0 ? ENOSPC : errno;
      torn_ = torn_ || (done > 0 && ::ftruncate(fd_, size) != 0);
      return lose(error);
    }
    done += size_t(n);
  }
  torn_ = false;
}

void MetricsFile::sync() {
  // EINVAL: a file system without anything to wait for.
  if (fd_ >= 0 && ::fsync(fd_) != 0 && errno != EINVAL) lose(errno);
}

void MetricsFile::lose(int error) {
  if (lost_++ == 0)
    logging::warn("cannot write " + path_.string() + ": " + std::strerror(error) + "; training continues without these lines");
}

}  // namespace halfstep::app
