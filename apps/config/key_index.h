// SPDX-License-Identifier: Apache-2.0
// Finds all keys of a config, those of components included.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/config/sections.h"

namespace halfstep::app {

// A place of a key, with the types that have it if it is a component's.
struct KeyPlace {
  std::string path;
  const Field* field = nullptr;
  std::vector<std::string> types;
  const Family* family = nullptr;  // of the types
};

// Return the family or the section that a key takes, also as the items of a list; null: none.
inline const Family* family_of(const Field& f) { return f.family ? f.family : f.item ? family_of(*f.item) : nullptr; }
inline const Section* section_of(const Field& f) { return f.section ? f.section : f.item ? section_of(*f.item) : nullptr; }

// All keys of a config: each path once, or once for each text if types explain it differently; the keys of a family below the first
// key that takes it.
class KeyIndex {
 public:
  KeyIndex() { add_section("", root_schema().fields); }
  const std::vector<KeyPlace>& places() const& { return places_; }
  const std::vector<std::pair<std::string, const Family*>>& families() const& { return families_; }
  void places() && = delete;  // for (... : KeyIndex().places()) would dangle
  void families() && = delete;

 private:
  void add_section(const std::string& path, const std::vector<Field>& fields);
  void add(const std::string& path, const Field& f, const std::string& type, const Family* family);
  void add_family(const std::string& path, const Family& f);

  std::vector<KeyPlace> places_;
  std::vector<std::pair<std::string, const Family*>> families_;
};

}  // namespace halfstep::app
