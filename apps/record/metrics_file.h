// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object on a line, each with the number of applied steps ("step") and of attempted ones ("attempted").
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "apps/record/metric_sink.h"
#include "apps/schema/json.h"

namespace halfstep::app {

class MetricsFile : public FileSink {
 public:
  MetricsFile() = default;  // discards lines
  // Keeps the run's lines up to `from`, and warns of lines that are not metrics of a run. Throws IoError.
  MetricsFile(const std::filesystem::path& path, const ResumePoint& from);

  // Writes the whole line or nothing. The first failure prints a warning; training continues, and lost() counts failures.
  void write(const Json& entry) override;
};

}  // namespace halfstep::app
