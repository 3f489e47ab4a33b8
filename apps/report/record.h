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

// A parameter in an observed step (docs/diagnostics.md). Shares that are not known are NaN.
struct ObservedTensor {
  std::string name;
  int first = 0;  // counts[i] gradients lie in [2^(first + i), 2^(first + i + 1))
  std::vector<double> counts{};
  double zero, subnormal, overflow, lost, update;
};
struct ObservedStep {
  double step, scale, lr;  // lr: NaN where it is not known
  int64_t later = 0;       // steps after it that are not shown
  std::vector<ObservedTensor> tensors;
};

struct RecordedRun {
  std::string name;  // of its folder
  Json config;       // config.resolved.json
  // Version, commit, device, threads: of run.json's last start, else of the newest checkpoint; null if unknown.
  Json made_by;
  std::string ending;                    // of run.json: "finished", "running" also of a run that was killed; "" if unknown
  std::map<std::string, Points> values;  // each number of metrics.jsonl over the applied steps; what is no number is left out
  // The last of each, and where there is none what run.json says of the whole run.
  std::map<std::string, double> last;
  std::map<std::string, Json> tables;  // the last of each table, such as a confusion matrix
  std::vector<double> skips;           // steps at whose lines the count of skipped ones had grown
  // The last one whose learning rate is no small share of the largest: at the end of a schedule updates are lost by intention.
  std::optional<ObservedStep> observed;
  std::vector<std::string> classes;  // names of classes, where the data has them
  int64_t lines_left_out = 0;        // that are no JSON objects with a step

  std::string precision() const;    // "float32", "bfloat16"
  std::optional<double> best_step;  // of the checkpoint that `best` names
  // Returns the value that checkpoint.monitor names, at the best checkpoint, and its step. Without such a checkpoint it is the best
  // value, of equal ones the last.
  struct BestValue {
    std::string key;
    Point at;
    bool larger_is_better = false;
  };
  std::optional<BestValue> best() const;
};

// Throws CheckpointError for a folder that is no run's, IoError for files that cannot be read. Without its checkpoints there are no
// names of classes.
RecordedRun read_run(const std::filesystem::path& folder, bool with_checkpoints = true);

// The text at a key, or the other where there is none.
std::string text_at(const Json& object, const char* key, const std::string& otherwise);

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

// A value of a config in one line of at most `most` columns: of a list of components their types; "" for none.
std::string value_words(const Json& value, size_t most);

// For people: keys of data.val and data.test with the values of data.train are one row with it, "data.train, val.size".
struct FoldedDifferences {
  std::vector<Difference> shown;
  std::vector<Difference> defaults;  // of data sets of several types: each run has the default of its type, or no such key
};
FoldedDifferences folded(const std::vector<Difference>& all, const std::vector<RecordedRun>& runs);

}  // namespace halfstep::app
