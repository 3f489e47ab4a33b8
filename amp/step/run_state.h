// SPDX-License-Identifier: Apache-2.0
// What a run needs to continue as if it had never stopped: the model, the optimizer's moments, the scale, the place in the schedule
// and in the random numbers. One call writes them, one reads them back:
//
//   save_run("runs/mine", step, {model, &optimizer, &scaler});
//   const SavedRun last = load_run("runs/mine", {model, &optimizer, &scaler});   // last.step, last.own
//
// The files are those of `halfstep train` (framework/io/checkpoint.h): written whole or not at all, and checked when they are read.
#pragma once

#include <cstdint>
#include <filesystem>

#include "framework/base/generator.h"
#include "framework/io/checkpoint.h"
#include "framework/io/stored_json.h"

namespace halfstep {

class GradScaler;
class Module;
class Optimizer;
class ProcessGroup;
class Schedule;

// Null: the run has none.
struct RunParts {
  Module& model;
  Optimizer* optimizer = nullptr;
  GradScaler* scaler = nullptr;
  Schedule* schedule = nullptr;
  Generator* generator = &default_generator();
  // Of ranks that share the optimizer's states (Optimizer::shard): all of them call pack and save_run together. Rank 0 gets and
  // writes the whole states; what pack gives the others lacks those of the optimizer. Without it, one rank may call them alone, and
  // an optimizer whose states are shared throws ValueError.
  ProcessGroup* group = nullptr;
};

// As a checkpoint's contents, and back. unpack throws CheckpointError for a state that pack did not write, and ValueError for one
// that does not fit the model or the optimizer. A part that was not there when the state was written keeps its own.
CheckpointContents pack(const RunParts& run);
void unpack(const CheckpointContents& contents, const RunParts& run);

// The contents of state.json. Throws CheckpointError if a newer halfstep wrote it.
StoredJson stored_meta(const CheckpointContents& contents);

// Writes <dir>/step-<step>, which becomes the latest. own: numbers and names of the program's own. keep_last > 0 removes older
// checkpoints. Throws IoError, with a group on all ranks.
std::filesystem::path save_run(const std::filesystem::path& dir, int64_t step, const RunParts& run);
std::filesystem::path save_run(const std::filesystem::path& dir, int64_t step, const RunParts& run, const nlohmann::json& own,
                               int keep_last = 0);

struct SavedRun {
  int64_t step = 0;
  JsonValue own;
};
// The latest checkpoint of a directory, or the one that `path` names. Throws as unpack, and IoError.
SavedRun load_run(const std::filesystem::path& path, const RunParts& run);

}  // namespace halfstep
