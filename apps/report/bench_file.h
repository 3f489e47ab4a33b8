// SPDX-License-Identifier: Apache-2.0
// Reads the output of `halfstep bench mlp --json` for reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// Measurements of one precision. Missing numbers are NaN.
struct MeasuredArm {
  std::string name, refused;                  // refused: why the device does not compute it; all else is then missing
  double median_ms, fastest_ms, p90_ms;       // of a step
  double speedup, peak_bytes, planned_bytes;  // speedup: over float32
  double difference, tolerance;               // see Agreement
  bool agrees = true;
  double steps, skipped, plain_products;
  Points step_ms, losses;                                // from 1; NaN if not finite
  std::vector<std::pair<std::string, double>> memory{};  // at the peak, by purpose
};

// The content of a file.
struct Measurement {
  std::string name;  // file name
  Json settings;     // everything except the arms
  std::vector<MeasuredArm> arms;

  // Returns float32 if it was measured, else the first arm with losses; nullptr if there is none.
  const MeasuredArm* reference() const;
};

// Throws IoError for a file that cannot be read, and DataError for one that `halfstep bench mlp --json` did not print.
Measurement read_measurement(const std::filesystem::path& file);

}  // namespace halfstep::app
