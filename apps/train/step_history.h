// SPDX-License-Identifier: Apache-2.0
// Statistics of a run's latest steps: the usual size of their losses, and counts of skips.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace halfstep::app {

class RecentLosses {
 public:
  void continue_from(double median) { earlier_ = median; }  // takes the median of the earlier process
  void add(double loss);                                    // must be finite
  double median() const;                                    // of |loss|; 0: unknown

 private:
  std::vector<double> latest_;  // ring buffer of |loss|
  size_t next_ = 0;
  double earlier_ = 0;  // median before resuming
};

class SkipCount {
 public:
  // examines_each: examines every skipped step, not only several in a row.
  explicit SkipCount(bool examines_each) : examines_each_(examines_each) { reset_wait(); }

  void continue_from(int64_t skipped) { skipped_ = skipped; }
  void add(bool applied);  // takes the outcome of a step
  void add_without_target() { ++skipped_; }
  int64_t skipped() const { return skipped_; }  // of the run's steps with a known outcome
  int64_t in_row() const { return in_row_; }
  bool is_examined(int64_t in_row) const { return in_row >= examined_at_; }  // whether that many skips in a row are examined
  void wait_longer();  // waits for four times as many in a row: the cause may change while the scale falls

 private:
  void reset_wait();

  bool examines_each_;
  int64_t skipped_ = 0, in_row_ = 0;
  int64_t examined_at_ = 0;  // least number of skips in a row that is examined
};

}  // namespace halfstep::app
