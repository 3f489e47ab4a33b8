// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/modules.h"

#include <algorithm>

#include "apps/catalog/rows/layer_rows.h"
#include "apps/schema/pattern.h"
#include "apps/schema/suggest.h"

namespace halfstep::app {

Catalog<ModuleRow>& module_catalog() {
  static Catalog<ModuleRow>& catalog = *[] {
    std::vector<Field> common = initial_fields();
    common.insert(common.begin(), text("name", nullptr, "prefix in the state_dict; left out: the index"));
    auto* const made = new Catalog<ModuleRow>("layer", std::move(common));
    add_container_rows(*made);
    made->add(linear_row());
    add_activation_rows(*made);
    add_window_rows(*made);
    add_norm_rows(*made);
    add_dropout_rows(*made);
    add_embedding_rows(*made);
    add_recurrent_rows(*made);
    add_shape_rows(*made);
    add_attention_rows(*made);
    return made;
  }();
  return catalog;
}

std::shared_ptr<Module> build_model(const Json& model) {
  const std::shared_ptr<Module> made = module_catalog().row(model).make(model);
  initialise(*made, model);
  return made;
}

void recompute_activations(Module& model, const Json& patterns) {
  if (patterns == "auto") return;
  for (const Json& text : patterns.is_array() ? patterns : Json::array({patterns})) {
    const Pattern pattern(text.get<std::string>());
    bool found = false;
    for (const auto& [name, module] : model.named_modules()) {
      if (!pattern.found_in(name)) continue;
      module->recompute_in_backward(true);
      found = true;
    }
    check<ConfigError>(found, "train.checkpoint_activations", text.dump(), " is in no module's name",
                       Help{"halfstep train --dry-run lists the layers by their names"});
  }
}

namespace {

using ModuleDType = std::pair<std::string, DType>;

// Returns the entries whose patterns match most of `name`.
std::vector<const ModuleDType*> longest_matches(const std::string& name, const ModelPrecision& precision) {
  size_t longest = 0;
  std::vector<const ModuleDType*> out;
  for (const ModuleDType& entry : precision.modules) {
    const std::optional<size_t> length = Pattern(entry.first).match_length(name);
    if (!length || (!out.empty() && *length < longest)) continue;
    if (*length > longest) out.clear();
    longest = *length;
    out.push_back(&entry);
  }
  return out;
}

}  // namespace

std::optional<DType> dtype_for(const std::string& name, const ModelPrecision& precision) {
  const auto best = longest_matches(name, precision);
  return best.empty() ? std::nullopt : std::optional(best[0]->second);
}

void set_precisions(Module& model, const ModelPrecision& precision, const std::string& prefix) {
  if (precision.modules.empty()) return;
  for (const auto& [name, module] : model.named_modules(prefix))
    if (const auto dtype = dtype_for(name, precision)) module->set_precision(*dtype);
}

void check_precisions(Module& model, const ModelPrecision& precision) {
  std::vector<std::string> names;
  for (const auto& [name, module] : model.named_modules()) names.push_back(name);
  for (const auto& [text, dtype] : precision.modules) {
    const Pattern pattern(text);
    const bool found = std::any_of(names.begin(), names.end(), [&](const std::string& name) { return pattern.found_in(name); });
    check<ConfigError>(found, "amp.modules", Json(text).dump(), " is in no module's name", did_you_mean(text, names),
                       Help{"halfstep train --dry-run lists the layers by their names"});
  }
  for (const std::string& name : names) {
    for (const ModuleDType* other : longest_matches(name, precision)) {
      const ModuleDType& first = *longest_matches(name, precision)[0];
      check<ConfigError>(other->second == first.second, "amp.modules", Json(first.first).dump(), " and ", Json(other->first).dump(),
                         " match equally much of \"", name, "\" and set different dtypes",
                         Help{"of two patterns the one that matches more decides"});
    }
  }
}

}  // namespace halfstep::app
