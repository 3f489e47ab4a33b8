// SPDX-License-Identifier: Apache-2.0
// Finds the config's place of a layer that a diagnosis names as the model does: layer "2" of an MLP is model.hidden[1].
#pragma once

#include <string>

#include "apps/config/config.h"

namespace halfstep::app {

// Returns "model.hidden[1], Linear(in_features=24, ...)" for a layer, or a tensor of one: "fc1", "2.weight"; empty: no layer has
// this name.
std::string place_in_config(const Config& config, const std::string& where);

}  // namespace halfstep::app
