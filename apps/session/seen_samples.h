// SPDX-License-Identifier: Apache-2.0
// Whether data that a trained model is measured with has samples that its run was trained on.
#pragma once

#include <string>
#include <vector>

#include "apps/catalog/datasets.h"
#include "apps/schema/json.h"

namespace halfstep::app {

// Returns "data.val has samples that the run was trained on: its range shares the samples of [0, 0.5) with data.train of the run"
// if the split of this config has samples of data.train of the config that a run's checkpoint stored; "" if not. form: facts about
// the run's training data, so that it is not read; may be null.
std::string seen_samples(const Json& config, const std::string& split, const Json& stored, const DataForm* form);

// Returns the same for each held-out split of a run that continues with this config, except what the config alone shows.
// data_changed: data.train has other samples than those of the checkpoint.
std::vector<std::string> newly_seen_samples(const Json& config, const Json& stored, const DataForm* form, bool data_changed);

}  // namespace halfstep::app
