// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/json_value.h"

#include <nlohmann/json.hpp>

#include "framework/base/check.h"

namespace halfstep {

using nlohmann::json;

JsonValue::JsonValue() : JsonValue(json::object()) {}
JsonValue::JsonValue(const json& value) : value_(std::make_unique<json>(value)) {}
JsonValue::JsonValue(const JsonValue& other) : JsonValue(*other) {}
JsonValue::JsonValue(JsonValue&& other) noexcept = default;
JsonValue& JsonValue::operator=(JsonValue other) noexcept {
  value_.swap(other.value_);
  return *this;
}
JsonValue::~JsonValue() = default;

json& JsonValue::operator[](const std::string& key) { return (*value_)[key]; }
const json& JsonValue::operator[](const std::string& key) const { return value_->at(key); }

bool JsonValue::has(const std::string& key) const { return value_->is_object() && value_->contains(key); }
const json& JsonValue::at(const std::string& key) const {
  check<ValueError>(has(key), "JsonValue", "has no value \"", key, '"');
  return (*value_)[key];
}
double JsonValue::number(const std::string& key) const {
  const json& value = at(key);
  check<ValueError>(value.is_number(), "JsonValue", '"', key, "\" must be a number, got ", value.dump());
  return value;
}
int64_t JsonValue::integer(const std::string& key) const {
  const json& value = at(key);
  check<ValueError>(value.is_number_integer(), "JsonValue", '"', key, "\" must be an integer, got ", value.dump());
  return value;
}
bool JsonValue::flag(const std::string& key) const {
  const json& value = at(key);
  check<ValueError>(value.is_boolean(), "JsonValue", '"', key, "\" must be true or false, got ", value.dump());
  return value;
}
std::string JsonValue::text(const std::string& key) const {
  const json& value = at(key);
  check<ValueError>(value.is_string(), "JsonValue", '"', key, "\" must be a text, got ", value.dump());
  return value;
}

}  // namespace halfstep
