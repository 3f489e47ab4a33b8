// SPDX-License-Identifier: Apache-2.0
// What a run was before it continued with another config or other data. Its checkpoints keep it, so that warnings that stay true
// are given again whenever the run continues or is evaluated.
#pragma once

#include <string>
#include <vector>

#include "apps/schema/json.h"
#include "framework/io/checkpoint/checkpoint.h"

namespace halfstep::app {

struct RunPast {
  Json trained_on = Json::array();  // former samples of data.train, see samples_of
  Json changes = Json::array();     // {"step": where the run continued, "change": "the loss is another one than before"}
  bool any() const { return !trained_on.empty() || !changes.empty(); }

  // Keeps former samples, unless they are those of now.
  void keep_samples(const Json& former, const Json& now);
  void keep_change(int64_t step, const std::string& change);
  // Returns "at step 8 the run continued with a change: the loss is another one than before" for each change.
  std::vector<std::string> lines() const;
};

// Returns what decides the samples of data.train in a resolved config: {"root", "train", "seed", "data_sha256"}. sha256: their
// fingerprint; may be empty.
Json samples_of(const Json& config, const std::string& sha256);
// Returns whether both are parts of one kind in files that may have changed.
bool are_same_parts(const Json& samples, const Json& others);

// Throws CheckpointError for a state that halfstep did not write.
RunPast stored_past(const CheckpointContents& contents);

}  // namespace halfstep::app
