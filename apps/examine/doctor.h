// SPDX-License-Identifier: Apache-2.0
// Finds what limits a config's speed and precision, from the plan of its step and from a short measurement.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "framework/backend/machine_rates.h"

namespace halfstep::app {

struct Finding {
  std::string where;   // path in the config: "model.layers.1", "amp.scaler.enabled"
  std::string what;    // with its numbers
  std::string remedy;  // the change to make
  std::string gain;    // that this would bring
};

struct DoctorOptions {
  bool probe = true;             // time data, steps, products and copies on the real device
  std::optional<double> memory;  // bytes of the device; empty: it is asked
  MachineRates* rates = nullptr;  // in place of what the device is measured to do; null: it is measured
};

// Throws as loading data and a step do. Most important first.
std::vector<Finding> examine(const Config& config, const DoctorOptions& options = {});

}  // namespace halfstep::app
