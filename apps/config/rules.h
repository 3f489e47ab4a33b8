// SPDX-License-Identifier: Apache-2.0
// Rules between the keys of a config, one .cpp for each subject.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "apps/catalog/facts.h"
#include "apps/catalog/modules.h"
#include "apps/config/sections.h"
#include "apps/schema/issues.h"
#include "apps/schema/json.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep::app {

class RuleSet {
 public:
  RuleSet(Json& config, Issues& issues) : config_(config), issues_(issues) {}

 protected:
  // Returns whether these parts of the config have no errors.
  bool are_valid(std::initializer_list<const char*> paths) const {
    return std::none_of(paths.begin(), paths.end(), [&](const char* path) { return issues_.touches(path); });
  }

  Json& config_;
  Issues& issues_;
};

// Check the section "data": by itself, which also fills in data.loader.shuffle, and with the facts of the training data.
void data_rules(Json& config, Issues& issues);
void data_rules(Json& config, const DataFacts& facts, Issues& issues);

// Checks optimizer, schedule and steps with an inferred model.
void training_rules(Json& config, const DataFacts& facts, const MixedPrecision& precision, Issues& issues);
// Checks the rules of these that need neither data nor model.
void training_rules_before_data(Json& config, const MixedPrecision& precision, Issues& issues);

// Returns whether the run never computes this value, which checkpoint.monitor or the like may name.
inline bool never_evaluated(const Json& config, const std::string& value) {
  return value.starts_with("val/") && config["train"]["eval_every"] == "never";
}

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
