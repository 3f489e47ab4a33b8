// SPDX-License-Identifier: Apache-2.0
#include "apps/session/seen_samples.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "apps/config/config.h"
#include "apps/config/shared_samples.h"
#include "apps/session/session.h"
#include "framework/base/check.h"

namespace halfstep::app {
namespace {

// Returns the stored config with all keys; nothing if this halfstep does not take it. If its data is no longer there, takes the
// folder of the present config: the files may have been moved.
std::optional<Json> config_of_run(const Json& now, const Json& stored, const DataForm* form) {
  try {
    const std::string split = "train";
    Json out = resolve_config(stored, "the checkpoint's config", {.form = form}).json;
    const DatasetRow& row = dataset_catalog().row(out["data"][split]);
    const auto files = row.files ? row.files({out, split}) : std::vector<std::filesystem::path>();
    std::error_code none;
    if (std::any_of(files.begin(), files.end(), [&](const auto& file) { return std::filesystem::exists(file, none); })) return out;
    out["data"]["root"] = now["data"]["root"];
    Json& train = out["data"][split];
    if (train.contains("root") && now["data"][split].contains("root")) train["root"] = now["data"][split]["root"];
    return out;
  } catch (const Error&) { return {}; }
}

// Returns the run's config with the samples of data.train that it had before it was resumed.
Json with_samples(Json config, const Json& samples) {
  config["data"]["root"] = samples["root"], config["data"]["train"] = samples["train"], config["seed"] = samples["seed"];
  return config;
}

std::string line_of_shared(const std::string& split, const SharedSamples& shared) {
  if (!shared.any()) return "";
  return joined("data.", split,
                " has samples that the run was trained on: ", shared.key.empty() ? "it " : "its " + shared.key + ' ',
                shared.message);
}

std::string line_of_equal(const std::string& split, const std::string& owner) {
  return joined("data.", split, " has samples that the run was trained on: they are those of ", owner, ", from other files");
}

std::string line_of_changed(const std::string& split) {
  return "data." + split + " may have samples that the run was trained on: it is a part of files that have changed";
}

// Compares a split with the samples that the run was trained on before it was resumed. now: those of the latest run.
std::string seen_before(const Json& config, const std::string& split, const TrainedRun& run, const std::string& sha256,
                        const Json& now) {
  const std::string owner = "an earlier data.train of the run", train = "train";
  for (const Json& samples : run.past.trained_on) {
    const std::optional<Json> then = config_of_run(config, with_samples(run.config, samples), run.form);
    if (!then) continue;
    const SplitRequest held_out{config, split}, trained{*then, train};
    if (std::string line = line_of_shared(split, shared_samples(held_out, trained, owner)); !line.empty()) return line;
    if (!sha256.empty() && samples["data_sha256"] == sha256) return line_of_equal(split, owner);
    if (are_same_parts(samples, now) && samples["data_sha256"] != "" && now["data_sha256"] != "" &&
        samples["data_sha256"] != now["data_sha256"] && are_shuffled_parts(held_out, trained))
      return line_of_changed(split);
  }
  return "";
}

}  // namespace

TrainedRun trained_run(const CheckpointContents& contents, const DataForm* form) {
  return {stored_config(contents), stored_past(contents), stored_data_sha256(contents), form};
}

std::string seen_samples(const Json& config, const std::string& split, const TrainedRun& run, const std::string& sha256) {
  const std::string train = "train", owner = "data.train of the run";
  if (split == train || config["data"][split].is_null()) return "";
  const std::optional<Json> then = config_of_run(config, run.config, run.form);
  const std::string line = then ? line_of_shared(split, shared_samples({config, split}, {*then, train}, owner)) : "";
  if (!line.empty()) return line;
  if (!sha256.empty() && sha256 == run.data_sha256) return line_of_equal(split, owner);
  return seen_before(config, split, run, sha256, samples_of(run.config, run.data_sha256));
}

std::vector<std::string> newly_seen_samples(const Json& config, const TrainedRun& run, const std::string& val_sha256,
                                            const std::string& data_sha256, bool data_changed) {
  std::vector<std::string> out;
  const std::string train = "train";
  const std::optional<Json> then = config_of_run(config, run.config, run.form);
  const Json now = samples_of(config, data_sha256);
  const bool as_it_was = then && config["data"][train] == (*then)["data"][train] && config["seed"] == (*then)["seed"];
  for (const std::string split : {"val", "test"}) {
    if (config["data"][split].is_null()) continue;
    const SplitRequest held_out{config, split};
    if (shared_samples(held_out, {config, train}).any()) continue;
    const std::string own_sha256 = split == "val" ? val_sha256 : "";
    std::string line =
        then ? line_of_shared(split, shared_samples(held_out, {*then, train}, "data.train of the run")) : std::string();
    if (line.empty() && data_changed && as_it_was && are_shuffled_parts(held_out, {config, train})) line = line_of_changed(split);
    if (line.empty() && !own_sha256.empty() && own_sha256 == run.data_sha256 && own_sha256 != data_sha256)
      line = line_of_equal(split, "data.train of the run");
    if (line.empty()) line = seen_before(config, split, run, own_sha256, now);
    if (!line.empty()) out.push_back(std::move(line));
  }
  return out;
}

std::string samples_of_training(const Json& config, const std::string& val_sha256, const std::string& data_sha256) {
  const std::string train = "train", val = "val";
  if (val_sha256.empty() || val_sha256 != data_sha256 || config["data"][val].is_null()) return "";
  const bool is_shown = shared_samples({config, val}, {config, train}).any();
  const bool overfits = !config["train"]["overfit_batches"].is_null();  // which takes data.val from data.train
  return is_shown || overfits ? "" : "data.val has the samples of data.train, from other files, which the model has seen";
}

}  // namespace halfstep::app
