// SPDX-License-Identifier: Apache-2.0
// Options shared by several subcommands.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>

#include "apps/config/config.h"
#include "apps/use/predictor.h"

namespace halfstep::app {

// Add the options --set, --device and --threads.
void add_set(CLI::App& command, ConfigOptions& options);
void add_device(CLI::App& command, std::optional<std::string>& device);
void add_threads(CLI::App& command, std::optional<int>& threads);

// Options of commands that use a trained model: the model, --no-amp, --trained-weights, --device and --threads.
struct ModelOptions {
  std::string path;
  std::optional<std::string> device;
  std::optional<int> threads;
  bool no_amp = false, trained_weights = false;
  PredictorOptions predictor() const {
    return {.device = device, .device_from = "--device", .amp = !no_amp, .averages = !trained_weights};
  }
};
void add_model(CLI::App& command, ModelOptions& options);
// Prints "model: runs/trees/step-00000030 (step 30, averaged weights)" to stderr.
void print_model(const Predictor& model);

// Options of commands that examine some batches in 16 bits.
struct BatchesOptions {
  std::string path;
  ConfigOptions config;
  std::optional<int> threads;
  int64_t batches = 8;
  bool json = false;
};
void add_batches(CLI::App& command, BatchesOptions& options);

// Sets the number of threads of the CPU backend, if it is given.
void apply_threads(const std::optional<int>& threads);
// Prints the warnings of a config to stderr.
void print_warnings(const Config& config);
// Sets the process's log level to the config's logging.level. quiet: to warn, unless the config's level is error or off.
void apply_log_level(const LoggingSection& logging, bool quiet);

}  // namespace halfstep::app
