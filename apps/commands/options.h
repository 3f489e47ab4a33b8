// SPDX-License-Identifier: Apache-2.0
// Options that several subcommands share.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>

#include "apps/config/config.h"

namespace halfstep::app {

void add_set(CLI::App& command, ConfigOptions& options);
void add_device(CLI::App& command, std::optional<std::string>& device);
void add_threads(CLI::App& command, std::optional<int>& threads);

void apply_threads(const std::optional<int>& threads);
// Warnings of a config, to stderr.
void print_warnings(const Config& config);
// logging.level of the config.
void apply_log_level(const LoggingSection& logging, bool quiet);

}  // namespace halfstep::app
