// SPDX-License-Identifier: Apache-2.0
// Causes that let every step succeed, yet keep a model from learning. They are found in observed steps (observation.h).
//   underflow      over half of a tensor's gradient is zero in 16 bits but not in float32, and the rest is wrong by half
//   lost_updates   over half of a 16-bit parameter's elements with a gradient keep their value in the update
//   dead_gradient  a tensor's gradient is zero in float32 too, in two observed steps in a row
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "amp/diagnosis/diagnose.h"
#include "amp/diagnosis/observation.h"

namespace halfstep {

// Looks for these causes in the observed steps of a run.
class SilentCauses {
 public:
  // Returns each cause once for each tensor. If the observation alone does not decide, it computes `step`, the observed step with
  // the module's current weights, in 16 bits and in float32, and completes `seen`. Throws MemoryError. Without batches in `step`
  // it compares nothing.
  std::vector<Diagnosis> look(Observation& seen, const StepUnderTest& step);

 private:
  using TensorNames = std::vector<std::string>;
  TensorNames new_names(const std::string& cause, const TensorNames& names);  // the names for which the cause was not reported yet
  bool should_compare(const Observation& seen);

  std::set<std::pair<std::string, std::string>> reported_;  // (cause, tensor) pairs
  std::set<std::string> zero_before_;                       // tensors whose gradient was zero in the last observed step
  // Counts of observed steps: a comparison that found nothing is not repeated soon.
  int64_t wait_ = 0, next_wait_ = 1;
};

}  // namespace halfstep
