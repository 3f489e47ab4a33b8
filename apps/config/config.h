// The config of a run: from a file, command line options and defaults to one checked object that nothing is missing from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/catalog/modules.h"
#include "apps/schema/issues.h"
#include "apps/schema/json.h"
#include "framework/base/device.h"
#include "framework/base/dtype.h"

namespace halfstep::app {

struct ConfigOptions {
  std::vector<std::string> sets = {};  // "a.b=c", left to right
  bool no_amp = false;
  std::optional<std::string> device = {};
};

struct Config {
  Json json;                          // resolved: every key of the schema that is not optional
  std::vector<std::string> warnings;  // "file:line:column: path: message"
  std::optional<DataFacts> facts;     // of data.train; nothing when its files are needed to know and are not there
  std::vector<LayerRow> layers;       // empty without facts
};

// Throws ConfigError listing all that is wrong.
Config load_config(const std::filesystem::path& file, const ConfigOptions& options = {});
// The same for a config.resolved.json or the config stored in a checkpoint.
Config resolve_config(const Json& json, const std::string& name, const ConfigOptions& options = {});

// "auto": cuda when there is one. Throws ConfigError for an unknown name.
Device config_device(const Json& config);
// The dtype of mixed precision, or nothing when it is off.
std::optional<DType> amp_dtype(const Json& config);
bool scaler_enabled(const Json& config);

}  // namespace halfstep::app
