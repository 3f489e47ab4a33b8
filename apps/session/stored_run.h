// SPDX-License-Identifier: Apache-2.0
// A run, opened at one of its checkpoints, and only read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "apps/schema/json.h"
#include "framework/io/checkpoint/checkpoint.h"

namespace halfstep::app {

struct StoredRun {
  std::filesystem::path folder;
  std::optional<std::filesystem::path> checkpoint;  // nothing: the run has none that fits, and begins at its first values
  std::optional<CheckpointContents> contents;       // of it
  Json config;
  std::string data_sha256;  // fingerprint of its training data; empty: not known
};

// `run`: a run's folder, whose newest checkpoint is taken that can be read and is not later than step `latest`; or a checkpoint.
// `say` hears of those that cannot be read. Throws CheckpointError, in the name of `command`, where there is neither a checkpoint
// nor a config.
StoredRun open_run(const char* command, const std::filesystem::path& run, const std::optional<int64_t>& latest = {},
                   const std::function<void(const std::string&)>& say = nullptr);

// A run that another process is training.
struct RunningRun {
  std::string holder;               // "process 12 on host, started ..."
  int64_t step = 0, attempted = 0;  // of the last line of metrics.jsonl; 0: there is none
};
// Nothing for a run that has ended.
std::optional<RunningRun> still_running(const std::filesystem::path& folder);

}  // namespace halfstep::app
