// The folder of a run: config.resolved.json, metrics.jsonl and the checkpoints.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "apps/config/json.h"

namespace halfstep::app {

class RunDir {
 public:
  // resume: nothing, "auto" or a checkpoint's path. Throws ConfigError when the folder holds a run that is neither resumed nor
  // to be overwritten. overwrite removes that run's files, and no others.
  RunDir(std::filesystem::path path, const std::optional<std::string>& resume, bool overwrite);

  const std::filesystem::path& path() const { return path_; }
  // What to resume from; nothing for a new run.
  const std::optional<std::filesystem::path>& checkpoint() const { return checkpoint_; }

  // Writes config.resolved.json and opens metrics.jsonl, in which lines after `step` are dropped.
  void open(const Json& config, int64_t step, bool metrics);
  void record(const Json& metrics);

 private:
  std::filesystem::path path_;
  std::optional<std::filesystem::path> checkpoint_;
  std::ofstream metrics_;
};

}  // namespace halfstep::app
