// SPDX-License-Identifier: Apache-2.0
// Checkpoints: everything that a run needs to continue, in one directory per step.
//
//   <dir>/step-00001234/model.safetensors   the model's state_dict
//                       state.safetensors   every other tensor (optimizer, EMA, ...)
//                       state.json          everything else (counters, configs, random state, versions)
//                       data.json           the model's inputs and outputs (framework/data/transforms/data_form.h), if known
//                       manifest.json       bytes and SHA-256 of each of the above; written last
//   <dir>/latest, <dir>/best                text files with the name of such a directory
//
// A checkpoint is written as <dir>/step-00001234.tmp, synced, and renamed, so a crash leaves the older ones unchanged. A pace
// (checkpoint_pace.h) lets some saves not wait for the disk. A checkpoint to remove is first renamed to <dir>/step-00001234.old.
// An unreadable one is never removed or replaced: it is renamed to <dir>/step-00001234.unreadable if its name is needed.
//
// All functions throw IoError if a file cannot be read or written, and its subclass CheckpointError for a checkpoint that is
// missing, damaged or of a newer version; the message names the file and the fault.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/check.h"
#include "framework/io/checkpoint/checkpoint_pace.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json_value.h"
#include "framework/io/weights/tensor_map.h"

namespace halfstep {

struct CheckpointError : IoError {
  using IoError::IoError;
};

struct CheckpointContents {
  TensorMap model;
  TensorMap state;
  JsonValue meta;
  std::optional<JsonValue> data{};  // data.json
};

// Writes <dir>/step-<step>, points `latest` at it and returns its path. Replaces an older checkpoint of the same step. With
// keep_last > 0, then removes all but the newest `keep_last` checkpoints; but keeps those that `latest` and `best` name, those of
// the steps `keep`, unreadable ones and, with a pace, those on the disk until newer ones are.
std::filesystem::path save_checkpoint(const std::filesystem::path& dir, int64_t step, const CheckpointContents& contents,
                                      int keep_last = 0, const std::vector<int64_t>& keep = {}, CheckpointPace* pace = nullptr);
// Finishes a folder that was written with a pace: waits until all is on the disk, then removes what keep_last and `keep` do not
// keep.
void settle_checkpoints(const std::filesystem::path& dir, CheckpointPace& pace, int keep_last,
                        const std::vector<int64_t>& keep = {});

// Point <dir>/latest and <dir>/best at the checkpoint of `step`, which must exist. Write nothing if they already do.
void mark_latest(const std::filesystem::path& dir, int64_t step);
void mark_best(const std::filesystem::path& dir, int64_t step, Waits waits = Waits::yes);

// Reads a checkpoint after verifying it. `path`: a checkpoint, a `latest` or `best` file, or a directory of checkpoints (its
// latest).
CheckpointContents load_checkpoint(const std::filesystem::path& path, Device device = Device::cpu);

// Returns the checkpoint directory to which `path` refers, as above.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

// Compares each file with the manifest.
void verify_checkpoint(const std::filesystem::path& checkpoint);

// Returns the checkpoint that `latest` names, also while a run that trains replaces it. If it cannot be read, warns and returns the
// newest readable one; the ones tried before are added to `passed_over`. Returns nothing if `dir` has no checkpoint at all. Throws
// CheckpointError, with each checkpoint's fault, if none can be read, or if one of a newer version would be passed over.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& dir,
                                                       std::vector<std::filesystem::path>* passed_over = nullptr);
// Returns what `best` names; nothing if there is no such file.
std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& dir);

// Returns the steps with a checkpoint in `dir`, ascending, without checking the checkpoints.
std::vector<int64_t> list_checkpoints(const std::filesystem::path& dir);
std::string checkpoint_name(int64_t step);  // "step-00001234"
// Returns the step of a checkpoint's path; -1 for any other path.
int64_t checkpoint_step(const std::filesystem::path& checkpoint);

// For the only process that may write `dir`: renames an unreadable checkpoint to step-<step>.unreadable, which frees its name, and
// warns.
void set_aside(const std::filesystem::path& checkpoint);
// Removes what killed processes left in `dir`. Completes a checkpoint that was written but not yet renamed.
void clean_up_checkpoints(const std::filesystem::path& dir);
// Returns whether this is the name of a checkpoint, including renamed unreadable ones, or of a pointer to one.
bool is_checkpoint_name(const std::string& name);

}  // namespace halfstep
