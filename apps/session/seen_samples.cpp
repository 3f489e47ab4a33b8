// SPDX-License-Identifier: Apache-2.0
#include "apps/session/seen_samples.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "apps/config/config.h"
#include "apps/config/shared_samples.h"
#include "framework/base/check.h"

namespace halfstep::app {
namespace {

const std::string kTrain = "train";

// Returns the stored config with all keys; nothing if this halfstep does not take it. If its data is no longer there, takes the
// folder of the present config: the files may have been moved.
std::optional<Json> config_of_run(const Json& now, const Json& stored, const DataForm* form) {
  try {
    Json out = resolve_config(stored, "the checkpoint's config", {.form = form}).json;
    const DatasetRow& row = dataset_catalog().row(out["data"][kTrain]);
    const auto files = row.files ? row.files({out, kTrain}) : std::vector<std::filesystem::path>();
    std::error_code none;
    if (std::any_of(files.begin(), files.end(), [&](const auto& file) { return std::filesystem::exists(file, none); })) return out;
    out["data"]["root"] = now["data"]["root"];
    Json& train = out["data"][kTrain];
    if (train.contains("root") && now["data"][kTrain].contains("root")) train["root"] = now["data"][kTrain]["root"];
    return out;
  } catch (const Error&) { return {}; }
}

std::string line_of_shared(const std::string& split, const SharedSamples& shared) {
  if (!shared.any()) return "";
  return joined("data.", split,
                " has samples that the run was trained on: ", shared.key.empty() ? "it " : "its " + shared.key + ' ',
                shared.message);
}

}  // namespace

std::string seen_samples(const Json& config, const std::string& split, const Json& stored, const DataForm* form) {
  if (split == kTrain || config["data"][split].is_null()) return "";
  const std::optional<Json> run = config_of_run(config, stored, form);
  return run ? line_of_shared(split, shared_samples({config, split}, {*run, kTrain}, "data.train of the run")) : "";
}

std::vector<std::string> newly_seen_samples(const Json& config, const Json& stored, const DataForm* form, bool data_changed) {
  std::vector<std::string> out;
  const std::optional<Json> run = config_of_run(config, stored, form);
  if (!run) return out;
  const bool as_it_was = config["data"][kTrain] == (*run)["data"][kTrain] && config["seed"] == (*run)["seed"];
  for (const std::string split : {"val", "test"}) {
    if (config["data"][split].is_null()) continue;
    const SplitRequest held_out{config, split};
    if (shared_samples(held_out, {config, kTrain}).any()) continue;
    if (const SharedSamples shared = shared_samples(held_out, {*run, kTrain}, "data.train of the run"); shared.any())
      out.push_back(line_of_shared(split, shared));
    else if (data_changed && as_it_was && are_shuffled_parts(held_out, {config, kTrain}))
      out.push_back("data." + split + " may have samples that the run was trained on: it is a part of files that have changed");
  }
  return out;
}

}  // namespace halfstep::app
