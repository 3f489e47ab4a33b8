// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/session/lr_search.h"
#include "apps/terminal/quantity_text.h"

namespace halfstep::app {
namespace {

struct LrFindArguments {
  std::string file;
  ConfigOptions config;
  std::optional<int> threads;
  RateRange range;
  bool json = false;
};

int find_lr(const LrFindArguments& arguments) {
  apply_threads(arguments.threads);
  const Config config = load_config(arguments.file, arguments.config);
  print_warnings(config);
  apply_log_level(config.logging, arguments.json);
  const RateSearch found = find_rate(config, arguments.range);
  if (arguments.json) {
    Json points = Json::array();
    const auto finite = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
    for (const RatePoint& p : found.points)
      points.push_back({{"lr", p.lr}, {"loss", finite(p.loss)}, {"smooth", finite(p.smooth)}});
    const auto optional = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
    std::cout << line_of({{"suggested", optional(found.steepest)},
                          {"lowest", optional(found.lowest)},
                          {"diverged", found.diverged},
                          {"points", points}})
              << '\n';
    return kDone;
  }
  std::cout << "        lr          loss    smooth\n";
  constexpr size_t kMostLines = 25;
  const size_t stride = std::max<size_t>((found.points.size() + kMostLines - 1) / kMostLines, 1);
  for (size_t i = 0; i < found.points.size(); i += stride) {
    const RatePoint& p = found.points[i];
    std::cout << std::setw(10) << number_text(p.lr, 3) << std::setw(14) << number_text(p.loss, 5) << std::setw(10)
              << number_text(p.smooth, 5) << '\n';
  }
  if (found.diverged) std::cout << "the loss grew to four times its best at lr " << number_text(found.points.back().lr, 3) << '\n';
  if (found.steepest) {
    std::cout << "the loss falls fastest at lr " << number_text(*found.steepest, 3) << ", and is lowest at "
              << number_text(*found.lowest, 3) << ": try --set optimizer.lr=" << number_text(*found.steepest, 2) << '\n';
  } else {
    std::cout << "the loss never fell: try other bounds with --from and --to\n";
  }
  return kDone;
}

}  // namespace

void add_lr_find(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<LrFindArguments>();
  CLI::App* command = program.add_subcommand("lr-find", "Try growing learning rates on a config's model; nothing is written");
  command->add_option("config", arguments->file, "a JSON config")->required();
  command->add_option("--from", arguments->range.from, "first rate")->capture_default_str();
  command->add_option("--to", arguments->range.to, "last rate")->capture_default_str();
  command->add_option("--steps", arguments->range.steps, "number of steps from the first rate to the last")->capture_default_str();
  add_set(*command, arguments->config);
  command->add_flag("--no-amp", arguments->config.no_amp, "train in float32 even if the config asks for mixed precision");
  command->add_flag("--json", arguments->json, "one JSON object");
  add_device(*command, arguments->config.device);
  add_threads(*command, arguments->threads);
  command->callback([arguments, &chosen] { chosen = [arguments] { return find_lr(*arguments); }; });
}

}  // namespace halfstep::app
