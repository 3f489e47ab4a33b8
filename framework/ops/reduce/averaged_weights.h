// SPDX-License-Identifier: Apache-2.0
// Detects batch normalisations that evaluate averaged weights with running statistics of other weights. Such statistics do not
// fit: networks lose most of their accuracy without a visible cause.
#pragma once

#include <atomic>
#include <cstdint>

#include "framework/base/guard.h"

namespace halfstep {

// Marks the weights of this thread's models as averages while it lives (WeightAverage::Scope). A batch_norm by running statistics
// then warns once, unless some have been updated since: update_bn computes them anew.
class AveragedWeights : LocalGuard {
 public:
  [[nodiscard]] explicit AveragedWeights(bool on) : saved_(current_) { current_ = current_ || on; }
  ~AveragedWeights() { current_ = saved_; }
  // Marks the weights of this thread's models as averages from now on, without an end.
  static void put_for_good() { current_ = true; }
  // Notes that batch_norm has updated running statistics of the current weights.
  static void statistics_moved() { current_ = false; }
  // Warns if batch_norm uses running statistics that were not updated since.
  static void statistics_used();
  static uint64_t warnings() { return warnings_; }  // so far; the log has each text once

 private:
  static inline thread_local constinit bool current_ = false;  // whether the weights are averages without statistics of their own
  static inline std::atomic<uint64_t> warnings_ = 0;
  bool saved_;
};

}  // namespace halfstep
