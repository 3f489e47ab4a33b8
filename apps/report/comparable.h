// SPDX-License-Identifier: Apache-2.0
// Finds out why values of runs cannot be compared.
#pragma once

#include <string>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// Returns a line for each file of data whose content differs between runs that name it, by run.json.
std::vector<std::string> changed_files(const std::vector<RecordedRun>& runs);

// Returns the keys, "loss.type, data.train.standardize_target", by which the runs' losses are not on one scale, or were measured on
// other samples; "" if there are none.
std::string keys_of_other_scale(const std::vector<RecordedRun>& runs);
std::string keys_of_other_samples(const std::vector<RecordedRun>& runs);

// Returns all this as lines about runs.
std::vector<std::string> comparison_warnings(const std::vector<RecordedRun>& runs);

}  // namespace halfstep::app
