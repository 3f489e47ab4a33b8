// SPDX-License-Identifier: Apache-2.0
// First values: `init`, `tie`, `freeze` and `freeze_statistics` of a layer's config.
#include <algorithm>

#include "apps/catalog/infer.h"
#include "apps/catalog/modules.h"
#include "apps/catalog/weights.h"
#include "apps/schema/pattern.h"
#include "layers/feedforward/linear.h"
#include "layers/feedforward/normalization.h"
#include "layers/sequences/embedding.h"

namespace halfstep::app {
namespace {

constexpr int kMaxInitRules = 100;  // in one list

Pattern pattern_of(const Json& rule) { return Pattern(rule["match"].get<std::string>()); }

// Fills each parameter by the first rule that matches its name.
void fill_parameters(Module& module, const Json& rules) {
  std::vector<Pattern> patterns;
  for (const Json& rule : rules) patterns.push_back(pattern_of(rule));
  std::vector<bool> used(patterns.size());
  for (const NamedTensor& p : module.named_parameters()) {
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (!patterns[i].found_in(p.name)) continue;
      used[i] = true;
      try {
        init_catalog().row(rules[i]).fill(rules[i], p.tensor);
      } catch (const Error& e) {
        fail<ConfigError>("init", rules[i]["type"].get<std::string>(), " does not fit ", p.name, ": ", one_line(e));
      }
      break;
    }
  }
  for (size_t i = 0; i < used.size(); ++i)
    check<ConfigError>(used[i], "init", "match ", rules[i]["match"].dump(),
                       " must be found in the name of a parameter that no entry before it takes, but is in none");
}

void freeze_parameters(const Module& module, const Json& patterns) {
  for (const Json& text : patterns) {
    const Pattern pattern(text.get<std::string>());
    bool found = false;
    for (const NamedTensor& p : module.named_parameters()) {
      if (!pattern.found_in(p.name)) continue;
      found = true;
      p.tensor.set_requires_grad(false);
    }
    check<ConfigError>(found, "freeze", text.dump(), " must be found in a parameter's name, but is in none");
  }
}

void freeze_norms(Module& module, const Json& patterns) {
  if (patterns == false) return;
  if (patterns == true) {
    check<ConfigError>(freeze_statistics(module) > 0, "freeze_statistics",
                       "there must be a norm with running statistics, but is none");
    return;
  }
  for (const Json& text : patterns) {
    const Pattern pattern(text.get<std::string>());
    bool found = false;
    for (const auto& [name, below] : module.named_modules()) {
      auto* const norm = dynamic_cast<RunningNorm*>(below);
      if (!norm || !norm->running_mean.defined() || !pattern.found_in(name)) continue;
      found = true;
      norm->freeze_statistics();
    }
    check<ConfigError>(found, "freeze_statistics", text.dump(),
                       " must be found in the name of a norm with running statistics, but is in none");
  }
}

// Returns the weight of a layer that can share it.
Parameter* shareable_weight(Module& layer) {
  if (auto* const linear = dynamic_cast<Linear*>(&layer)) return &linear->weight;
  if (auto* const embedding = dynamic_cast<Embedding*>(&layer)) return &embedding->weight;
  return nullptr;
}

void tie_weights(Module& module, const Json& names) {
  const auto below = module.named_modules();
  Parameter* first = nullptr;
  for (const Json& text : names) {
    const std::string name = text;
    const auto at = std::find_if(below.begin(), below.end(), [&](const auto& layer) { return layer.first == name; });
    check<ConfigError>(at != below.end(), "tie", text.dump(), " must be the name of a layer in this one, but is of none");
    Parameter* const weight = shareable_weight(*at->second);
    check<ConfigError>(weight, "tie", text.dump(), " must be an Embedding or a Linear, got ", at->second->describe());
    if (!first) {
      first = weight;
      continue;
    }
    check<ConfigError>(weight->shape() == first->shape(), "tie", text.dump(), " must have a weight of shape ", first->shape(),
                       ", as ", names[0].dump(), ", got ", weight->shape());
    *weight = *first;
  }
}

}  // namespace

Catalog<InitRow>& init_catalog() {
  static Catalog<InitRow>& catalog = *[] {
    auto* const made =
        new Catalog<InitRow>("initialiser", {pattern("match", "", "pattern to find in a parameter's name; \"\": all")});
    add_init_rows(*made);
    return made;
  }();
  return catalog;
}

std::vector<Field> initial_fields() {
  return {
      list("init", nullptr, component("", init_catalog().family(), "an initialiser"),
           "first values; a parameter takes the first entry that matches")
          .items(1, kMaxInitRules)
          .or_one(),
      list("tie", nullptr, text("", nullptr, "a layer's name"), "Embedding and Linear layers that share one weight")
          .items(2, kMaxInitRules),
      weights_field(),
      list("freeze", nullptr, pattern("", nullptr, "found in a parameter's name"), "parameters that are not trained; true: all")
          .items(1, kMaxInitRules)
          .or_boolean(),
      list("freeze_statistics", nullptr, pattern("", nullptr, "found in a norm's name"),
           "batch and instance norms that also while training normalise by their running statistics, which stay as they are; true: "
           "all")
          .items(1, kMaxInitRules)
          .or_boolean()};
}

void initialise(Module& module, const Json& self) {
  const auto given = [&](const char* key) { return self.contains(key) && !self[key].is_null(); };
  const bool own_meaning = module_catalog().has_own_field(self, "init");
  if (given("init") && !own_meaning) fill_parameters(module, self["init"].is_array() ? self["init"] : Json::array({self["init"]}));
  if (given("tie")) tie_weights(module, self["tie"]);
  if (given("freeze_statistics")) freeze_norms(module, self["freeze_statistics"]);
  if (!given("freeze")) return;
  if (!self["freeze"].is_boolean()) return freeze_parameters(module, self["freeze"]);
  if (self["freeze"] == true) module.requires_grad_(false);
}

}  // namespace halfstep::app
