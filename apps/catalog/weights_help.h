// SPDX-License-Identifier: Apache-2.0
// Advice for a file of weights that does not fit a model: the config line that would make it fit.
#pragma once

#include <string>

#include "apps/schema/json.h"
#include "framework/io/weights/weight_file.h"
#include "layers/module/module.h"

namespace halfstep::app {

// Returns advice, or empty. `state`: the file's tensors under the names that `weights` gives them.
std::string weights_help(Module& module, const WeightFile& file, const Json& weights, const StateDict& state);

}  // namespace halfstep::app
