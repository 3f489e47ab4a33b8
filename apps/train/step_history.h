// SPDX-License-Identifier: Apache-2.0
// Statistics of a run's latest steps: the usual size of their losses, and counts of skips.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace halfstep::app {

class RecentLosses {
 public:
  void resumed(double usual) { before_ = usual; }  // median of the earlier process
  void add(double loss);                           // must be finite
  double median() const;                           // of |loss|

 private:
  std::vector<double> latest_;  // ring buffer of |loss|
  size_t next_ = 0;
  double before_ = 0;  // median before resuming
};

class SkipCount {
 public:
  // each: examine every skipped step, not only several in a row.
  explicit SkipCount(bool each) : each_(each) { look_again(); }

  void resumed(int64_t skipped) { skipped_ = skipped; }
  void add(bool applied);  // takes the outcome of a step
  void add_without_target() { ++skipped_; }
  int64_t skipped() const { return skipped_; }  // of the run's steps with a known outcome
  int64_t in_row() const { return in_row_; }
  bool is_enough(int64_t in_row) const { return in_row >= next_look_; }  // whether to examine the next step
  void explained();  // waits for as many more: the cause may change while the scale falls

 private:
  void look_again();

  bool each_;
  int64_t skipped_ = 0, in_row_ = 0;
  int64_t next_look_ = 0;  // skips in a row at which to look
};

}  // namespace halfstep::app
