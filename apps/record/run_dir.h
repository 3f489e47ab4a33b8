// SPDX-License-Identifier: Apache-2.0
// The folder of a run: config.resolved.json, run.json, metrics.jsonl and its other forms, observed.jsonl, report.html, the
// checkpoints and capsules. One run at a time writes there.
//
// A run that is overwritten is moved to <folder>/replaced-run when the new one is about to take its first step, and removed when
// the new one has its first checkpoint. A new run that ends before, however it ends, leaves the old one whole: it is moved back at
// once, or by the next start after a kill; the new one's capsules stay beside its own. replaced-run.moving and replaced-run.old are
// the same folder while it is being filled or emptied, so that a start after a crash knows which of the two runs counts.
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

// The names of capsules begin so whose run failed before its first checkpoint.
inline const std::string kFailedCapsule = "failed-";

class RunDir {
 public:
  // Locks the folder if it exists, and cleans up after killed runs. resume: nothing, "auto" or a checkpoint's path. Nothing of
  // an older run is changed. Throws ConfigError when another run holds the lock, or when the folder holds an older run that is
  // neither resumed nor to be overwritten, CheckpointError when there are checkpoints to resume from but none can be read, and
  // IoError.
  [[nodiscard]] RunDir(std::filesystem::path path, const std::optional<std::string>& resume, bool overwrite);
  // For a rank that leaves the folder to rank 0, which found these; nothing is locked or written.
  struct Found {
    std::optional<std::filesystem::path> checkpoint;
    bool continues = false;
  };
  [[nodiscard]] RunDir(std::filesystem::path path, const Found& found);
  ~RunDir();
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // What to resume from; nothing for a new run.
  const std::optional<std::filesystem::path>& checkpoint() const { return checkpoint_; }
  // Does that checkpoint lie in this folder?
  bool continues() const { return continues_; }

  // From here on the folder is this run's: moves a run that is overwritten and checkpoints that cannot be read out of the way,
  // points `latest` and `best` where the resumed run says, writes config.resolved.json and opens the sinks of metrics. Returns the
  // step of the checkpoint that is the best now, -1 for none.
  int64_t open(const Json& config, const ResumePoint& from, const std::vector<std::string>& sinks);
  // run.json, of a folder that is open; without open() and on ranks that write nothing these do nothing.
  void record_start(const Json& facts, int64_t step);
  void record_end(const std::string& ending, const Json& summary);
  MetricSinks& metrics() { return metrics_; }
  // observed.jsonl, which is made when it is first asked for; where metrics are not written, it takes lines and writes none.
  MetricsFile& observed();
  void sync();  // both, to the disk

  // The new run has a whole checkpoint, or is finished: the one that it overwrote goes.
  void established();

 private:
  void lock();
  void move_aside();
  void recover();
  void discard_replaced();

  std::filesystem::path path_;
  std::optional<RunLock> lock_;
  std::optional<std::filesystem::path> checkpoint_;
  std::vector<std::filesystem::path> unreadable_;  // newer than checkpoint_
  bool continues_ = false, overwrites_ = false, replacing_ = false, reads_only_ = false;
  MetricSinks metrics_;
  std::optional<RunRecord> record_;
  bool open_ = false;
  std::optional<MetricsFile> observed_;
  std::optional<ResumePoint> observed_from_;  // where metrics are written
};

// The folder of a run that --overwrite was replacing when its successor was killed, if there is one. For messages.
std::optional<std::filesystem::path> replaced_run(const std::filesystem::path& dir);

}  // namespace halfstep::app
