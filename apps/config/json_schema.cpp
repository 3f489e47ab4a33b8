// SPDX-License-Identifier: Apache-2.0
#include "apps/config/json_schema.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "apps/config/sections.h"

namespace halfstep::app {
namespace {

// Writes lists of types and if/then instead of anyOf where possible, since editors explain those better.
class SchemaWriter {
 public:
  Json document(const Section& root) {
    Json properties = properties_of({&root.fields});
    // "data" itself may have the keys that splits share (share_data_keys in merge.h).
    Json& data = properties["data"]["properties"];
    data["type"] = {{"type", "string"}, {"description", "the type of each split that gives none"}};
    for (const Component& c : dataset_family().components) {
      for (const Field& f : c.fields)
        if (!data.contains(f.key)) data[f.key] = {{"description", f.doc + "; for each split whose type has this key"}};
    }
    Json out{{"$schema", "http://json-schema.org/draft-07/schema#"},
             {"title", "halfstep config, version 1"},
             {"type", "object"},
             {"properties", std::move(properties)},
             {"additionalProperties", false},
             {"if", {{"required", {"extends"}}}},
             {"then", true},
             {"else", needs_of({&root.fields})}};
    out["definitions"] = std::move(definitions_);
    return out;
  }

 private:
  using Groups = std::vector<const std::vector<Field>*>;  // a type's own fields come before the common ones

  // Returns the schema of a value.
  Json value_of(const Field& f) {
    Json out = Json::object();
    if (!f.doc.empty()) out["description"] = f.doc;
    switch (f.kind) {  // compilers differ in whether one value in braces is a list
      case FieldKind::boolean: out["type"] = Json::array({"boolean"}); break;
      case FieldKind::integer: write_bounds(out, "integer", f); break;
      case FieldKind::number: write_bounds(out, "number", f); break;
      case FieldKind::text:
        out["type"] = Json::array({"string"});
        if (f.also_integer) out["type"].push_back("integer");
        break;
      case FieldKind::interval:
        out["type"] = {"number", "string"};
        out["exclusiveMinimum"] = 0;
        out["pattern"] = "^(never|[0-9.e+]* *(steps?|epochs?|s|sec|seconds?|min|minutes?|h|hours?))$";
        break;
      case FieldKind::byte_count:
        out["type"] = {"number", "string"};
        out["minimum"] = 1;
        out["pattern"] = "^[0-9.]+ *(B|bytes|[kMGT]B|[KMGT]iB)?$";
        break;
      case FieldKind::list: write_list(out, f); break;
      case FieldKind::map:
        out["type"] = Json::array({"object"});
        out["additionalProperties"] = value_of(*f.item);
        out["maxProperties"] = f.max_items;
        break;
      case FieldKind::section:
        out["type"] = Json::array({"object"});
        if (f.switchable) out["type"].push_back("boolean");
        if (!f.short_for.empty()) out["type"].push_back("string");
        out["properties"] = properties_of({&f.section->fields});
        out["additionalProperties"] = false;
        break;
      case FieldKind::component: out["allOf"] = Json::array({shape_of(*f.family)}); break;
      case FieldKind::not_yet:
        out["description"] = f.doc + " is not supported yet";
        out["enum"] = Json::array({f.fallback});
        break;
    }
    if (!f.words.empty() && f.kind != FieldKind::list) {
      if (out.contains("type") && out["type"] == Json::array({"string"})) {
        out["enum"] = f.words;
      } else {
        if (out.contains("type") && !contains(out["type"], "string")) out["type"].push_back("string");
        out["if"] = {{"type", "string"}};
        out["then"] = {{"enum", f.words}};
      }
    }
    return out;
  }

  // Returns the schema of a key; null in a config means that the key is omitted.
  Json property_of(const Field& f) {
    Json out = value_of(f);
    if (out.contains("type")) out["type"].push_back("null");
    if (out.contains("enum")) out["enum"].push_back(nullptr);
    if (f.kind == FieldKind::component) {
      out["if"] = {{"type", "null"}};
      out["else"] = {{"allOf", std::move(out["allOf"])}};
      out.erase("allOf");
    }
    if (!f.fallback.is_null()) out["default"] = f.fallback;
    return out;
  }

  Json properties_of(const Groups& groups) {
    Json out = Json::object();
    for (const auto* fields : groups)
      for (const Field& f : *fields)
        if (!out.contains(f.key)) out[f.key] = property_of(f);
    return out;
  }

  static bool contains(const Json& list, const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
  }

  static void write_bounds(Json& out, const char* type, const Field& f) {
    out["type"] = Json::array({type});
    if (std::isfinite(f.low)) out[f.low_open ? "exclusiveMinimum" : "minimum"] = f.low;
    if (std::isfinite(f.high)) out[f.high_open ? "exclusiveMaximum" : "maximum"] = f.high;
  }

