// SPDX-License-Identifier: Apache-2.0
// The state of a random generator in a state.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "framework/base/generator.h"
#include "framework/io/checkpoint/stored_json.h"

namespace halfstep {

// Philox: {"seed", "offset"}. mt19937: also "kind", and "state", which holds its whole state as text.
nlohmann::json generator_json(const Generator::State& state);
Generator::State generator_state(const StoredJson& stored);

}  // namespace halfstep
