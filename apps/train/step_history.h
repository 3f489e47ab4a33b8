// SPDX-License-Identifier: Apache-2.0
// What is known of the latest steps of a run: the usual size of their losses, and how many were skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace halfstep::app {

class RecentLosses {
 public:
  void resumed(double usual) { before_ = usual; }  // of the process before
  void add(double loss);                           // a finite one
  double median() const;                           // of magnitudes

 private:
  std::vector<double> latest_;  // magnitudes, in a ring
  size_t next_ = 0;
  double before_ = 0;  // a resume
};

class SkipCount {
 public:
  // each: look at every skipped step, not only at a row of them.
  explicit SkipCount(bool each) : each_(each) { look_again(); }

  void resumed(int64_t skipped) { skipped_ = skipped; }
  void add(bool applied);  // the outcome of a step
  void add_without_target() { ++skipped_; }
  int64_t skipped() const { return skipped_; }  // steps of the run whose outcome is known
  int64_t in_row() const { return in_row_; }
  bool is_enough(int64_t in_row) const { return in_row >= next_look_; }  // to look at the next one
  void looked();  // the cause may change while the scale falls: after as many more

 private:
  void look_again();

  bool each_;
  int64_t skipped_ = 0, in_row_ = 0;
  int64_t next_look_ = 0;  // at so many in a row
};

}  // namespace halfstep::app
