// SPDX-License-Identifier: Apache-2.0
#include "apps/config/key_index.h"

#include <algorithm>

namespace halfstep::app {
namespace {

bool same_text(const Field& a, const Field& b) { return a.expects() == b.expects() && a.doc == b.doc && a.fallback == b.fallback; }

}  // namespace

void KeyIndex::add_section(const std::string& path, const std::vector<Field>& fields) {
  for (const Field& f : fields)
    if (f.kind != FieldKind::not_yet) add(path.empty() ? f.key : path + "." + f.key, f, {}, nullptr);
}

void KeyIndex::add(const std::string& path, const Field& f, const std::string& type, const Family* family) {
  const auto known =
      std::find_if(places_.begin(), places_.end(), [&](const KeyPlace& p) { return p.path == path && same_text(*p.field, f); });
  if (known != places_.end()) {
    if (!type.empty()) known->types.push_back(type);
    return;
  }
  places_.push_back({path, &f, type.empty() ? std::vector<std::string>() : std::vector<std::string>{type}, family});
  if (const Section* inner = section_of(f)) add_section(path, inner->fields);
  if (const Family* inner = family_of(f)) add_family(path, *inner);
}

void KeyIndex::add_family(const std::string& path, const Family& f) {
  for (const auto& [known_path, known] : families_)
    if (known == &f) return;
  families_.emplace_back(path, &f);
  for (const Component& c : f.components)
    for (const Field& field : c.fields)
      if (field.kind != FieldKind::not_yet) add(path + "." + field.key, field, c.type, &f);
  for (const Field& field : f.common) add(path + "." + field.key, field, "every type", &f);
}

}  // namespace halfstep::app
