// SPDX-License-Identifier: Apache-2.0
#include "apps/train/step_history.h"

#include <algorithm>
#include <cmath>

namespace halfstep::app {
namespace {

constexpr int64_t kSkipsInARow = 3;  // fewer are the scaler's search for its scale
constexpr int64_t kLongerWait = 4;   // factor of the wait after an explanation
constexpr size_t kLosses = 200;      // number of losses for the median

}  // namespace

void RecentLosses::add(double loss) {
  if (latest_.size() < kLosses)
    latest_.push_back(std::abs(loss));
  else
    latest_[next_++ % kLosses] = std::abs(loss);
}

double RecentLosses::median() const {
  if (latest_.empty()) return earlier_;
  std::vector<double> sorted = latest_;
  const auto middle = sorted.begin() + std::ptrdiff_t(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void SkipCount::add(bool applied) {
  in_row_ = applied ? 0 : in_row_ + 1;
  skipped_ += applied ? 0 : 1;
  if (applied) reset_wait();
}

void SkipCount::wait_longer() { examined_at_ = examines_each_ ? in_row_ + 1 : kLongerWait * in_row_; }

void SkipCount::reset_wait() { examined_at_ = examines_each_ ? 1 : kSkipsInARow; }

}  // namespace halfstep::app
