// SPDX-License-Identifier: Apache-2.0
#include "apps/config/config_path.h"

#include <algorithm>

#include "apps/catalog/infer.h"
#include "apps/catalog/modules.h"

namespace halfstep::app {
namespace {

// Returns the part of the config at "model.layers.2".
const Json* part_at(const Json& config, const std::string& path) {
  std::string pointer = "/" + path;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  const Json::json_pointer at(pointer);
  return config.contains(at) ? &config[at] : nullptr;
}

// Returns the key of an MLP's layer, which it does not spell out: the n-th Linear is hidden[n]'s.
std::string key_in_mlp(const std::vector<LayerRow>& rows, const LayerRow& row, const Json& mlp) {
  size_t linear = 0;
  for (const LayerRow& r : rows) {
    if (r.path != row.path || !r.what.starts_with("Linear")) continue;
    if (&r > &row) break;
    ++linear;
  }
  return linear > mlp["hidden"].size() ? ".out_features" : joined(".hidden[", std::max<size_t>(linear, 1) - 1, "]");
}

}  // namespace

std::string place_in_config(const Config& config, const std::string& where) {
  if (where.empty() || !config.facts) return "";
  Issues none;
  const InferredModel model = infer_model(config.model, *config.facts, config, "model", none);
  for (std::string name = where;; name.resize(name.rfind('.'))) {
    const auto row = std::find_if(model.layers.begin(), model.layers.end(), [&](const LayerRow& r) { return r.name == name; });
    if (row != model.layers.end()) {
      const Json* const part = part_at(config.json, row->path);
      const bool in_mlp = part && part->is_object() && part->value("type", "") == "MLP";
      return joined(row->path, in_mlp ? key_in_mlp(model.layers, *row, *part) : "", ", ", row->what);
    }
    if (name.find('.') == std::string::npos) return "";
  }
}

}  // namespace halfstep::app
