// SPDX-License-Identifier: Apache-2.0
// The JSON Schema of configs, for completion, hints and error marks in editors.
#pragma once

#include "apps/schema/json.h"

namespace halfstep::app {

// Returns a schema of draft 7 (https://json-schema.org/draft-07), which editors support best, made of the fields that check
// configs. It accepts every config that the program accepts; a config with "extends" may omit what its base has. It does not check
// what depends on several keys or on data; `halfstep validate` does.
Json config_schema();

}  // namespace halfstep::app
