// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "amp/autocast/autocast.h"
#include "apps/catalog/datasets.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/pictures.h"
#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/report/report.h"
#include "apps/session/ranks.h"
#include "apps/session/lr_search.h"
#include "apps/terminal/signals.h"
#include "apps/terminal/terminal.h"
#include "apps/train/plan.h"
#include "apps/train/trainer.h"
#include "framework/backend/backend.h"
#include "framework/comm/launcher.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep::app {
namespace {

struct TrainArguments {
  std::string file;
  ConfigOptions config;
  std::optional<std::string> resume;
  std::optional<int> threads;
  std::optional<int64_t> until, profile;
  bool overwrite = false, dry_run = false, lr_preview = false, json = false, lines = false, quiet = false, no_color = false;
};

void report_amp(const Json& summary, uint64_t casts, Progress& progress) {
  progress.line("amp: " + summary["dtype"].get<std::string>() + ", " + std::to_string(casts) + " casts, " +
                summary["steps_skipped"].dump() + " of " +
                std::to_string(summary["steps_applied"].get<int64_t>() + summary["steps_skipped"].get<int64_t>()) +
                " steps skipped, last loss scale " + summary["scale"].dump());
}

// Writes the report. A failure does not fail the run.
void write_report(const std::filesystem::path& folder, Progress& progress) {
  try {
    atomic_write(folder / "report.html", report_of({folder}));
    progress.line("report: " + (folder / "report.html").string());
  } catch (const Error& e) { progress.warn("no report: " + one_line(e)); }
}

// Opens the run's folder: rank 0 opens it and sends its findings to the others.
std::unique_ptr<RunDir> open_folder(const Config& config, const TrainArguments& arguments, ProcessGroup* group) {
  std::optional<std::string> resume = arguments.resume;
  if (!resume && !arguments.overwrite) resume = config.checkpoint.resume;
  std::unique_ptr<RunDir> dir;
  Json found;
  if (writes(group)) {
    dir = std::make_unique<RunDir>(config.output_dir, resume, arguments.overwrite);
    if (dir->checkpoint()) found = {{"checkpoint", dir->checkpoint()->string()}, {"continues", dir->continues()}};
  }
  if (!group) return dir;
  found = value_of_rank0(*group, found);
  if (dir) return dir;
  RunDir::FoundRun shared;
  if (!found.is_null()) shared = {found["checkpoint"].get<std::string>(), found["continues"].get<bool>()};
  return std::make_unique<RunDir>(config.output_dir, shared);
}

// Opens all pictures before training, which an unreadable one would end. Throws DataError for unreadable ones.
void check_all_pictures(const Config& config, ProcessGroup* group, bool quiet, Progress& progress) {
  PictureReport report = examine_pictures(
      config.json, {.rank = group ? group->rank() : 0, .ranks = group ? group->size() : 1, .draws = !quiet, .stopped = [] {
                      return stop_signal() != 0;
                    }});
  if (group) {
    const std::vector<std::string> all = group->gather(to_json(report).dump());
    report = {};
    for (const std::string& of_rank : all) report.add(read_report(Json::parse(of_rank)));
  }
  for (const std::string& warning : report.warnings()) progress.warn(warning);
  if (report.bad > 0) throw DataError(report.error());
}

int train(const TrainArguments& arguments) {
  catch_stop_signals();
  apply_threads(arguments.threads);
  Config config = load_config(arguments.file, arguments.config);
  const bool is_first = detect_launch().rank == 0;  // of the ranks
  if (is_first) print_warnings(config);
  apply_log_level(config.logging, arguments.quiet || !is_first);
  if (!config.data_fault.empty()) throw DataError(config.data_fault);
  if (!is_first && (arguments.lr_preview || arguments.dry_run)) return kDone;
  if (arguments.lr_preview) {
    std::cout << line_of(preview_rates(config)) << '\n';
    return kDone;
  }
  if (arguments.dry_run) {
    const StepPlan plan = plan_step(config, 0, detect_launch().size);
    if (arguments.json) {
      Json out = plan_json(plan);
      out["config"] = config.json;
      std::cout << line_of(out) << '\n';
    } else {
      print_summary(std::cout, plan, terminal_width(STDOUT_FILENO));
    }
    return kDone;
  }
  if (arguments.lines) config.logging.sinks.push_back(kStdoutSink);
  backend_for(config.device);                            // throws before any file is touched
  if (arguments.profile) config.performance.cuda_graph = false;  // a recorded step is one call
  const std::unique_ptr<ProcessGroup> group =
      join_ranks(config, arguments.threads,
                 joined("--resume ", arguments.resume.value_or("(none)"), arguments.overwrite ? " --overwrite" : ""));
  Progress progress({.out = arguments.json || arguments.lines ? stderr : stdout,
                     .quiet = arguments.quiet,
                     .silent = !is_first,
                     .color = !arguments.no_color,
                     .plain = group != nullptr});
  check_all_pictures(config, group.get(), arguments.quiet, progress);
  std::string measured;
  config.json = with_statistics(config.json, &measured);
  if (!measured.empty()) progress.line(measured);
  const std::unique_ptr<RunDir> dir = open_folder(config, arguments, group.get());
  Watch watch{.until = arguments.until};
  std::shared_ptr<const void> read_data = std::exchange(config.kept_data, nullptr);
  Trainer trainer(config, *dir, progress, group.get(), arguments.until ? &watch : nullptr);
  read_data.reset();  // the trainer holds the training data now
  if (arguments.profile) trainer.profile(*arguments.profile);
  const uint64_t casts = autocast::cast_count();  // excludes casts of planned steps
  const TrainSummary summary = trainer.run();
  if (config.amp.report) report_amp(summary.json, autocast::cast_count() - casts, progress);
  if (config.logging.report && is_first && !arguments.until) write_report(dir->path(), progress);
  if ((arguments.json || arguments.lines) && is_first) std::cout << summary.json.dump() << std::endl;
  if (group) group->close();
  if (arguments.until) return kDone;
  if (summary.ending != Ending::finished) return summary.ending == Ending::interrupted ? kInterrupted : kRequeue;
  return dir->metrics().lost() == 0 ? kDone : kFailed;
}

}  // namespace

