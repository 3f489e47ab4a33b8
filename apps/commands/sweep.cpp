// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/catalog/infer.h"
#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/record/run_lock.h"
#include "apps/report/report.h"
#include "apps/sweep/sweep_results.h"
#include "apps/sweep/sweep_run.h"
#include "apps/terminal/signals.h"
#include "apps/terminal/terminal.h"
#include "framework/backend/backend.h"
#include "framework/base/list_text.h"
#include "framework/comm/launcher.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr size_t kReportedMembers = 20;  // more curves would be unreadable

struct SweepArguments {
  std::string file;
  std::vector<std::string> lists;  // KEY=VALUE,VALUE; if given, `file` is a config
  ConfigOptions config;
  std::optional<int> threads;
  int jobs = 1;
  bool dry_run = false, retry = false, json = false;
};

// Locks the folder for one sweep. Throws if it is a run's.
RunLock lock_folder(const fs::path& folder) {
  check<ConfigError>(!fs::exists(folder / "config.resolved.json"), "sweep", folder.string(), " holds a run",
                     Help{"give the sweep another \"output_dir\", or another \"name\""});
  std::error_code error;
  fs::create_directories(folder, error);
  check<IoError>(!error, "sweep", "output_dir must be a folder that can be written, got ", folder.string(), " (", error.message(),
                 ")");
  try {
    return RunLock(folder);
  } catch (const ConfigError& e) {
    const std::string text = e.what();
    fail<ConfigError>("sweep", text.substr(text.find("] ") + 2, text.find('\n') - text.find("] ") - 2),
                      Help{"wait for it or stop it, or give another \"output_dir\""});
  }
}

void introduce(std::ostream& out, const SweepArguments& arguments, const SweepFile& sweep, const SweepMembers& members) {
  const auto count_of = [](size_t count, const char* unit) { return joined(count, ' ', unit, count == 1 ? "" : "s"); };
  out << sweep.name << ": " << count_of(members.all.size(), "member");
  if (members.repeated > 0) out << " (" << members.repeated << " left out, whose config is another's)";
  out << " -> " << sweep.output_dir.string() << '\n';
  size_t finished = 0, failed = 0, added = 0;
  for (const SweepMember& m : members.all) {
    const MemberState state = state_of(m);
    finished += state.is_finished(), failed += !state.is_finished() && state.has_failed(), added += !m.has_folder;
  }
  if (finished > 0) out << "  finished before: " << finished << '\n';
  if (failed > 0)
    out << "  failed before: " << failed << (arguments.retry ? ", tried again" : "; --retry tries them again") << '\n';
  if (added > 0 && (added < members.all.size() || !members.others.empty())) out << "  new: " << added << '\n';
  if (!members.others.empty())
    out << "  not members of " << arguments.file << ", left alone: " << list_text(members.others, 5) << '\n';
}

int list_members(const SweepArguments& arguments, const SweepFile& sweep, const SweepMembers& members) {
  std::vector<SweepResult> rows;
  for (const SweepMember& m : members.all) rows.push_back({&m, state_of(m)});
  if (arguments.json) {
    std::cout << line_of(results_json(sweep, members, rows)) << '\n';
    return kDone;
  }
  introduce(std::cout, arguments, sweep, members);
  print_results(std::cout, sweep, members, rows, terminal_width(STDOUT_FILENO));
  for (const std::string& w : changed_files(rows)) std::cerr << "warning: " << w << '\n';
  return kDone;
}

// Writes a report of the best members. A failure to write it does not fail the sweep.
void write_page(const fs::path& folder, const std::vector<SweepResult>& results, std::ostream& lines) {
  std::vector<fs::path> runs;
  for (const SweepResult& r : results)
    if (!r.state.ending.empty() && runs.size() < kReportedMembers) runs.push_back(r.member->folder);
  if (runs.empty()) return;
  try {
    atomic_write(folder / "report.html", report_of(runs, {.plan = false, .mistakes = 0}));
    lines << "report: " << (folder / "report.html").string() << '\n';
  } catch (const Error& e) { std::cerr << "warning: no report: " << one_line(e) << '\n'; }
}

int sweep_config_file(const SweepArguments& arguments) {
  catch_stop_signals();
  apply_threads(arguments.threads);
  check<ConfigError>(detect_launch().size == 1, "sweep", "a sweep starts its members itself, and is one process",
                     Help{"start it without mpirun or torchrun"});
  const SweepFile sweep = arguments.lists.empty() ? read_sweep(arguments.file) : sweep_of(arguments.file, arguments.lists);
  SweepMembers members = check_members(sweep, arguments.config.sets);
  for (const std::string& w : members.warnings) std::cerr << "warning: " << w << '\n';
  if (arguments.dry_run) {
    assign_folders(sweep, members);
    return list_members(arguments, sweep, members);
  }
  const RunLock lock = lock_folder(sweep.output_dir);
  assign_folders(sweep, members);
  std::ostream& lines = arguments.json ? std::cerr : std::cout;
  introduce(lines, arguments, sweep, members);
  make_folders(members);
  train_members(members, {.program = fs::read_symlink("/proc/self/exe"),
                          .jobs = arguments.jobs,
                          .threads = num_threads(),
                          .retry = arguments.retry,
                          .print_line = [&](const std::string& line) { lines << line << std::endl; }});
  const std::vector<SweepResult> results = sweep_results(members);
  const Json json = results_json(sweep, members, results);
  atomic_write(sweep.output_dir / "sweep.json", json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  const size_t left = members_to_train(members, false).size();
  lines << '\n';
  print_results(lines, sweep, members, results, terminal_width(arguments.json ? STDERR_FILENO : STDOUT_FILENO));
  print_spreads(lines, sweep, members, results);
  for (const std::string& w : changed_files(results)) std::cerr << "warning: " << w << '\n';
  write_page(sweep.output_dir, results, lines);
  if (!json["best"].is_null()) lines << "best: " << results[0].member->folder.string() << '\n';
  if (left > 0)
    lines << "stopped with " << left << " of " << members.all.size() << " members to train; the same command continues\n";
  if (arguments.json) std::cout << line_of(json) << '\n';
  if (left > 0) return stop_signal() == SIGINT ? kInterrupted : kRequeue;
  const bool failed = std::any_of(results.begin(), results.end(), [](const SweepResult& r) { return r.state.has_failed(); });
  return failed ? kFailed : kDone;
}

}  // namespace

void add_sweep(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<SweepArguments>();
  CLI::App* command =
      program.add_subcommand("sweep", "Train a config with each of many settings, and order the runs by their best value");
  command
      ->add_option("sweep", arguments->file, "a JSON file: a config, and the values of its keys to try; or a config, with KEY=LIST")
      ->required();
  command->add_option("lists", arguments->lists, "values of the config's keys to try, such as seed=0,1,2 optimizer.lr=0.1,0.01")
      ->type_name("KEY=LIST");
  command->add_option("--jobs", arguments->jobs, "number of runs at the same time, which share the threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add_set(*command, arguments->config);
  command->get_option("--set")->allow_extra_args(false);  // a KEY=LIST may follow its value
  command->add_flag("--dry-run", arguments->dry_run, "check the configs of all members, list them, and stop");
  command->add_flag("--retry", arguments->retry, "train members again that failed before");
  command->add_flag("--json", arguments->json, "print the results as one JSON object on stdout; everything else goes to stderr");
  add_threads(*command, arguments->threads);
  command->callback([arguments, &chosen] { chosen = [arguments] { return sweep_config_file(*arguments); }; });
}

}  // namespace halfstep::app
