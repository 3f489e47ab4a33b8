// SPDX-License-Identifier: Apache-2.0
// Profiles the first steps of a run: where their time is spent is printed, and written to the run's folder (profile.h).
#pragma once

#include <cstdint>
#include <optional>

#include "apps/train/profile.h"
#include "apps/train/run_context.h"

namespace halfstep::app {

class RunProfile {
 public:
  explicit RunProfile(RunContext& run) : run_(run) {}

  void take(int64_t steps);  // before the run begins; without this the others do nothing
  void begin_step();
  void end_step(bool stepped);  // a step, or the end of the data before one
  void end_run();               // before all steps were taken

 private:
  void report();

  RunContext& run_;
  std::optional<StepProfiler> profiler_;
};

}  // namespace halfstep::app
