// SPDX-License-Identifier: Apache-2.0
#include "framework/io/checkpoint/checkpoint_pace.h"

#include <algorithm>
#include <vector>

#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep {

namespace fs = std::filesystem;

bool CheckpointPace::is_due() const {
  constexpr double kIntervalPerWait = 20;  // so that waits take about a 20th of the time
  if (!has_waited_) return true;
  return std::chrono::duration<double>(Clock::now() - last_wait_).count() >=
         std::clamp(kIntervalPerWait * wait_seconds_, least_seconds_, most_seconds_);
}

void CheckpointPace::wait(const fs::path& dir) {
  const auto begin = Clock::now();
  // At first these include checkpoints of earlier processes, which may have been killed.
  std::vector<int64_t> steps(pending_.begin(), pending_.end());
  if (!has_waited_) steps = list_checkpoints(dir);
  std::error_code ignored;
  for (const int64_t step : steps) {
    const fs::path checkpoint = dir / checkpoint_name(step);
    if (fs::is_directory(checkpoint, ignored)) sync_files(checkpoint);  // unless it was removed
  }
  for (const char* pointer : {"latest", "best"})
    if (fs::is_regular_file(dir / pointer, ignored)) sync_file(dir / pointer);
  sync_directory(dir);
  pending_.clear();
  has_waited_ = true, last_wait_ = Clock::now();
  wait_seconds_ = std::chrono::duration<double>(last_wait_ - begin).count();
}

}  // namespace halfstep
