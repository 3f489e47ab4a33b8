// SPDX-License-Identifier: Apache-2.0
// A capsule: one file from which a step that went wrong can be computed again in another process, without the run and its data.
//
//   runs/mine/capsules/step-1234.safetensors
//     input.0, target.0, ...        the step's micro-batches
//     model.*, kept.*, optimizer.*  the state before the step: weights and buffers, what stateful layers kept, the optimizer's
//
// Its metadata has, as JSON: halfstep.config, the run's; halfstep.data, what the model takes; halfstep.state, the scaler and the
// schedule; halfstep.step, all else that is known of the step, with its verdict. halfstep.tensors is the SHA-256 of the tensors,
// halfstep.sha256 that of these values. Where the state is larger than diagnostics.capsule_mb, halfstep.step names a checkpoint
// in its place.
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

// What a capsule says of a step besides what computes it again.
struct CapsuleStep {
  int64_t number = 0, epoch = 0;
  std::string what;  // "the loss is not finite"
  StepHistory history;
  int rank = 0, ranks = 1;  // whose rows
};

// Call it while the model is as before the step. Writes <output_dir>/capsules/step-N.safetensors, whole or not at all, and returns
// its path; nothing if the run's folder has diagnostics.capsules of them already. Throws IoError.
std::optional<std::filesystem::path> write_capsule(const Config& config, Session& session, const StepUnderTest& step,
                                                   const CapsuleStep& about, const Diagnosis& verdict);

struct Capsule {
  struct Batch {
    Tensor input, target;
    double weight = 1;
    std::vector<int64_t> samples = {};
    std::optional<BatchRows> rows = {};
  };
  Json config, data, verdict;
  CapsuleStep about;
  CheckpointContents state;  // without tensors where a checkpoint holds them
  std::vector<Batch> batches;
  double scale = 1;
  bool low_gradients = false;
  Generator::State random = {};
  int64_t threads = 1;                        // that the run computed with
  std::string written_by;                     // the version of halfstep
  std::string checkpoint, checkpoint_sha256;  // of its manifest.json; empty where the capsule has the state
};
// Throws CheckpointError for a file that is damaged, or that write_capsule did not write.
Capsule read_capsule(const std::filesystem::path& path);

// The verdict on the capsule's step, computed here. `changes`: of its config. Throws CheckpointError where the weights do not fit
// the model, and DeviceError for an absent device.
Diagnosis diagnosis_of(const Capsule& capsule, const std::string& name, const ConfigOptions& changes = {});

// The checkpoint that holds the state of a capsule without one: where it was written, or in the run's folder that the capsule is
// in. Throws CheckpointError if it is gone or another one.
std::filesystem::path checkpoint_of(const Capsule& capsule, const std::filesystem::path& path);

// {"cause": "log_domain", "where": ..., "what": ..., "evidence": ..., "remedies": [...]}
Json verdict_json(const Diagnosis& verdict);

}  // namespace halfstep::app
