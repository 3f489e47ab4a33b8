// SPDX-License-Identifier: Apache-2.0
// Opens a run at one of its checkpoints, only for reading.
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
  std::optional<std::filesystem::path> checkpoint;  // unset: none fits, and the run begins at its first values
  std::optional<CheckpointContents> contents;       // of the checkpoint
  Json config;
  std::string data_sha256;  // fingerprint of its training data; empty: unknown
};

// Opens `run`: a run's folder, at its newest readable checkpoint up to step `latest`; or a checkpoint. Reports unreadable ones to
// `report`. Throws CheckpointError, in the name of `command`, if there is neither a checkpoint nor a config.
StoredRun open_run(const char* command, const std::filesystem::path& run, const std::optional<int64_t>& latest = {},
                   const std::function<void(const std::string&)>& report = nullptr);

// A run that another process is training.
struct RunningRun {
  std::string holder;               // "process 12 on host, started ..."
  int64_t step = 0, attempted = 0;  // of the last line of metrics.jsonl; 0: none
};
// Returns nothing for a run that has ended.
std::optional<RunningRun> still_running(const std::filesystem::path& folder);

}  // namespace halfstep::app
