// SPDX-License-Identifier: Apache-2.0
// Keys that stand once in "data" for all its splits.
#include <algorithm>
#include <utility>

#include "apps/catalog/datasets.h"
#include "apps/config/merge.h"

namespace halfstep::app {
namespace {

// Returns whether a data set of this type has the key. An unknown type has only "type", and is reported later.
bool is_key_of_data_set(const Tree& type, const std::string& key) {
  const Component* const found = type.is_string() ? dataset_family().find(type.get<std::string>()) : nullptr;
  const auto among = [&](const std::vector<Field>& fields) {
    return std::any_of(fields.begin(), fields.end(), [&](const Field& f) { return f.key == key; });
  };
  return key == "type" || (found && (among(found->fields) || among(dataset_family().common)));
}

void copy_origins(Origins& origins, const std::string& from, const std::string& to) {
  std::vector<std::pair<std::string, SourceLocation>> found;
  for (auto it = origins.lower_bound(from); it != origins.end() && it->first.starts_with(from); ++it) {
    if (it->first.size() == from.size() || it->first[from.size()] == '.')
      found.emplace_back(to + it->first.substr(from.size()), it->second);
  }
  for (auto& [path, origin] : found) origins[path] = std::move(origin);
}

}  // namespace

void share_data_keys(ParsedJson& config) {
  if (!config.json.is_object() || !config.json.contains("data") || !config.json["data"].is_object()) return;
  Tree& data = config.json["data"];
  Tree shared = Tree::object();
  for (const auto& [key, value] : data.items()) {
    const bool belongs_to_data = key == "root" || key == "train" || key == "val" || key == "test" || key == "loader";
    if (!belongs_to_data) shared[key] = value;
  }
  for (const char* name : {"train", "val", "test"}) {
    if (shared.empty() || !data.contains(name) || !(data[name].is_object() || data[name].is_string())) continue;
    Tree split = data[name].is_string() ? Tree{{"type", data[name]}} : data[name];
    const Tree common = shared.value("type", Tree()), type = split.value("type", common);
    for (const auto& [key, value] : shared.items()) {
      // An unknown key goes to the first split, where the error can suggest keys of that data set.
      const bool unknown = common.is_string() && !is_key_of_data_set(common, key) && data.contains(key);
      if (!unknown && !is_key_of_data_set(type, key)) continue;
      data.erase(key);
      if (value.is_null() || (split.contains(key) && !split[key].is_null())) continue;
      split[key] = value;
      copy_origins(config.origins, join_path("data", key), join_path(join_path("data", name), key));
    }
    if (data[name].is_object() || split.size() > 1) data[name] = std::move(split);
  }
}

}  // namespace halfstep::app
