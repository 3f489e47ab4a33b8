// SPDX-License-Identifier: Apache-2.0
// Notes the content of the files that a run reads its data from, so that later runs can be compared with it.
#pragma once

#include "apps/schema/json.h"

namespace halfstep::app {

// Returns {path: fingerprint} (framework/data/loading/fingerprint.h) for each file and folder that data.train, val and test name.
// Files that cannot be read are left out.
Json data_files_sha256(const Json& config);

}  // namespace halfstep::app
