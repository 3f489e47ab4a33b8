// SPDX-License-Identifier: Apache-2.0
// Rules between the keys of a config.
#pragma once

#include <optional>

#include "apps/catalog/modules.h"
#include "apps/config/sections.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep::app {

// The result of the rules. `config`: checked against the schema; errors already in `issues` silence rules that depend on them.
// Fills in values that depend on other keys (monitor, mode, in_features...) and returns facts and layers if they can be known.
struct RuleResult {
  MixedPrecision precision;  // of "device" and "amp", if they have no errors
  std::optional<DataFacts> facts;
  std::vector<LayerRow> layers;
  std::string data_fault;  // why existing data cannot be read
};
// Applies the rules. known: facts of the training data, which is then not read.
RuleResult apply_rules(Json& config, Issues& issues, const DataForm* known = nullptr);

}  // namespace halfstep::app