void add_train(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = program.add_subcommand("train", "Train the model that a config describes");
  command->add_option("config", arguments->file, "a JSON config")->required();
  add_set(*command, arguments->config);
  command->add_flag("--no-amp", arguments->config.no_amp, "train in float32 even if the config asks for mixed precision");
  command->add_flag("--dry-run", arguments->dry_run,
                    "run one step on the meta device: layers, dtypes, memory, operations; and stop");
  command->add_flag("--lr-preview", arguments->lr_preview, "print the learning rates of the schedule as JSON, and stop");
  command
      ->add_option("--profile", arguments->profile,
                   "warm up for three steps, then time this many steps, every second one, call by call; print where the time goes, "
                   "and write profile/")
      ->type_name("STEPS")
      ->check(CLI::Range(int64_t(1), int64_t(1'000'000)))
      ->excludes("--dry-run", "--lr-preview");
  command->add_option("--resume", arguments->resume, "auto, or a checkpoint to continue from")->type_name("auto|PATH");
  command->add_flag("--overwrite", arguments->overwrite,
                    "start over; the old run in output_dir is removed when the new one has its first checkpoint");
  command->add_flag("--json", arguments->json, "print the result as one JSON object on stdout; everything else goes to stderr");
  command
      ->add_flag(
          "--lines", arguments->lines,
          "print each line of metrics.jsonl on stdout when it is written, and the result last, as --json does; everything else "
          "goes to stderr")
      ->excludes("--dry-run", "--lr-preview");
  command->add_option("--until", arguments->until)->group("");  // last step; used by the ranks of `halfstep verify`
  command->add_flag("--quiet", arguments->quiet, "print only errors and warnings");
  command->add_flag("--no-color", arguments->no_color, "no colours (also: NO_COLOR)");
  add_device(*command, arguments->config.device);
  add_threads(*command, arguments->threads);
  command->callback([arguments, &chosen] { chosen = [arguments] { return train(*arguments); }; });
}

}  // namespace halfstep::app
