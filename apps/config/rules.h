// SPDX-License-Identifier: Apache-2.0
// What must hold between keys of a config.
#pragma once

#include <optional>

#include "apps/catalog/modules.h"
#include "apps/config/sections.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep::app {

// `config`: checked against the schema; errors already in `issues` silence the rules that depend on them. Fills in what
// depends on other keys (monitor, mode, in_features...) and returns facts and layers where they can be known.
struct RuleResult {
  MixedPrecision precision;  // of "device" and "amp" without errors
  std::optional<DataFacts> facts;
  std::vector<LayerRow> layers;
  std::string data_fault;  // why data that is there cannot be read
};
// known: of the training data, which is then not read.
RuleResult apply_rules(Json& config, Issues& issues, const DataForm* known = nullptr);

}  // namespace halfstep::app
