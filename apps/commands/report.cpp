// SPDX-License-Identifier: Apache-2.0
#include "apps/report/report.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/exit_codes.h"
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

int report(const ReportArguments& o) {
  const bool bench = are_measurements(o.runs);
  const std::string page = bench ? bench_report_of(o.runs) : report_of(o.runs, {.plan = !o.no_plan, .mistakes = o.samples});
  atomic_write(o.out, page);
  std::cout << o.out << ": " << o.runs.size() << (bench ? " measurement" : " run") << (o.runs.size() == 1 ? ", " : "s, ")
            << page.size() / 1024 << " KiB, for a browser\n";
  return kDone;
}

int compare(const ReportArguments& o) {
  const std::vector<RecordedRun> runs = read_runs(o.runs);
  if (o.json)
    std::cout << line_of(comparison_json(runs)) << '\n';
  else
    print_comparison(std::cout, runs, terminal_width(STDOUT_FILENO));
  return kDone;
}

}  // namespace

void add_report(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<ReportArguments>();
  CLI::App* c = program.add_subcommand(
      "report", "Write a page about runs (curves, memory, precision, confusion), or about files of `bench mlp --json`");
  c->add_option("runs", o->runs, "folders of runs, or files that `halfstep bench mlp --json` printed")->required();
  c->add_option("--out", o->out, "write this HTML file, which needs no other")->type_name("FILE")->capture_default_str();
  c->add_option("--samples", o->samples, "show so many samples that the model answers wrongly with the most confidence; 0: none")
      ->type_name("N")
      ->check(CLI::Range(int64_t(0), int64_t(500)))
      ->capture_default_str();
  c->add_flag("--no-plan", o->no_plan, "leave out the planned memory and precision of a step");
  c->callback([o, &chosen] { chosen = [o] { return report(*o); }; });
}

void add_compare(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<ReportArguments>();
  CLI::App* c =
      program.add_subcommand("compare", "Print what differs between runs, their values at the best step, and small curves");
  c->add_option("runs", o->runs, "folders of runs")->required()->expected(2, 100);
  c->add_flag("--json", o->json, "one JSON object");
  c->callback([o, &chosen] { chosen = [o] { return compare(*o); }; });
}

}  // namespace halfstep::app
