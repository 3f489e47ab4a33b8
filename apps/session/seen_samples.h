// SPDX-License-Identifier: Apache-2.0
// Whether data that a trained model is measured with has samples that its run was trained on.
#pragma once

#include <string>
#include <vector>

#include "apps/catalog/datasets.h"
#include "apps/schema/json.h"
#include "apps/session/run_past.h"

namespace halfstep::app {

// What a run was trained on, as its checkpoint has it.
struct TrainedRun {
  Json config;
  RunPast past{};
  std::string data_sha256{};  // fingerprint of its data.train; empty: unknown
  // Facts about the training data, so that it is not read; may be null.
  const DataForm* form = nullptr;
};
TrainedRun trained_run(const CheckpointContents& contents, const DataForm* form);

// Returns "data.val has samples that the run was trained on: its range shares the samples of [0, 0.5) with data.train of the run"
// if the split of this config has samples of data.train of the run, now or before it was resumed; "" if not. sha256: the split's
// fingerprint; may be empty.
std::string seen_samples(const Json& config, const std::string& split, const TrainedRun& run, const std::string& sha256);

// Returns the same for each held-out split of a run that continues with this config, except what the config alone shows.
// val_sha256, data_sha256: fingerprints of data.val and data.train now. data_changed: data.train has other samples than those of
// the checkpoint.
std::vector<std::string> newly_seen_samples(const Json& config, const TrainedRun& run, const std::string& val_sha256,
                                            const std::string& data_sha256, bool data_changed);

// Returns the same for a data.val that has all samples of data.train, from files that the config does not show to be the same.
std::string samples_of_training(const Json& config, const std::string& val_sha256, const std::string& data_sha256);

}  // namespace halfstep::app
