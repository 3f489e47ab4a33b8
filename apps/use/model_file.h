// SPDX-License-Identifier: Apache-2.0
// Finds the trained model that a path names. Besides runs' checkpoints it can be a single file that `halfstep export` writes:
// safetensors with the weights, and in its metadata, as strings, everything else that using the model needs:
//
//   format           "pt": Python's safetensors.torch.load_file takes the weights as they are
//   halfstep         the version that wrote it; halfstep.file: 1, this list
//   halfstep.config  the run's config; halfstep.data: its data.json; halfstep.step; halfstep.metrics; halfstep.averaged
//   halfstep.proof   golden samples (apps/use/golden_samples.h)
//   halfstep.sha256  of all these values: facts about the training data cannot be changed unnoticed
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "apps/session/session.h"
#include "apps/use/golden_samples.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "layers/module/save.h"

namespace halfstep::app {

// Returns a run's best checkpoint, or the latest if none is marked best; the file in a folder of `halfstep export --to dir`;
// RUN/latest, RUN/best, a checkpoint or a file itself. Throws as resolve_checkpoint.
std::filesystem::path model_in_use(const std::filesystem::path& path);

struct StoredModel {
  std::filesystem::path path;   // the checkpoint or the file
  CheckpointContents contents;  // of a file: the model, the config, the step and data.json
  bool averaged = false;        // a file's weights are averages
  std::optional<Proof> proof{};
  Json metrics = Json::object();  // of validation and training at saving: {"val_loss": 0.1}
};
// Loads the model at model_in_use(path), and again if a run that trains has meanwhile removed that checkpoint. Throws as
// load_checkpoint, and CheckpointError for a file that `halfstep export` did not write.
StoredModel load_model(const std::filesystem::path& path);

// The content of a file that `halfstep export` writes, without its golden samples.
struct ModelFile {
  SavedState weights;
  Json config, data, metrics;
  int64_t step = 0;
  bool averaged = false;
};
// Returns the SHA-256 of all values whose keys begin with "halfstep.", except its own.
std::string metadata_digest(const std::map<std::string, std::string>& metadata);
// Returns the metadata of the file.
std::map<std::string, std::string> metadata_of(const ModelFile& model, const Proof& proof);

}  // namespace halfstep::app
