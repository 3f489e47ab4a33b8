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
std::unique_ptr<RunDir> open_folder(const Config& config, const TrainArguments& o, ProcessGroup* group) {
  std::optional<std::string> resume = o.resume;
  if (!resume && !o.overwrite) resume = config.checkpoint.resume;
  std::unique_ptr<RunDir> dir;
  Json found;
  if (writes(group)) {
    dir = std::make_unique<RunDir>(config.output_dir, resume, o.overwrite);
    if (dir->checkpoint()) found = {{"checkpoint", dir->checkpoint()->string()}, {"continues", dir->continues()}};
  }
  if (!group) return dir;
  found = from_first(*group, found);
  if (dir) return dir;
  RunDir::FoundRun shared;
  if (!found.is_null()) shared = {found["checkpoint"].get<std::string>(), found["continues"].get<bool>()};
  return std::make_unique<RunDir>(config.output_dir, shared);
}

// Opens all pictures before training: an unreadable one would end the run when it is met.
void open_all_pictures(const Config& config, ProcessGroup* group, bool quiet, Progress& progress) {
  PictureReport report = examine_pictures(
      config.json, {.rank = group ? group->rank() : 0, .ranks = group ? group->size() : 1, .draws = !quiet, .stopped = [] {
                      return stop_signal() != 0;
                    }});
  if (group) {
    const std::vector<std::string> all = group->gather(to_json(report).dump());
    report = {};
    for (const std::string& of : all) report.add(read_report(Json::parse(of)));
  }
  if (const std::string warning = report.warning(); !warning.empty()) progress.warn(warning);
  if (report.bad > 0) throw DataError(report.error());
}

int train(const TrainArguments& o) {
  catch_stop_signals();
  apply_threads(o.threads);
  Config config = load_config(o.file, o.config);
  const bool first = detect_launch().rank == 0;
  if (first) print_warnings(config);
  apply_log_level(config.logging, o.quiet || !first);
  if (!config.data_fault.empty()) throw DataError(config.data_fault);
  if (!first && (o.lr_preview || o.dry_run)) return kDone;
  if (o.lr_preview) {
    std::cout << line_of(preview_rates(config)) << '\n';
    return kDone;
  }
  if (o.dry_run) {
    const StepPlan plan = plan_step(config, 0, detect_launch().size);
    if (o.json) {
      Json out = plan_json(plan);
      out["config"] = config.json;
      std::cout << line_of(out) << '\n';
    } else {
      print_summary(std::cout, plan, terminal_width(STDOUT_FILENO));
    }
    return kDone;
  }
  if (o.lines) config.logging.sinks.push_back(kStdoutSink);
  backend_for(config.device);                            // throws before any file is touched
  if (o.profile) config.performance.cuda_graph = false;  // a recorded step is one call
  const std::unique_ptr<ProcessGroup> group =
      join_ranks(config, o.threads, joined("--resume ", o.resume.value_or("(none)"), o.overwrite ? " --overwrite" : ""));
  Progress progress({.out = o.json || o.lines ? stderr : stdout,
                     .quiet = o.quiet,
                     .silent = !first,
                     .color = !o.no_color,
                     .plain = group != nullptr});
  open_all_pictures(config, group.get(), o.quiet, progress);
  std::string measured;
  config.json = with_statistics(config.json, &measured);
  if (!measured.empty()) progress.line(measured);
  const std::unique_ptr<RunDir> dir = open_folder(config, o, group.get());
  Watch watch{.until = o.until};
  std::shared_ptr<const void> kept = std::exchange(config.kept_data, nullptr);
  Trainer trainer(config, *dir, progress, group.get(), o.until ? &watch : nullptr);
  kept.reset();  // the training data has other owners now
  if (o.profile) trainer.profile(*o.profile);
  const uint64_t casts = autocast::cast_count();  // excludes casts of planned steps
  const TrainSummary summary = trainer.run();
  if (config.amp.report) report_amp(summary.json, autocast::cast_count() - casts, progress);
  if (config.logging.report && first && !o.until) write_report(dir->path(), progress);
  if ((o.json || o.lines) && first) std::cout << summary.json.dump() << std::endl;
  if (group) group->close();
  if (o.until) return kDone;
  if (summary.ending != Ending::finished) return summary.ending == Ending::interrupted ? kInterrupted : kRequeue;
  return dir->metrics().lost() == 0 ? kDone : kFailed;
}

}  // namespace

void add_train(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<TrainArguments>();
  CLI::App* c = program.add_subcommand("train", "Train the model that a config describes");
  c->add_option("config", o->file, "a JSON config")->required();
  add_set(*c, o->config);
  c->add_flag("--no-amp", o->config.no_amp, "train in float32 even if the config asks for mixed precision");
  c->add_flag("--dry-run", o->dry_run, "run one step on the meta device: layers, dtypes, memory, operations; and stop");
  c->add_flag("--lr-preview", o->lr_preview, "print the learning rates of the schedule as JSON, and stop");
  c->add_option("--profile", o->profile,
                "warm up for three steps, then time this many steps, every second one, call by call; print where the time goes, "
                "and write profile/")
      ->type_name("STEPS")
      ->check(CLI::Range(int64_t(1), int64_t(1'000'000)))
      ->excludes("--dry-run", "--lr-preview");
  c->add_option("--resume", o->resume, "auto, or a checkpoint to continue from")->type_name("auto|PATH");
  c->add_flag("--overwrite", o->overwrite,
              "start over; the old run in output_dir is removed when the new one has its first checkpoint");
  c->add_flag("--json", o->json, "print the result as one JSON object on stdout; everything else goes to stderr");
  c->add_flag("--lines", o->lines,
              "print each line of metrics.jsonl on stdout when it is written, and the result last, as --json does; everything else "
              "goes to stderr")
      ->excludes("--dry-run", "--lr-preview");
  c->add_option("--until", o->until)->group("");  // last step; used by the ranks of `halfstep verify`
  c->add_flag("--quiet", o->quiet, "print only errors and warnings");
  c->add_flag("--no-color", o->no_color, "no colours (also: NO_COLOR)");
  add_device(*c, o->config.device);
  add_threads(*c, o->threads);
  c->callback([o, &chosen] { chosen = [o] { return train(*o); }; });
}

}  // namespace halfstep::app
