// SPDX-License-Identifier: Apache-2.0
#include "apps/train/plan.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/terminal/terminal.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep::app {
namespace {

struct PlanArguments {
  std::string file, out;
  ConfigOptions config;
  int64_t batch = 0;
  int ranks = 1;
  bool json = false;
};

int plan(const PlanArguments& o) {
  const Config config = load_config(o.file, o.config);
  print_warnings(config);
  const StepPlan plan = plan_step(config, o.batch, o.ranks);
  if (!o.out.empty()) atomic_write(o.out, plan_text(plan));
  if (o.json) {
    std::cout << plan_text(plan);
  } else {
    const size_t width = terminal_width(STDOUT_FILENO);
    print_calls(std::cout, plan, width);
    std::cout << '\n';
    print_summary(std::cout, plan, width);
  }
  return kDone;
}

}  // namespace

void add_plan(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<PlanArguments>();
  CLI::App* c = program.add_subcommand("plan", "List every op of a training step, its dtype and why, operations and bytes");
  c->add_option("config", o->file, "a JSON config")->required();
  add_set(*c, o->config);
  c->add_flag("--no-amp", o->config.no_amp, "the step in float32 even if the config asks for mixed precision");
  c->add_option("--batch", o->batch, "samples, instead of data.loader.batch_size")->check(CLI::Range(int64_t(1), int64_t(1) << 40));
  c->add_option("--ranks", o->ranks, "the step of rank 0 of so many, which has its part of the samples")
      ->check(CLI::Range(1, 1 << 20));
  c->add_flag("--json", o->json, "JSON, one call for each line");
  c->add_option("--out", o->out, "write the JSON to this file")->type_name("FILE");
  add_device(*c, o->config.device);
  c->callback([o, &chosen] { chosen = [o] { return plan(*o); }; });
}

}  // namespace halfstep::app