  void write_list(Json& out, const Field& f) {
    Json item = value_of(*f.item);
    Json list{{"type", "array"}, {"items", item}, {"minItems", f.min_items}};
    if (f.null_items) list["items"] = {{"anyOf", {item, {{"type", "null"}}}}};
    if (f.max_items < kNoMaxItems) list["maxItems"] = f.max_items;
    Json others = Json::array({{{"type", "null"}}});
    if (f.or_single) others.push_back(item);
    if (f.also_boolean) others.push_back({{"type", "boolean"}});
    if (!f.words.empty()) others.push_back({{"enum", f.words}});
    if (f.item->kind == FieldKind::component) list["items"]["not"] = {{"type", "null"}};
    out["if"] = {{"type", "array"}};
    out["then"] = std::move(list);
    out["else"] = {{"anyOf", std::move(others)}};
  }

  // Returns the schema of a component: the name of its type, or an object, which may omit the type if a base or the other splits
  // have it.
  Json shape_of(const Family& family) {
    const std::string name = name_of(family);
    const Json reference{{"$ref", "#/definitions/" + name}};
    if (definitions_.contains(name)) return reference;
    definitions_[name] = nullptr;  // reserved: its parts may be of this family
    Json types = Json::array(), cases = Json::array(), common = Json::object();
    for (const Field& f : family.common) {  // once, not in each type
      definitions_[name + "_" + f.key] = property_of(f);
      common[f.key] = {{"$ref", "#/definitions/" + name + "_" + f.key}};
    }
    for (const Component& c : family.components) {
      types.push_back(c.type);
      Json properties = properties_of({&c.fields});
      for (const auto& [key, value] : common.items())
        if (!properties.contains(key)) properties[key] = value;
      properties["type"] = {{"description", c.doc}};
      cases.push_back({{"if", is_type(c)}, {"then", {{"properties", std::move(properties)}, {"additionalProperties", false}}}});
    }
    definitions_[name] = {{"type", {"string", "object"}},
                          {"if", {{"type", "string"}}},
                          {"then", {{"enum", types}}},
                          {"else", {{"properties", {{"type", {{"enum", types}}}}}, {"allOf", std::move(cases)}}}};
    return reference;
  }

  // Returns further requirements of a value that takes nothing from a base; null if there are none.
  Json needs_of(const Field& f) {
    if (f.kind == FieldKind::component) return needs_of(*f.family);
    if (f.kind == FieldKind::section) return needs_of(Groups{&f.section->fields});
    if (f.kind != FieldKind::list || !(f.item->family || f.item->section)) return nullptr;
    const Json item = needs_of(*f.item);
    if (item.is_null()) return nullptr;
    Json out{{"items", item}};  // applies to arrays only
    if (f.or_single) out["allOf"] = Json::array({item});
    return out;
  }
  Json needs_of(const Groups& groups) {
    Json out = Json::object();
    for (const auto* fields : groups) {
      for (const Field& f : *fields) {
        if (f.needed) out["required"].push_back(f.key);
        if (f.family == &dataset_family()) continue;  // "data" itself may have what a split needs
        if (const Json inner = needs_of(f); !inner.is_null()) out["properties"][f.key] = inner;
      }
    }
    return out.empty() ? Json() : out;
  }
  // Returns the requirements of a component; a type that needs no keys may be a name alone.
  Json needs_of(const Family& family) {
    const std::string name = "complete_" + name_of(family);
    const Json reference{{"$ref", "#/definitions/" + name}};
    if (definitions_.contains(name)) return reference;
    definitions_[name] = nullptr;
    Json without_keys = Json::array(), cases = Json::array();
    for (const Component& c : family.components) {
      const Json needs = needs_of(Groups{&c.fields, &family.common});
      if (needs.is_null() || !needs.contains("required")) without_keys.push_back(c.type);
      if (!needs.is_null()) cases.push_back({{"if", is_type(c)}, {"then", needs}});
    }
    Json object{{"required", {"type"}}};
    if (!cases.empty()) object["allOf"] = std::move(cases);
    definitions_[name] = {{"if", {{"type", "string"}}}, {"then", {{"enum", std::move(without_keys)}}}, {"else", std::move(object)}};
    return reference;
  }

  static Json is_type(const Component& c) {
    return {{"type", "object"}, {"required", {"type"}}, {"properties", {{"type", {{"const", c.type}}}}}};
  }
  static std::string name_of(const Family& f) {
    std::string name = f.what;
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
  }

  Json definitions_ = Json::object();
};

}  // namespace

Json config_schema() { return SchemaWriter().document(root_schema()); }

}  // namespace halfstep::app
