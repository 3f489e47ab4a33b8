// SPDX-License-Identifier: Apache-2.0
// The state.json or data.json of a checkpoint, whose values must be what was written there: each getter throws CheckpointError that
// names the key.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace halfstep {

class StoredJson {
 public:
  // `json` must outlive it.
  // subject: what holds it, for messages.
  explicit StoredJson(const nlohmann::json& json, const char* subject = "the state of a run") : StoredJson(json, subject, "") {}
  StoredJson part(const std::string& key) const;  // the object there
  bool has(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t least) const;
  int64_t integer(const std::string& key, int64_t least, int64_t missing) const;  // of a state that is older than the key
  double number(const std::string& key) const;
  std::optional<double> number_or_null(const std::string& key) const;
  const nlohmann::json& get(const std::string& key) const;  // null where there is none
  void expect(bool ok, const std::string& key, const char* what) const;

 private:
  StoredJson(const nlohmann::json& json, const char* subject, std::string path)
      : json_(json), subject_(subject), path_(std::move(path)) {}
  const nlohmann::json& json_;
  const char* subject_;
  std::string path_;
};

}  // namespace halfstep
