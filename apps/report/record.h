// SPDX-License-Identifier: Apache-2.0
// What a run has written, read back for people: its config and its metrics as curves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/schema/json.h"

namespace halfstep::app {

struct Point {
  double x = 0, y = 0;
};
using Points = std::vector<Point>;

struct RecordedRun {
  std::string name;                      // of its folder
  Json config;                           // config.resolved.json
  // Version, commit, device, threads: of run.json's last start, else of the newest checkpoint; null if unknown.
  Json made_by;
  std::string ending;  // of run.json: "finished", "running" also of a run that was killed; "" if unknown
  std::map<std::string, Points> values;  // each number of metrics.jsonl over the applied steps; what is no number is left out
  std::map<std::string, double> last;    // the last of each
  std::map<std::string, Json> tables;    // the last of each table, such as a confusion matrix
  std::vector<double> skips;             // steps at whose lines the count of skipped ones had grown
  std::vector<std::string> classes;      // names of classes, where the data has them
  int64_t lines_left_out = 0;            // that are no JSON objects with a step

  std::string precision() const;  // "float32", "bfloat16"
  // The value that checkpoint.monitor names, where it was best, and its step.
  struct Best {
    std::string key;
    Point at;
    bool larger_is_better = false;
  };
  std::optional<Best> best() const;
};

// Throws CheckpointError for a folder that is no run's, IoError for files that cannot be read. Without its checkpoints there are no
// names of classes.
RecordedRun read_run(const std::filesystem::path& folder, bool with_checkpoints = true);

// At most the least and the largest value of each pixel, so that no peak is lost: for x from `low` to `high`, `pixels` wide.
Points thinned(const Points& points, double low, double high, int pixels);
// An exponential average: each value counts `fade` times the one after it. What is not finite is left out.
Points smoothed(const Points& points, double fade);

// The keys, dotted, in which configs differ, with the value of each; null where one has none. Names and folders do not count.
struct Difference {
  std::string key;
  std::vector<Json> values;
};
std::vector<Difference> differences(const std::vector<RecordedRun>& runs);

}  // namespace halfstep::app
