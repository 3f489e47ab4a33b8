// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/run/inspect_data.h"

namespace halfstep::app {
namespace {

struct InspectArguments {
  std::string file, split = "train", out;
  ConfigOptions config;
  std::optional<int> threads;
  bool json = false;
};

int inspect(const InspectArguments& o) {
  apply_threads(o.threads);
  const Config config = load_config(o.file, o.config);
  print_warnings(config);
  apply_log_level(config.logging, true);
  check<ConfigError>(config.data.has(o.split), "inspect", "the config must have data.", o.split, ", but has none",
                     Help{"--split train, val or test"});
  const DataReport report = inspect_data(config, o.split);
  if (!o.out.empty()) save_png(o.out, sample_sheet(config, o.split));
  if (o.json)
    std::cout << line_of(report_json(report)) << '\n';
  else
    print_report(std::cout, report);
  return kDone;
}

}  // namespace

void add_inspect(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<InspectArguments>();
  CLI::App* all = program.add_subcommand("inspect", "Show the files that a config names");
  all->require_subcommand(1);
  CLI::App* c = all->add_subcommand("data", "Counts, classes, statistics, duplicates, and a picture of samples");
  c->add_option("config", o->file, "a JSON config")->required();
  add_set(*c, o->config);
  c->add_option("--split", o->split, "which data")->check(CLI::IsMember({"train", "val", "test"}))->capture_default_str();
  c->add_option("--out", o->out, "write samples after transforms to this PNG file")->type_name("FILE");
  c->add_flag("--json", o->json, "one JSON object");
  add_threads(*c, o->threads);
  c->callback([o, &chosen] { chosen = [o] { return inspect(*o); }; });
}

}  // namespace halfstep::app
