// SPDX-License-Identifier: Apache-2.0
// What `halfstep bench mlp --json` printed, read back for people.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// A precision. A number that the file does not have is NaN.
struct MeasuredArm {
  std::string name, refused;                  // refused: why the device does not compute it; then there is nothing else
  double median_ms, fastest_ms, p90_ms;       // of a step
  double speedup, peak_bytes, planned_bytes;  // speedup: over float32
  double difference, tolerance;               // of its losses from those of the reference
  bool agrees = true;
  double steps, skipped, plain_products;
  Points step_ms, losses;                                // from 1; losses that are not finite are NaN
  std::vector<std::pair<std::string, double>> memory{};  // at the peak, by purpose
};

struct Measurement {
  std::string name;  // of the file
  Json settings;     // all but the arms
  std::vector<MeasuredArm> arms;

  // float32 where it was measured, else the first arm with losses; nullptr where there is none.
  const MeasuredArm* reference() const;
};

// Throws IoError for a file that cannot be read, and DataError for one that `halfstep bench mlp --json` did not print.
Measurement read_measurement(const std::filesystem::path& file);

}  // namespace halfstep::app
