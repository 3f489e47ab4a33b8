// SPDX-License-Identifier: Apache-2.0
// Profiles the first steps of a run: prints where their time is spent, and writes it to the run's folder (profile.h).
#pragma once

#include <cstdint>
#include <optional>

#include "apps/train/profile.h"
#include "apps/train/run_context.h"

namespace halfstep::app {

class RunProfile {
 public:
  explicit RunProfile(RunContext& run) : run_(run) {}

  // Measures the machine and begins to profile. Call it before the run; without it the other functions do nothing.
  void start(int64_t steps);
  void begin_step();
  void end_step(bool stepped);  // after a step, or if the data ends before one
  void end_run();               // if the run ends before all steps were profiled

 private:
  void report();  // prints and writes the profile

  RunContext& run_;
  std::optional<StepProfiler> profiler_;
};

}  // namespace halfstep::app
