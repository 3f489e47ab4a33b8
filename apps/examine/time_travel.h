// SPDX-License-Identifier: Apache-2.0
// Replays a run from one of its checkpoints. A step is a function of the checkpoint, the config, the data and the number of
// threads, so a step can be examined later, and normal steps need to record nothing.
//
// Only reads the run's folder. The replay writes to a folder of its own, which is removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/train/explainer.h"

namespace halfstep::app {

struct ReplayOptions {
  std::optional<int64_t> from = {};    // start at the newest readable checkpoint up to this step; unset: at the newest
  std::optional<int64_t> until = {};   // last step
  std::vector<std::string> sets = {};  // changes of the config: "optimizer.lr=0.1"
  std::function<void(const std::string&)> print_line = nullptr;  // lines for the user
  bool seeks = true;                                             // whether to stop at a fault
  int64_t explain_from = 0;                               // ignore faults of earlier steps
  decltype(Watch::on_begin) on_begin = nullptr;           // see Watch
  decltype(Watch::on_step) on_step = nullptr;
};

struct ReplayResult {
  int64_t first = 0, last = 0;           // replayed steps: (first, last]
  std::optional<Diagnosis> fault;        // of the first step that went wrong, which is `last`
  int64_t epoch = 0, attempt = 0;        // of that step; attempt counts skipped ones too
  std::vector<double> losses;            // of the steps
  double loss_before = 0;                // the run's usual loss at `first`; 0: unknown
  std::vector<std::string> differences;  // from the run's own checkpoints, where bytes differ
  std::string still_running;  // the process that trains the run now, and the step up to which it was replayed; else empty
};

// Replays `run`, a run's folder or one of its checkpoints. A run without a checkpoint is replayed from its start, and a run that
// another process is training up to the last line of its metrics. Throws CheckpointError and ConfigError if there is neither a
// checkpoint nor a config, DataError if the training data has changed and `sets` do not replace it, and as training does.
ReplayResult replay(const std::filesystem::path& run, const ReplayOptions& options);

// Adds remedies that were tried over the same steps; for diverged weights a lower learning rate.
void try_remedies(const std::filesystem::path& run, const ReplayOptions& options, ReplayResult& result);

}  // namespace halfstep::app
