// SPDX-License-Identifier: Apache-2.0
// Helpers of the rules of apps/config/rules.h, one file for each subject.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include "apps/catalog/facts.h"
#include "apps/config/sections.h"
#include "apps/schema/issues.h"
#include "apps/schema/json.h"

namespace halfstep::app {

class RuleSet {
 public:
  RuleSet(Json& config, Issues& issues) : c_(config), issues_(issues) {}

 protected:
  // Returns whether these parts of the config have no errors.
  bool clean(std::initializer_list<const char*> paths) const {
    return std::none_of(paths.begin(), paths.end(), [&](const char* path) { return issues_.touches(path); });
  }

  Json& c_;
  Issues& issues_;
};

// Checks the section "data", by itself and with the facts of the training data.
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

}  // namespace halfstep::app
