// SPDX-License-Identifier: Apache-2.0
// A JSON value as a member of a class. Its type is only declared here, so that headers with such members stay cheap for code that
// does not use them. Code that does includes <nlohmann/json.hpp>:
//   contents.meta["epoch"] = 3;    contents.meta->dump()
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace halfstep {

class JsonValue {
 public:
  JsonValue();  // {}, an object without members
  JsonValue(const nlohmann::json& value);
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(JsonValue other) noexcept;
  ~JsonValue();

  nlohmann::json& operator*() { return *value_; }
  const nlohmann::json& operator*() const { return *value_; }
  nlohmann::json* operator->() { return value_.get(); }
  const nlohmann::json* operator->() const { return value_.get(); }
  // Returns the member of that name. The non-const form adds a missing one; the const form requires it.
  nlohmann::json& operator[](const std::string& key);
  const nlohmann::json& operator[](const std::string& key) const;
  // Access members without <nlohmann/json.hpp>. Throw ValueError for a missing one, or one of another kind.
  bool has(const std::string& key) const;
  double number(const std::string& key) const;
  int64_t integer(const std::string& key) const;
  bool flag(const std::string& key) const;
  std::string text(const std::string& key) const;

 private:
  const nlohmann::json& at(const std::string& key) const;
  std::unique_ptr<nlohmann::json> value_;  // null only after a move
};

}  // namespace halfstep
