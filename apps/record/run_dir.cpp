// SPDX-License-Identifier: Apache-2.0
#include "apps/record/run_dir.h"

#include <algorithm>

#include "apps/catalog/infer.h"
#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace fs = std::filesystem;
namespace {

constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kReport = "report.html";  // of logging.report
constexpr const char* kObserved = "observed.jsonl";
constexpr const char* kRecord = "run.json";
constexpr const char* kConfig = "config.resolved.json";
constexpr const char* kCapsules = "capsules";
constexpr const char *kReplaced = "replaced-run", *kMoving = "replaced-run.moving", *kEmptying = "replaced-run.old";

bool holds_run(const fs::path& dir) {
  std::error_code ignored;
  return !list_checkpoints(dir).empty() || fs::exists(dir / "latest", ignored) ||
         (fs::is_regular_file(dir / kMetrics, ignored) && fs::file_size(dir / kMetrics, ignored) > 0);
}

void check_free(const fs::path& dir, bool is_free) {
  check<ConfigError>(is_free, "train", dir.string(), " already holds a run",
                     Help{"--resume auto continues it, --overwrite starts over, --set output_dir=DIR writes elsewhere"});
}

void check_folder(const fs::path& dir, bool is_usable, const std::string& why) {
  check<IoError>(is_usable, "train", "output_dir must be a folder that can be written, got ", dir.string(), " (", why, ")");
}

bool is_of_run(const std::string& name) {
  for (const char* own : {kMetrics, kMetricsCsv, kObserved, kConfig, kRecord, kReport, kCapsules})
    if (name == own) return true;
  return name.starts_with(kEventsPrefix) || is_checkpoint_name(name);
}

// Returns whether the run failed before its first checkpoint.
bool failed_early(const fs::path& dir) {
  std::error_code ignored;
  if (!list_checkpoints(dir).empty() || !fs::is_regular_file(dir / kRecord, ignored)) return false;
  try {
    return read_json<Json>(read_file(dir / kRecord, kMostRecordBytes)).value("ending", "") == "failed";
  } catch (const Error&) {
  } catch (const Json::exception&) {}  // damaged: unknown
  return false;
}

std::vector<fs::path> entries(const fs::path& dir) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(dir)) out.push_back(entry.path());
  return out;
}

}  // namespace

RunDir::RunDir(fs::path path, const std::optional<std::string>& resume, bool overwrite) : path_(std::move(path)) {
  std::error_code error;
  const fs::file_type type = fs::status(path_, error).type();
  const bool is_free = type == fs::file_type::not_found && error != std::errc::not_a_directory;
  check_folder(path_, is_free || type == fs::file_type::directory, error ? error.message() : "it is a file");
  if (type == fs::file_type::directory) lock();
  const bool automatic = resume == "auto";
  if (automatic) {
    try {
      checkpoint_ = latest_checkpoint(path_, &unreadable_);
    } catch (const CheckpointError& e) {
      throw CheckpointError(std::string(e.what()) +
                            "\nhelp: nothing was changed; --overwrite in place of --resume starts over, --set "
                            "output_dir=DIR writes elsewhere");
    }
  } else if (resume) {
    checkpoint_ = resolve_checkpoint(*resume);
  }
  continues_ = checkpoint_ && (automatic || fs::equivalent(checkpoint_->parent_path() / ".", path_, error));
  if (continues_ || automatic || !holds_run(path_)) return;
  check_free(path_, overwrite);
  overwrites_ = true;
}

RunDir::RunDir(fs::path path, const FoundRun& found)
    : path_(std::move(path)), checkpoint_(found.checkpoint), continues_(found.continues), reads_only_(true) {}

RunDir::~RunDir() {
  if (!is_replacing_) return;
  try {
    recover();
  } catch (const std::exception& e) {
    logging::warn("the overwritten run in " + (path_ / kReplaced).string() +
                  " could not be moved back; the next start tries again");
  }
}

void RunDir::lock() {
  lock_.emplace(path_);
  recover();
  if (!lock_->is_held()) return;
  clean_up_checkpoints(path_);
  for (const char* file : {kMetrics, kMetricsCsv, kObserved, kConfig, kRecord}) remove_abandoned(path_ / file);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_ / kCapsules, ignored))
    if (entry.path().string().find(".safetensors.tmp-") != std::string::npos) fs::remove(entry.path(), ignored);
}

