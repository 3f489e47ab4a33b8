// SPDX-License-Identifier: Apache-2.0
// The JSON Schema of configs, for editors: completion, hints and red lines while a config is written.
#pragma once

#include "apps/schema/json.h"

namespace halfstep::app {

// Draft 7 (https://json-schema.org/draft-07), which editors support best, from the fields that check configs. It accepts every
// config that the program accepts, and a config with "extends" may leave out what its base has. It does not see what depends on
// several keys or on data; `halfstep validate` does.
Json config_schema();

}  // namespace halfstep::app
