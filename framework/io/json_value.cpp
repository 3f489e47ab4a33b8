// SPDX-License-Identifier: Apache-2.0
#include "framework/io/json_value.h"

#include <nlohmann/json.hpp>

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

}  // namespace halfstep
