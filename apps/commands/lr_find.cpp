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
#include "apps/terminal/progress.h"

namespace halfstep::app {
namespace {

struct LrFindArguments {
  std::string file;
  ConfigOptions config;
  std::optional<int> threads;
  RateRange range;
  bool json = false;
};

int find(const LrFindArguments& o) {
  apply_threads(o.threads);
  const Config config = load_config(o.file, o.config);
  print_warnings(config);
  apply_log_level(config.logging, o.json);
  const RateSearch found = find_rate(config, o.range);
  if (o.json) {
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
  const size_t lines = 25, stride = std::max<size_t>((found.points.size() + lines - 1) / lines, 1);
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
  auto o = std::make_shared<LrFindArguments>();
  CLI::App* c = program.add_subcommand("lr-find", "Try growing learning rates on a config's model; nothing is written");
  c->add_option("config", o->file, "a JSON config")->required();
  c->add_option("--from", o->range.from, "first rate")->capture_default_str();
  c->add_option("--to", o->range.to, "last rate")->capture_default_str();
  c->add_option("--steps", o->range.steps, "number of steps from the first rate to the last")->capture_default_str();
  add_set(*c, o->config);
  c->add_flag("--no-amp", o->config.no_amp, "train in float32 even if the config asks for mixed precision");
  c->add_flag("--json", o->json, "one JSON object");
  add_device(*c, o->config.device);
  add_threads(*c, o->threads);
  c->callback([o, &chosen] { chosen = [o] { return find(*o); }; });
}

}  // namespace halfstep::app
