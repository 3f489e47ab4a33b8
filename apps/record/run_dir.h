// SPDX-License-Identifier: Apache-2.0
// The folder of a run: config.resolved.json, run.json, metrics.jsonl and its other formats, observed.jsonl, report.html,
// checkpoints and capsules. Only one run at a time writes there.
//
// A run that is overwritten is moved to <folder>/replaced-run just before the new one's first step, and removed when the new one
// has its first checkpoint. If the new run ends before that, the old one is moved back, at once or, after a kill, by the next
// start; the new one's capsules stay beside the old run's. replaced-run.moving and replaced-run.old are the same folder while it
// is filled or emptied, so that a start after a crash knows which of the two runs counts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/record/metric_sinks.h"
#include "apps/record/metrics_file.h"
#include "apps/record/run_lock.h"
#include "apps/record/run_record.h"
#include "apps/schema/json.h"

namespace halfstep::app {

// Prefix of the names of capsules whose run failed before its first checkpoint.
inline const std::string kFailedCapsule = "failed-";

class RunDir {
 public:
  // Locks the folder if it exists, and cleans up after killed runs, without changing an older run. resume: unset, "auto" or a
  // checkpoint's path. Throws ConfigError if another run holds the lock, or if the folder holds an older run that is neither
  // resumed nor to be overwritten, CheckpointError if there are checkpoints to resume from but none can be read, and IoError.
  [[nodiscard]] RunDir(std::filesystem::path path, const std::optional<std::string>& resume, bool overwrite);
  // Rank 0's findings, for a rank that leaves the folder to rank 0; it locks and writes nothing.
  struct FoundRun {
    std::optional<std::filesystem::path> checkpoint;
    bool continues = false;
  };
  [[nodiscard]] RunDir(std::filesystem::path path, const FoundRun& found);
  ~RunDir();
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Returns the checkpoint to resume from; nothing for a new run.
  const std::optional<std::filesystem::path>& checkpoint() const { return checkpoint_; }
  // Returns whether that checkpoint is in this folder.
  bool continues() const { return continues_; }

  // Takes over the folder: moves away a run that is overwritten and unreadable checkpoints, points `latest` and `best` to the
  // resumed run's, writes config.resolved.json and opens the sinks of metrics. Returns the step of the best checkpoint, -1 for
  // none.
  int64_t open(const Json& config, const ResumePoint& from, const std::vector<std::string>& sinks);
  // Write run.json in an open folder; without open(), and on ranks that write nothing, they do nothing.
  void record_start(const Json& facts, int64_t step);
  void record_end(const std::string& ending, const Json& summary);
  MetricSinks& metrics() { return metrics_; }
  // Returns observed.jsonl, created on first use; discards lines if metrics are not written.
  MetricsFile& observed();
  void sync();  // writes metrics and observed.jsonl to the disk

  // Removes the run that this one overwrites, if any. Call it when this one has a checkpoint, or is finished.
  void discard_overwritten();

 private:
  void lock();        // and cleans up after killed runs
  void move_aside();  // moves the run's files into replaced-run
  void recover();
  void remove_replaced();

  std::filesystem::path path_;
  std::optional<RunLock> lock_;
  std::optional<std::filesystem::path> checkpoint_;
  std::vector<std::filesystem::path> unreadable_;  // newer than checkpoint_
  bool continues_ = false, overwrites_ = false, reads_only_ = false;
  bool is_replacing_ = false;  // whether replaced-run holds the run that this one overwrites
  MetricSinks metrics_;
  std::optional<RunRecord> record_;
  bool is_open_ = false;
  std::optional<MetricsFile> observed_;
  std::optional<ResumePoint> observed_from_;  // set if metrics are written
};

// Returns the folder of a run that --overwrite was replacing when the new run was killed, for messages.
std::optional<std::filesystem::path> replaced_run(const std::filesystem::path& dir);

}  // namespace halfstep::app
