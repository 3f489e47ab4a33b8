// SPDX-License-Identifier: Apache-2.0
// A trained model that a path names. Besides the checkpoints of runs that is a single file, which `halfstep export` writes:
// safetensors with the weights, and in its metadata, as strings, all else that using the model needs:
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

// Of a run's folder the best checkpoint, or the latest where no best one is marked; of a folder that `halfstep export --to dir`
// wrote its file; RUN/latest, RUN/best, a checkpoint and a file themselves. Throws as resolve_checkpoint.
std::filesystem::path model_in_use(const std::filesystem::path& path);

struct StoredModel {
  CheckpointContents contents;  // of a file: the model, the config, the step and data.json
  bool averaged = false;        // the file's weights are averaged ones
  std::optional<Proof> proof{};
  Json metrics = Json::object();  // of validation and training when it was saved: {"val_loss": 0.1}
};
// path: of model_in_use. Throws as load_checkpoint, and CheckpointError for a file that `halfstep export` did not write.
StoredModel load_model(const std::filesystem::path& path);

struct ModelFile {
  SavedState weights;
  Json config, data, metrics;
  int64_t step = 0;
  bool averaged = false;
};
// SHA-256 of all values whose keys begin with "halfstep.", but its own.
std::string metadata_digest(const std::map<std::string, std::string>& metadata);
std::map<std::string, std::string> metadata_of(const ModelFile& model, const Proof& proof);

}  // namespace halfstep::app
