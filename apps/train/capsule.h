// SPDX-License-Identifier: Apache-2.0
// A capsule: a file from which another process can compute a faulty step again, without the run and its data.
//
//   runs/mine/capsules/step-1234.safetensors
//     input.0, target.0, ...        the step's micro-batches
//     model.*, kept.*, optimizer.*  the state before the step: weights and buffers, states of stateful layers, the optimizer's
//
// Its metadata has, as JSON: halfstep.config, the run's; halfstep.data, the model's input; halfstep.state, the scaler and the
// schedule; halfstep.step, all other facts about the step, with its verdict. halfstep.tensors is the SHA-256 of the tensors,
// halfstep.sha256 that of these values. If ranks share the optimizer's state, or if batches and state are larger than
// diagnostics.capsule_mb, the file has no state and halfstep.step names a checkpoint instead.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "amp/diagnosis/diagnose.h"
#include "apps/config/config.h"
#include "apps/session/session.h"

namespace halfstep::app {

// Facts about a capsule's step that are not needed to compute it.
struct CapsuleStep {
  int64_t number = 0, epoch = 0;
  std::string what;  // its fault: "the loss is not finite"
  StepHistory history;
  int rank = 0, ranks = 1;  // the rank whose rows it has
};

// Writes <output_dir>/capsules/step-N.safetensors, completely or not at all, and returns its path; nothing if the run's folder
// already has diagnostics.capsules of them, and none of this step. Call it while the model is in its state from before the step.
// Throws IoError.
std::optional<std::filesystem::path> write_capsule(const Config& config, Session& session, const StepUnderTest& step,
                                                   const CapsuleStep& about, const Diagnosis& verdict);

// The content of a capsule.
struct Capsule {
  struct StoredBatch {
    Tensor input, target;
    double weight = 1;
    std::vector<int64_t> samples = {};
    std::optional<BatchRows> rows = {};
  };
  Json config, data, verdict;
  CapsuleStep about;
  CheckpointContents state;  // without tensors if a checkpoint holds them
  std::vector<StoredBatch> batches;
  double scale = 1;              // the loss scale
  bool low_gradients = false;    // gradients stay in 16 bits (LowGradients)
  Generator::State random = {};  // before the step
  int64_t threads = 1;                        // of the process that wrote it
  std::string written_by;                     // the version of halfstep
  std::string checkpoint, checkpoint_sha256;  // of its manifest.json; empty if the capsule has the state
};
// Throws CheckpointError for a file that is damaged, or that write_capsule did not write.
Capsule read_capsule(const std::filesystem::path& path);

// Computes the capsule's step and returns its diagnosis. `name` names the capsule in messages; `changes` change its config. Throws
// CheckpointError if the weights do not fit the model, and DeviceError for an absent device.
Diagnosis diagnosis_of(const Capsule& capsule, const std::string& name, const ConfigOptions& changes = {});

// Returns the checkpoint with the state of a capsule without one: at its former path, or in the run's folder around the capsule.
// Throws CheckpointError if it is missing or another one.
std::filesystem::path checkpoint_of(const Capsule& capsule, const std::filesystem::path& path);

// Returns {"cause": "log_domain", "where": ..., "place": ..., "what": ..., "evidence": ..., "remedies": [...]}.
Json verdict_json(const Diagnosis& verdict);

}  // namespace halfstep::app
