// SPDX-License-Identifier: Apache-2.0
// Decides when a program that writes many checkpoints waits for the disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>

namespace halfstep {

// A checkpoint survives a kill as soon as it is written, and a power failure once it is on the disk. Waiting for the disk can take
// longer than a step, so with a pace only the first save and some later ones wait: a power failure then loses the saves since the
// last of these. save_checkpoint does not remove a checkpoint that was on the disk until newer ones are. One pace per folder and
// process.
class CheckpointPace {
 public:
  // Waits again after 20 times the duration of a wait, but after `least_seconds` at the earliest and `most_seconds` at the latest.
  explicit CheckpointPace(double least_seconds = 1, double most_seconds = 10)
      : least_seconds_(least_seconds), most_seconds_(most_seconds) {}

  // Returns whether the next save waits.
  bool is_due() const;
  // Returns whether a power failure may still lose this checkpoint.
  bool is_pending(int64_t step) const { return pending_.contains(step); }
  bool has_pending() const { return !pending_.empty(); }
  // Notes a checkpoint that was written and may not be on the disk yet.
  void add(int64_t step) { pending_.insert(step); }
  // Waits until all checkpoints of the folder and its pointers are on the disk. Throws IoError.
  void wait(const std::filesystem::path& dir);

 private:
  using Clock = std::chrono::steady_clock;
  double least_seconds_, most_seconds_;
  std::set<int64_t> pending_;  // steps
  bool has_waited_ = false;
  Clock::time_point last_wait_{};  // end of the last wait
  double wait_seconds_ = 0;        // its duration
};

}  // namespace halfstep
