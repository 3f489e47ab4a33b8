// SPDX-License-Identifier: Apache-2.0
// Opens a config at its first values, or a run at its last checkpoint, in 16 bits, for `halfstep parity` and `halfstep tune`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "amp/diagnosis/step_under_test.h"
#include "apps/config/config.h"
#include "apps/session/session.h"

namespace halfstep::app {

struct LoadedRun {
  Config config;
  Session session;
  int64_t step = 0;          // the run's
  bool was_float32 = false;  // amp is off in the config, and was switched on
  int64_t left_out = 0;      // batches that next_batches() skipped
};

// Opens `path`: a JSON config, a run's folder or one of its checkpoints. Throws as loading a config, a checkpoint and data does.
LoadedRun open_in_16_bits(const char* command, const std::filesystem::path& path, const ConfigOptions& options);

// Returns the next batches of the training data, each as a micro-batch, with the run's scale. Skips batches in which no target
// counts, as training does. Throws DataError if an epoch has no other. `opened` must outlive it.
StepUnderTest next_batches(LoadedRun& opened, int64_t count);
// Returns "left out 2 batches in which no target counts"; empty if there were none.
std::string left_out_text(const LoadedRun& opened);

}  // namespace halfstep::app
