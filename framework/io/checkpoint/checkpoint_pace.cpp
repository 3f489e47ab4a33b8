// SPDX-License-Identifier: Apache-2.0
#include "framework/io/checkpoint/checkpoint_pace.h"

#include <algorithm>
#include <vector>

#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep {

namespace fs = std::filesystem;

bool CheckpointPace::is_due() const {
  if (!waited_) return true;
  return std::chrono::duration<double>(Clock::now() - last_).count() >= std::clamp(20 * took_, least_, most_);
}

void CheckpointPace::wait(const fs::path& dir) {
  const auto begin = Clock::now();
  // At first these include checkpoints of earlier processes, which may have been killed.
  std::vector<int64_t> steps(pending_.begin(), pending_.end());
  if (!waited_) steps = list_checkpoints(dir);
  std::error_code none;
  for (const int64_t step : steps) {
    const fs::path checkpoint = dir / checkpoint_name(step);
    if (fs::is_directory(checkpoint, none)) sync_files(checkpoint);  // unless it was removed
  }
  for (const char* pointer : {"latest", "best"})
    if (fs::is_regular_file(dir / pointer, none)) sync_file(dir / pointer);
  sync_directory(dir);
  pending_.clear();
  waited_ = true, last_ = Clock::now();
  took_ = std::chrono::duration<double>(last_ - begin).count();
}

}  // namespace halfstep
