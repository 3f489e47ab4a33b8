// SPDX-License-Identifier: Apache-2.0
// Reads the state.json or data.json of a checkpoint; each getter throws CheckpointError with the key if a value is not one that
// halfstep writes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace halfstep {

class StoredJson {
 public:
  // `json` must outlive this object. subject: its owner, for messages.
  explicit StoredJson(const nlohmann::json& json, const char* subject = "the state of a run") : StoredJson(json, subject, "") {}
  StoredJson part(const std::string& key) const;  // the object at this key
  bool has(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t least) const;
  int64_t integer(const std::string& key, int64_t least, int64_t missing) const;  // missing: value for states older than the key
  double number(const std::string& key) const;
  std::optional<double> number_or_null(const std::string& key) const;
  const nlohmann::json& get(const std::string& key) const;  // null if absent
  void expect(bool ok, const std::string& key, const char* what) const;

 private:
  StoredJson(const nlohmann::json& json, const char* subject, std::string path)
      : json_(json), subject_(subject), path_(std::move(path)) {}
  const nlohmann::json& json_;
  const char* subject_;
  std::string path_;
};

}  // namespace halfstep
