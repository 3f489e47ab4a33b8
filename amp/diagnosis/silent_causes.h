// SPDX-License-Identifier: Apache-2.0
// Causes that break no step, and yet keep a model from learning: found in observed steps (observation.h).
//   underflow      over half of a tensor's gradient is zero in 16 bits and not in float32, and what is left is wrong by half
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

// Of the observed steps of a run.
class QuietCauses {
 public:
  // Each cause at each tensor is given once. `step` computes the observed step again, with whatever weights the module has by now:
  // in 16 bits and in float32, where the observation leaves open what is to blame. What was `seen` is then completed. Throws
  // MemoryError. Without batches in `step` nothing is compared.
  std::vector<Diagnosis> look(Observation& seen, const StepUnderTest& step);

 private:
  using Names = std::vector<std::string>;
  Names fresh(const std::string& cause, const Names& names);  // those for which it was not given yet
  bool compares(const Observation& seen);

  std::set<std::pair<std::string, std::string>> given_;
  std::set<std::string> zero_before_;  // tensors whose whole gradient was zero in the last observed step
  // In observed steps: a comparison that found nothing is not made again soon.
  int64_t wait_ = 0, next_wait_ = 1;
};

}  // namespace halfstep
