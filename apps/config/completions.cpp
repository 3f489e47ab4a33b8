// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "apps/config/explain.h"
#include "apps/config/key_index.h"
#include "apps/schema/suggest.h"

namespace halfstep::app {

std::string setting_named(std::string word) {
  std::replace(word.begin(), word.end(), '-', '_');
  const auto key_of = [](const KeyPlace& p) { return p.path.substr(p.path.rfind('.') + 1); };
  const KeyIndex index;
  std::vector<std::string> keys;
  for (const KeyPlace& p : index.places())
    if (p.family != &module_family()) keys.push_back(key_of(p));
  const std::string near = suggest(word, keys);
  // Prefer the key with the shortest path, and then one that every config has.
  const auto rank = [](const KeyPlace& p) { return 2 * std::count(p.path.begin(), p.path.end(), '.') + (p.family ? 1 : 0); };
  const KeyPlace* found = nullptr;
  for (const KeyPlace& p : index.places()) {
    if (p.family == &module_family() || key_of(p) != near) continue;
    if (!found || rank(p) < rank(*found)) found = &p;
  }
  return found ? found->path : "";
}

std::vector<std::string> setting_paths() {
  const KeyIndex index;
  std::vector<std::string> out;
  for (const KeyPlace& p : index.places())
    if (p.family != &module_family() && p.family != &dataset_family() && !section_of(*p.field)) out.push_back(p.path);
  return out;
}

std::vector<std::string> type_names() {
  const KeyIndex index;
  std::vector<std::string> out;
  for (const auto& [path, family] : index.families())
    for (const Component& c : family->components) out.push_back(c.type);
  return out;
}

std::vector<std::string> words_of_setting(const std::string& path) {
  const KeyIndex index;
  for (const KeyPlace& p : index.places()) {
    if (p.path != path) continue;
    std::vector<std::string> out = p.field->words;
    if (p.field->kind == FieldKind::boolean || p.field->switchable) out.insert(out.end(), {"true", "false"});
    if (const Family* family = family_of(*p.field))
      for (const Component& c : family->components) out.push_back(c.type);
    return out;
  }
  return {};
}

}  // namespace halfstep::app
