// SPDX-License-Identifier: Apache-2.0
// The config of a run: from a file, command line options and defaults to one checked object that nothing is missing from.
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
  std::vector<std::string> sets = {};  // "a.b=c", left to right
  bool no_amp = false;
  std::optional<std::string> device = {};
  std::string device_from = "--device";  // what gave it, for messages
  // Of a trained model: what is known of its training data, so that no rule reads a file of data.
  const DataForm* known = nullptr;
};

struct Config : Sections, MixedPrecision {
  Json json;                          // the document itself, with every key of the schema; a run stores it
  std::vector<std::string> warnings;  // "file:line:column: path: message"
  std::optional<DataFacts> facts;  // of data.train; nothing when its files are needed to know and are not there, or cannot be read
  std::string data_fault;          // why existing data cannot be read: an error of the data, thrown by the code that reads it
  std::vector<LayerRow> layers;    // empty without facts
  std::shared_ptr<const void> kept;  // the data that was read to check it, which is not read again while this lives
};

// Throws ConfigError listing all that is wrong.
Config load_config(const std::filesystem::path& file, const ConfigOptions& options = {});
// The same for a config.resolved.json or the config stored in a checkpoint.
Config resolve_config(const Json& json, const std::string& name, const ConfigOptions& options = {});

}  // namespace halfstep::app
