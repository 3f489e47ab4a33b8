// SPDX-License-Identifier: Apache-2.0
// Checkpoints: everything a run needs to continue, one directory for each step.
//
//   <dir>/step-00001234/model.safetensors   the model's state_dict
//                       state.safetensors   every other tensor (optimizer, EMA, ...)
//                       state.json          everything else (counters, configs, random state, versions)
//                       data.json           what the model takes and gives (framework/data/transforms/form.h), where that is known
//                       manifest.json       bytes and SHA-256 of each of the above; written last
//   <dir>/latest, <dir>/best                text files holding the name of such a directory
//
// A checkpoint is written as <dir>/step-00001234.tmp, synced, and renamed: a crash leaves the older ones as they were. A pace
// (checkpoint_pace.h) lets some saves not wait for the disk.
// A checkpoint to remove is first renamed to <dir>/step-00001234.old. One that cannot be read is never removed or replaced: it is
// renamed to <dir>/step-00001234.unreadable if its name is needed.
//
// All functions throw IoError when a file cannot be read or written, and CheckpointError, which is one, for a checkpoint that is
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

// A checkpoint that is missing, damaged or of a newer version.
struct CheckpointError : IoError {
  using IoError::IoError;
};

struct CheckpointContents {
  TensorMap model;
  TensorMap state;
  JsonValue meta;
  std::optional<JsonValue> data{};  // data.json
};

// Writes <dir>/step-<step>, points `latest` at it and returns its path. An older checkpoint of the same step is replaced.
// keep_last > 0 then removes all but the newest `keep_last` checkpoints; never those that `latest` and `best` name, those of the
// steps `keep`, nor those that cannot be read, nor, with a pace, those that were on the disk before newer ones are.
std::filesystem::path save_checkpoint(const std::filesystem::path& dir, int64_t step, const CheckpointContents& contents,
                                      int keep_last = 0, const std::vector<int64_t>& keep = {}, CheckpointPace* pace = nullptr);
// Of a folder that was written with a pace: waits until all is on the disk, and removes what keep_last and `keep` do not keep.
void settle_checkpoints(const std::filesystem::path& dir, CheckpointPace& pace, int keep_last,
                        const std::vector<int64_t>& keep = {});

// Points <dir>/latest and <dir>/best at the checkpoint of `step`, which must exist. Nothing is written if they already do.
void mark_latest(const std::filesystem::path& dir, int64_t step);
void mark_best(const std::filesystem::path& dir, int64_t step, Waits waits = Waits::yes);

// Reads a checkpoint after verifying it. `path`: a checkpoint, a `latest` or `best` file, or a directory of checkpoints
// (its latest).
CheckpointContents load_checkpoint(const std::filesystem::path& path, Device device = Device::cpu);

// The checkpoint directory that `path` refers to, as above.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

// Compares each file with the manifest.
void verify_checkpoint(const std::filesystem::path& checkpoint);

// The checkpoint `latest` names. When that one cannot be read: a warning, and the newest that can; those that were tried before it
// are added to `passed_over`. Nothing when `dir` holds no checkpoint at all. Throws CheckpointError, which lists each checkpoint
// with its fault, when none can be read, and when one of a newer version would be passed over.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& dir,
                                                       std::vector<std::filesystem::path>* passed_over = nullptr);
// What `best` names; nothing when there is no such file.
std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& dir);

// Steps for which <dir> holds a checkpoint, ascending; whether they are whole is not checked.
std::vector<int64_t> list_checkpoints(const std::filesystem::path& dir);
std::string checkpoint_name(int64_t step);  // "step-00001234"
// The step of a checkpoint's path; -1 for any other path.
int64_t checkpoint_step(const std::filesystem::path& checkpoint);

// For the one process that may write `dir`:
// Renames a checkpoint that cannot be read to step-<step>.unreadable, so that the name is free, and warns of it.
void set_aside(const std::filesystem::path& checkpoint);
// Removes what killed processes left in `dir`. A checkpoint that was written and not yet renamed is completed instead.
void clean_up_checkpoints(const std::filesystem::path& dir);
// Is this the name of a checkpoint, one set aside included, or of a pointer to one?
bool is_checkpoint_name(const std::string& name);

}  // namespace halfstep
