// SPDX-License-Identifier: Apache-2.0
// The config of a run: combines a file, command line options and defaults into one complete, checked object.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/catalog/modules.h"
#include "apps/config/sections.h"
#include "apps/schema/issues.h"
#include "apps/schema/json.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep::app {

struct ConfigOptions {
  std::vector<std::string> sets = {};  // "a.b=c", applied in order
  bool no_amp = false;
  std::optional<std::string> device = {};
  std::string device_from = "--device";  // the source of `device`, for messages
  // Facts about a trained model's training data, so that rules read no data files.
  const DataForm* form = nullptr;
};

struct Config : Sections, MixedPrecision {
  Json json;                              // the document with every key of the schema; a run stores it
  std::vector<std::string> warnings;      // "file:line:column: path: message"
  std::optional<DataFacts> facts;         // of data.train; unset if they need files that are missing or unreadable
  std::string data_fault;                 // why existing data cannot be read; the code that reads it throws it
  std::vector<LayerRow> layers;           // empty without facts
  std::shared_ptr<const void> kept_data;  // the data that was read for checks, which stays in memory while this lives
};

// Throws ConfigError that lists all errors.
Config load_config(const std::filesystem::path& file, const ConfigOptions& options = {});
// Checks a config.resolved.json or a config stored in a checkpoint.
Config resolve_config(const Json& json, const std::string& name, const ConfigOptions& options = {});

}  // namespace halfstep::app