int64_t RunDir::open(const Json& config, const ResumePoint& from, const std::vector<std::string>& sinks) {
  if (reads_only_) return from.best_step;
  std::error_code error;
  fs::create_directories(path_, error);
  check_folder(path_, !error, error.message());
  if (!lock_) {
    lock();
    check_free(path_, !holds_run(path_));  // another process may have been faster
  }
  if (overwrites_) move_aside();
  if (!continues_ && fs::is_directory(path_ / kCapsules, error))
    fs::remove_all(path_ / kCapsules, error);  // of a run that left nothing else
  for (const fs::path& checkpoint : unreadable_) set_aside(checkpoint);
  atomic_write(path_ / kConfig, write_json(config, 2, "config") + "\n");
  metrics_ = MetricSinks(sinks, path_, from, config);
  // The line of an observed step is written before that step's checkpoint.
  const bool writes_metrics = std::any_of(sinks.begin(), sinks.end(), [](const auto& sink) { return sink != kStdoutSink; });
  if (writes_metrics) observed_from_ = ResumePoint{.step = from.step, .last_log_step = from.step};
  if (writes_metrics && fs::exists(path_ / kObserved, error)) observed();
  is_open_ = true;
  if (!continues_) return from.best_step;

  mark_latest(path_, checkpoint_step(*checkpoint_));
  const std::vector<int64_t> steps = list_checkpoints(path_);
  const auto has_checkpoint = [&](int64_t step) { return std::find(steps.begin(), steps.end(), step) != steps.end(); };
  if (has_checkpoint(from.best_step)) {
    mark_best(path_, from.best_step);
    return from.best_step;
  }
  try {  // the checkpoint of an older halfstep may lack best_step
    const auto best = best_checkpoint(path_);
    return best && has_checkpoint(checkpoint_step(*best)) ? checkpoint_step(*best) : -1;
  } catch (const CheckpointError&) { return -1; }
}

void RunDir::record_start(const Json& facts, int64_t step) {
  if (is_open_) record_.emplace(path_ / kRecord, facts, step, continues_);
}

void RunDir::record_end(const std::string& ending, const Json& summary) {
  if (record_) record_->end(ending, summary);
}

MetricsFile& RunDir::observed() {
  if (observed_) return *observed_;
  observed_.emplace();
  try {
    if (observed_from_) observed_ = MetricsFile(path_ / kObserved, *observed_from_);
  } catch (const IoError& e) {  // during a run, which does not depend on this line
    logging::warn(joined(one_line(e), "; training continues without this file"));
  }
  return *observed_;
}

void RunDir::sync() {
  metrics_.sync();
  if (observed_) observed_->sync();
}

void RunDir::discard_overwritten() {
  if (!is_replacing_) return;
  remove_replaced();
  is_replacing_ = false;
}

void RunDir::move_aside() {
  is_replacing_ = true;
  const fs::path moving = path_ / kMoving;
  fs::create_directory(moving);
  for (const fs::path& entry : entries(path_)) {
    if (is_of_run(entry.filename().string())) fs::rename(entry, moving / entry.filename());
  }
  sync_directory(moving);
  sync_directory(path_);
  fs::rename(moving, path_ / kReplaced);
  sync_directory(path_);
}

// Restores the old run if the new one has no checkpoint: the new run counts from its first checkpoint on.
void RunDir::recover() {
  const fs::path moving = path_ / kMoving, replaced = path_ / kReplaced;
  std::error_code ignored;
  fs::remove_all(path_ / kEmptying, ignored);
  if (fs::exists(replaced) && !list_checkpoints(path_).empty()) remove_replaced();
  if (fs::exists(replaced)) fs::rename(replaced, moving);
  if (!fs::exists(moving)) return;
  if (failed_early(moving) && fs::exists(path_ / kConfig)) {  // of two failed runs, the last one is kept
    fs::remove_all(moving);
    return;
  }
  for (const fs::path& entry : entries(moving)) {
    const fs::path to = path_ / entry.filename();
    if (entry.filename() == kCapsules && fs::exists(to)) {  // keep the new run's capsules, under another name
      for (const fs::path& file : entries(to)) fs::rename(file, to / (kFailedCapsule + file.filename().string()));
      for (const fs::path& file : entries(entry))  // of earlier failed runs
        if (!file.filename().string().starts_with(kFailedCapsule)) fs::rename(file, to / file.filename());
      fs::remove_all(entry);
    } else {
      fs::rename(entry, to);
    }
  }
  fs::remove(moving);
  sync_directory(path_);
  logging::warn("the run that was being overwritten in " + path_.string() +
                " was put back, because the new one ended before its first checkpoint");
}

void RunDir::remove_replaced() {
  fs::rename(path_ / kReplaced, path_ / kEmptying);
  std::error_code ignored;  // the next start removes what is left
  fs::remove_all(path_ / kEmptying, ignored);
}

std::optional<fs::path> replaced_run(const fs::path& dir) {
  std::error_code error;
  for (const char* name : {kReplaced, kMoving}) {
    if (fs::is_directory(dir / name, error)) return dir / name;
  }
  return {};
}

}  // namespace halfstep::app
