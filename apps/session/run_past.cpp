// SPDX-License-Identifier: Apache-2.0
#include "apps/session/run_past.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "amp/step/run_state.h"
#include "framework/base/check.h"
#include "framework/io/checkpoint/stored_json.h"

namespace halfstep::app {
namespace {

constexpr size_t kMostKept = 32;  // of each list; the oldest stay

}  // namespace

void RunPast::keep_samples(const Json& former, const Json& now) {
  const bool is_unknown = former["data_sha256"] == "" || now["data_sha256"] == "";
  const char* const decides = is_unknown ? "root" : "data_sha256";
  if (are_same_parts(former, now) && former[decides] == now[decides]) return;
  const bool is_kept = std::find(trained_on.begin(), trained_on.end(), former) != trained_on.end();
  if (!is_kept && trained_on.size() < kMostKept) trained_on.push_back(former);
}

void RunPast::keep_change(int64_t step, const std::string& change) {
  if (changes.size() < kMostKept) changes.push_back({{"step", step}, {"change", change}});
}

std::vector<std::string> RunPast::lines() const {
  std::vector<std::string> out;
  for (const Json& c : changes)
    out.push_back(
        joined("at step ", c["step"].get<int64_t>(), " the run continued with a change: ", c["change"].get<std::string>()));
  return out;
}

Json samples_of(const Json& config, const std::string& sha256) {
  const Json data = config.value("data", Json::object());
  Json train = data.value("train", Json::object());
  train.erase("transforms"), train.erase("vocabulary");  // which decide no samples
  const Json out = {
      {"root", data.value("root", Json())}, {"train", train}, {"seed", config.value("seed", Json())}, {"data_sha256", sha256}};
  return Json(nlohmann::json(out));  // in the order of the keys, as checkpoints have it
}

bool are_same_parts(const Json& samples, const Json& others) {
  return samples["train"] == others["train"] && samples["seed"] == others["seed"];
}

RunPast stored_past(const CheckpointContents& contents) {
  RunPast out;
  const StoredJson meta = stored_meta(contents);
  if (!meta.has("past")) return out;
  const StoredJson past = meta.part("past");
  const auto &samples = past.get("trained_on"), &changes = past.get("changes");
  const auto all = [](const auto& list, const auto& fits) {
    return list.is_array() && std::all_of(list.begin(), list.end(), fits);
  };
  past.expect(all(samples,
                  [](const auto& s) {
                    return s.is_object() && s.contains("root") && s.contains("train") && s["train"].is_object() &&
                           s.contains("seed") && s.contains("data_sha256") && s["data_sha256"].is_string();
                  }),
              "trained_on", "a list of samples");
  past.expect(all(changes,
                  [](const auto& c) {
                    return c.is_object() && c.contains("step") && c["step"].is_number_integer() && c.contains("change") &&
                           c["change"].is_string();
                  }),
              "changes", "a list of changes");
  out.trained_on = Json(samples), out.changes = Json(changes);
  return out;
}

}  // namespace halfstep::app
