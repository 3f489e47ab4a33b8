// Checkpoints: everything a run needs to go on, in one directory a step.
//
//   <dir>/step-00001234/model.safetensors   the model's state_dict
//                       state.safetensors   every other tensor (optimizer, EMA, ...)
//                       state.json          everything else (counters, configs, random state, versions)
//                       manifest.json       bytes and SHA-256 of each of the above; written last
//   <dir>/latest, <dir>/best                text files holding the name of such a directory
//
// A checkpoint is written as <dir>/step-00001234.tmp, synced, and renamed: a crash leaves the older ones as they were.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "framework/io/tensor_map.h"

namespace halfstep {

struct CheckpointContents {
  TensorMap model;
  TensorMap state;
  nlohmann::json meta = nlohmann::json::object();
};

// Writes <dir>/step-<step>, points `latest` at it and returns its path. An older checkpoint of the same step is replaced.
// keep_last > 0 then removes all but the newest `keep_last` checkpoints; never those that `latest` and `best` name.
// Throws IoError.
std::filesystem::path save_checkpoint(const std::filesystem::path& dir, int64_t step, const CheckpointContents& contents,
                                      int keep_last = 0);

// Points <dir>/best at the checkpoint of `step`. Throws IoError when there is none.
void mark_best(const std::filesystem::path& dir, int64_t step);

// Reads a checkpoint after verifying it. `path`: a checkpoint, a `latest` or `best` file, or a directory of checkpoints
// (its latest). Throws IoError that names the file and the fault.
CheckpointContents load_checkpoint(const std::filesystem::path& path, Device device = Device::cpu);

// The checkpoint directory that `path`, as above, stands for. Throws IoError when there is none.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

// Compares each file with the manifest. Throws IoError that names the first file that is missing or differs.
void verify_checkpoint(const std::filesystem::path& checkpoint);

// The checkpoint `latest` names. When that one is damaged: a warning, and the newest that is whole. Empty when none is.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& dir);
std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& dir);

// Steps for which <dir> holds a checkpoint, ascending; whether they are whole is not checked.
std::vector<int64_t> list_checkpoints(const std::filesystem::path& dir);

}  // namespace halfstep
