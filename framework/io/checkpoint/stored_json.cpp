// SPDX-License-Identifier: Apache-2.0
#include "framework/io/checkpoint/stored_json.h"

#include <nlohmann/json.hpp>

#include "framework/io/checkpoint/checkpoint.h"

namespace halfstep {

StoredJson StoredJson::part(const std::string& key) const {
  expect(get(key).is_object(), key, "an object");
  return StoredJson(get(key), subject_, path_ + key + ".");
}

bool StoredJson::has(const std::string& key) const { return !get(key).is_null(); }

int64_t StoredJson::integer(const std::string& key, int64_t least) const {
  const nlohmann::json& value = get(key);
  expect(value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX)) &&
             value.get<int64_t>() >= least,
         key, least == 0 ? "an integer >= 0" : "an integer");
  return value.get<int64_t>();
}

int64_t StoredJson::integer(const std::string& key, int64_t least, int64_t missing) const {
  return has(key) ? integer(key, least) : missing;
}

double StoredJson::number(const std::string& key) const {
  expect(get(key).is_number(), key, "a number");
  return get(key).get<double>();
}

std::optional<double> StoredJson::number_or_null(const std::string& key) const {
  return has(key) ? std::optional(number(key)) : std::nullopt;
}

const nlohmann::json& StoredJson::get(const std::string& key) const {
  static const nlohmann::json null;
  const auto found = json_.find(key);
  return found == json_.end() ? null : *found;
}

void StoredJson::expect(bool holds, const std::string& key, const char* what) const {
  if (holds) return;
  const std::string got = has(key) ? get(key).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) : "nothing";
  fail<CheckpointError>("resume", subject_, " must hold ", path_, key, ", ", what, ", got ", got.substr(0, 80),
                        Help{"checkpoints of halfstep do; this one was changed, or written by something else"});
}

}  // namespace halfstep
