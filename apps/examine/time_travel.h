// SPDX-License-Identifier: Apache-2.0
// A run computed again from one of its checkpoints. A step is a function of the checkpoint, the config, the data and the number of
// threads, so that what happened at a step can be looked at later: normal steps need to record nothing.
//
// The run's folder is only read. What the replay writes goes to a folder of its own, which is removed.
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
  std::optional<int64_t> from = {};    // the newest checkpoint that can be read and is not later than this; left out: the newest
  std::optional<int64_t> until = {};   // the last step to take
  std::vector<std::string> sets = {};  // changes of the config: "optimizer.lr=0.1"
  std::function<void(const std::string&)> say = nullptr;  // lines for the user
  bool seeks = true;                                      // a fault, at which the replay ends
  int64_t explain_from = 0;                               // faults of earlier steps are passed over
  decltype(Watch::begins) begins = nullptr;               // as of a watch
  decltype(Watch::stepped) stepped = nullptr;
};

struct ReplayResult {
  int64_t first = 0, last = 0;           // steps that were taken: (first, last]
  std::optional<Diagnosis> fault;        // of the first step that went wrong, which is `last`
  int64_t epoch = 0, attempt = 0;        // of that step; attempt counts skipped ones, too
  std::vector<double> losses;            // of the steps
  double loss_before = 0;                // the run's usual loss at `first`; 0: not known
  std::vector<std::string> differences;  // from the run's own checkpoints on the way, where their bytes were not met
  std::string still_running;             // of a run that another process trains: who, and to where it was replayed
};

// `run`: a run's folder, or one of its checkpoints. A run without a checkpoint is replayed from its start, and a run that another
// process trains to the last line of its metrics. Throws CheckpointError and ConfigError where there is neither a checkpoint nor a
// config, DataError where the training data is not what it was and `sets` leave it as it is, and as training does.
ReplayResult replay(const std::filesystem::path& run, const ReplayOptions& options);

// Adds remedies that were tried over the same steps: of weights that were driven away a lower learning rate.
void try_remedies(const std::filesystem::path& run, const ReplayOptions& options, ReplayResult& result);

}  // namespace halfstep::app
