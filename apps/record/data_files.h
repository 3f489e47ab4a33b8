// SPDX-License-Identifier: Apache-2.0
// Notes the content of the files that a run reads its data from, so that later runs can be compared with it.
#pragma once

#include "apps/schema/json.h"

namespace halfstep::app {

// Returns {path: SHA-256} for each file and folder that data.train, val and test name: of a file's size and of up to 8 MiB spread
// over it, of a folder's pictures by their names and sizes. Files that cannot be read are left out.
Json data_files_sha256(const Json& config);

}  // namespace halfstep::app
