// SPDX-License-Identifier: Apache-2.0
#include "apps/config/json_schema.h"
#include "tests/support/source_dir.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>

using namespace halfstep::app;

namespace {

// As much of a validator of draft 7 as the schema uses. tests/apps/config/schema_check.py asks an independent one.
class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  bool accepts(const Json& v, const Json& s) const {
    if (s.is_boolean()) return s.get<bool>();
    if (s.contains("$ref")) return accepts(v, root_["definitions"][s["$ref"].get<std::string>().substr(14)]);
    for (const auto& [key, rule] : s.items())
      if (!holds(v, s, key, rule)) return false;
    return true;
  }

 private:
  bool holds(const Json& v, const Json& s, const std::string& key, const Json& rule) const {
    const auto all = [](const Json& list, const auto& f) { return std::all_of(list.begin(), list.end(), f); };
    const auto any = [](const Json& list, const auto& f) { return std::any_of(list.begin(), list.end(), f); };
    const auto accepted = [&](const Json& inner) { return accepts(v, inner); };
    if (key == "type") return rule.is_string() ? is(v, rule) : any(rule, [&](const Json& type) { return is(v, type); });
    if (key == "enum") return any(rule, [&](const Json& word) { return word == v; });
    if (key == "const") return v == rule;
    if (key == "allOf") return all(rule, accepted);
    if (key == "anyOf") return any(rule, accepted);
    if (key == "not") return !accepts(v, rule);
    if (key == "if") {
      const char* branch = accepts(v, rule) ? "then" : "else";
      return !s.contains(branch) || accepts(v, s[branch]);
    }
    if (v.is_number()) {
      const double x = v.get<double>();
      if (key == "minimum") return x >= rule.get<double>();
      if (key == "maximum") return x <= rule.get<double>();
      if (key == "exclusiveMinimum") return x > rule.get<double>();
      if (key == "exclusiveMaximum") return x < rule.get<double>();
    }
    if (key == "pattern" && v.is_string()) return std::regex_search(v.get<std::string>(), std::regex(rule.get<std::string>()));
    if (v.is_array()) {
      if (key == "items") return all(v, [&](const Json& item) { return accepts(item, rule); });
      if (key == "minItems") return v.size() >= rule.get<size_t>();
      if (key == "maxItems") return v.size() <= rule.get<size_t>();
    }
    if (!v.is_object()) return true;
    if (key == "required") return all(rule, [&](const Json& name) { return v.contains(name.get<std::string>()); });
    if (key == "maxProperties") return v.size() <= rule.get<size_t>();
    if (key != "properties" && key != "additionalProperties") return true;
    for (const auto& [name, value] : v.items()) {
      const bool known = s.contains("properties") && s["properties"].contains(name);
      if (key == "properties" && known && !accepts(value, rule[name])) return false;
      if (key == "additionalProperties" && !known && !accepts(value, rule)) return false;
    }
    return true;
  }
  static bool is(const Json& v, const Json& type) {
    if (type == "integer") return v.is_number() && v.get<double>() == std::floor(v.get<double>());
    if (type == "number") return v.is_number();
    return type == v.type_name();
  }
  const Json& root_;
};

}  // namespace

TEST_CASE("the JSON Schema accepts the shipped configs and finds mistakes") {
  const Json schema = config_schema();
  const Validator validator(schema);
  int configs = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(halfstep_source_dir() + "/configs")) {
    if (entry.path().extension() != ".json") continue;
    CAPTURE(entry.path());
    std::ifstream file(entry.path());
    CHECK(validator.accepts(Json::parse(file, nullptr, true, true), schema));  // with comments
    ++configs;
  }
  CHECK(configs > 15);

  const Json good = Json::parse(R"({"model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": 10}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1}, "data": {"train": "Digits"}, "train": {"epochs": 1}})");
  CHECK(validator.accepts(good, schema));
  for (const char* patch :
       {R"({"modle": {}})", R"({"model": null})", R"({"model": {"layers": ["Linear"]}})", R"({"model": {"layers": [null]}})",
        R"({"model": {"layers": [{"type": "Linear", "out_features": 10, "bais": true}]}})", R"({"loss": "CrossEntropy"})",
        R"({"optimizer": {"lr": "0.1"}})", R"({"optimizer": {"lr": -1}})", R"({"optimizer": {"type": null}})",
        R"({"train": {"epochs": 1.5}})", R"({"train": {"eval_every": "5 parsecs"}})", R"({"amp": {"dtype": "f16"}})",
        R"({"data": {"train": null}})", R"({"checkpoint": 3})"}) {
    CAPTURE(patch);
    Json bad = good;
    bad.merge_patch(Json::parse(patch));
    CHECK_FALSE(validator.accepts(bad, schema));
  }
  // What a base has need not be repeated; what splits share is beside them.
  CHECK(validator.accepts(Json{{"extends", "base.json"}, {"optimizer", {{"lr", 0.5}}}}, schema));
  Json shared = good;
  shared["data"] = Json::parse(R"({"type": "CSV", "target": "y", "train": {"path": "a.csv"}, "val": {"path": "b.csv"}})");
  CHECK(validator.accepts(shared, schema));
}
