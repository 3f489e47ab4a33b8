// SPDX-License-Identifier: Apache-2.0
// When a program that writes many checkpoints waits for the disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>

namespace halfstep {

// A checkpoint is safe from a kill as soon as it is written, and from a power failure once it is on the disk. Waiting for that can
// take longer than a step, so with a pace only the first save and some later ones do: a power failure then loses what was saved
// since the last of these. save_checkpoint removes nothing that was on the disk then, until newer checkpoints are. One for a folder
// and a process.
class CheckpointPace {
 public:
  // Seconds from one wait to the next: 20 times as long as a wait took, but at least `least` and at most `most`.
  explicit CheckpointPace(double least = 1, double most = 10) : least_(least), most_(most) {}

  bool is_due() const;
  // May only a power failure lose this checkpoint?
  bool is_pending(int64_t step) const { return pending_.contains(step); }
  bool has_pending() const { return !pending_.empty(); }
  void add(int64_t step) { pending_.insert(step); }
  // Waits until all checkpoints of the folder and its pointers are on the disk. Throws IoError.
  void wait(const std::filesystem::path& dir);

 private:
  using Clock = std::chrono::steady_clock;
  double least_, most_;
  std::set<int64_t> pending_;  // steps
  bool waited_ = false;
  Clock::time_point last_{};
  double took_ = 0;
};

}  // namespace halfstep
