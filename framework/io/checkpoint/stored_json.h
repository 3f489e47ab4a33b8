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
  // Returns the object at this key.
  StoredJson part(const std::string& key) const;
  bool has(const std::string& key) const;  // false for null, too
  // Returns an integer of at least `least`.
  int64_t integer(const std::string& key, int64_t least) const;
  // Returns the same, or `missing` for states that are older than the key.
  int64_t integer(const std::string& key, int64_t least, int64_t missing) const;
  double number(const std::string& key) const;
  std::optional<double> number_or_null(const std::string& key) const;
  const nlohmann::json& get(const std::string& key) const;  // null if absent
  // Throws unless `holds`. what: the values that are expected at the key, for the message.
  void expect(bool holds, const std::string& key, const char* what) const;

 private:
  StoredJson(const nlohmann::json& json, const char* subject, std::string path)
      : json_(json), subject_(subject), path_(std::move(path)) {}
  const nlohmann::json& json_;
  const char* subject_;
  std::string path_;
};

}  // namespace halfstep
