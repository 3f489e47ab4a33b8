// SPDX-License-Identifier: Apache-2.0
#include "apps/report/report.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/exit_codes.h"
#include "apps/report/comparable.h"
#include "apps/report/compare.h"
#include "apps/terminal/terminal.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep::app {
namespace {

struct ReportArguments {
  std::vector<std::filesystem::path> runs;
  std::string out = "report.html";
  int64_t samples = ReportOptions().mistakes;
  bool no_plan = false, json = false;
};

int report(const ReportArguments& arguments) {
  const bool bench = are_measurements(arguments.runs);
  const std::string page = bench ? bench_report_of(arguments.runs)
                                 : report_of(arguments.runs, {.plan = !arguments.no_plan, .mistakes = arguments.samples});
  atomic_write(arguments.out, page);
  std::cout << arguments.out << ": " << arguments.runs.size() << (bench ? " measurement" : " run")
            << (arguments.runs.size() == 1 ? ", " : "s, ") << page.size() / 1024 << " KiB, for a browser\n";
  return kDone;
}

int compare(const ReportArguments& arguments) {
  const std::vector<RecordedRun> runs = read_runs(arguments.runs);
  if (arguments.json)
    std::cout << line_of(comparison_json(runs)) << '\n';
  else
    print_comparison(std::cout, runs, terminal_width(STDOUT_FILENO));
  for (const std::string& w : comparison_warnings(runs)) std::cerr << "warning: " << w << '\n';
  return kDone;
}

}  // namespace

void add_report(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = program.add_subcommand(
      "report", "Write a page about runs (curves, memory, precision, confusion), or about files of `bench mlp --json`");
  command->add_option("runs", arguments->runs, "folders of runs, or files that `halfstep bench mlp --json` printed")->required();
  command->add_option("--out", arguments->out, "write this HTML file, which needs no other")
      ->type_name("FILE")
      ->capture_default_str();
  command
      ->add_option("--samples", arguments->samples,
                   "show N of the model's wrong answers, those with the most confidence; 0: none")
      ->type_name("N")
      ->check(CLI::Range(int64_t(0), int64_t(500)))
      ->capture_default_str();
  command->add_flag("--no-plan", arguments->no_plan, "leave out the planned memory and precision of a step");
  command->callback([arguments, &chosen] { chosen = [arguments] { return report(*arguments); }; });
}

void add_compare(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command =
      program.add_subcommand("compare", "Print what differs between runs, their values at the best step, and small curves");
  command->add_option("runs", arguments->runs, "folders of runs")->required()->expected(2, 100);
  command->add_flag("--json", arguments->json, "one JSON object");
  command->callback([arguments, &chosen] { chosen = [arguments] { return compare(*arguments); }; });
}

}  // namespace halfstep::app
