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

int plan(const PlanArguments& arguments) {
  const Config config = load_config(arguments.file, arguments.config);
  print_warnings(config);
  const StepPlan plan = plan_step(config, arguments.batch, arguments.ranks);
  if (!arguments.out.empty()) atomic_write(arguments.out, plan_text(plan));
  if (arguments.json) {
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
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = program.add_subcommand("plan", "List every op of a training step, its dtype and why, operations and bytes");
  command->add_option("config", arguments->file, "a JSON config")->required();
  add_set(*command, arguments->config);
  command->add_flag("--no-amp", arguments->config.no_amp, "the step in float32 even if the config asks for mixed precision");
  command->add_option("--batch", arguments->batch, "samples, instead of data.loader.batch_size")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 40));
  command->add_option("--ranks", arguments->ranks, "the step of rank 0 of so many, which has its part of the samples")
      ->check(CLI::Range(1, 1 << 20));
  command->add_flag("--json", arguments->json, "JSON, one call for each line");
  command->add_option("--out", arguments->out, "write the JSON to this file")->type_name("FILE");
  add_device(*command, arguments->config.device);
  command->callback([arguments, &chosen] { chosen = [arguments] { return plan(*arguments); }; });
}

}  // namespace halfstep::app
