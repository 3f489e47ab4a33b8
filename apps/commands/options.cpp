// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/options.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "framework/backend/backend.h"
#include "framework/base/log.h"

namespace halfstep::app {

void add_set(CLI::App& command, ConfigOptions& options) {
  command.add_option("--set", options.sets, "override a key: --set optimizer.lr=0.05 --set model.layers.0.out_features=64")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->take_all();
}

void add_device(CLI::App& command, std::optional<std::string>& device) {
  command.add_option("--device", device, "auto, cpu, cuda or cuda:N")->type_name("DEVICE");
}

void add_threads(CLI::App& command, std::optional<int>& threads) {
  command.add_option("--threads", threads, "threads of the CPU backend; 0: all cores")->check(CLI::Range(0, 4096));
}

void add_model(CLI::App& command, ModelOptions& options) {
  command
      .add_option("model", options.path,
                  "a run's folder (its best checkpoint, else its latest), RUN/latest, a checkpoint, or an "
                  "exported file")
      ->required();
  command.add_flag("--no-amp", options.no_amp, "compute in float32");
  command.add_flag("--trained-weights", options.trained_weights,
                   "use the trained weights, even if the run has an average of them (train.ema, swa)");
  add_device(command, options.device);
  add_threads(command, options.threads);
}

void add_batches(CLI::App& command, BatchesOptions& options) {
  command
      .add_option("config", options.path,
                  "a JSON config (at its first values), a run's folder (at its last checkpoint) or a checkpoint")
      ->required();
  command.add_option("--batches", options.batches, "of the training data")->check(CLI::Range(1, 100000))->capture_default_str();
  add_set(command, options.config);
  command.add_flag("--json", options.json, "one JSON object");
  add_device(command, options.config.device);
  add_threads(command, options.threads);
}

void print_model(const Predictor& model) {
  std::cerr << "model: " << model.checkpoint().string() << " (step " << model.step()
            << (model.is_averaged() ? ", averaged weights" : "") << ")\n";
}

void apply_threads(const std::optional<int>& threads) {
  if (threads) set_num_threads(*threads);
}

void print_warnings(const Config& config) {
  for (const std::string& w : config.warnings) std::cerr << "warning: " << w << '\n';
}

void apply_log_level(const LoggingSection& section, bool quiet) {
  const std::string& level = section.level;
  if (level == "debug") logging::set_level(logging::Level::debug);
  if (level == "warn" || quiet) logging::set_level(logging::Level::warn);
  if (level == "error") logging::set_level(logging::Level::error);
  if (level == "off") logging::set_level(logging::Level::off);
}

}  // namespace halfstep::app
