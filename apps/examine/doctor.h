// SPDX-License-Identifier: Apache-2.0
// Finds what limits a config's speed and precision, from the plan of its step and a short measurement.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "framework/backend/machine_rates.h"

namespace halfstep::app {

struct Finding {
  std::string where;   // path in the config: "model.layers.1", "amp.scaler.enabled"
  std::string what;    // with numbers
  std::string remedy;  // the change to make
  std::string gain;    // expected benefit
};

struct DoctorOptions {
  bool probe = true;             // time data, steps, products and copies on the real device
  std::optional<double> memory;  // bytes of the device; unset: of the device that is there
  MachineRates* rates = nullptr;  // replaces a measurement of the device; null: measure
};

// Returns the findings, most important first. Throws as loading data and a step do.
std::vector<Finding> examine(const Config& config, const DoctorOptions& options = {});

}  // namespace halfstep::app
