// SPDX-License-Identifier: Apache-2.0
// Reads what a run has written: its config, and its metrics as curves.
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

// A parameter in an observed step (docs/diagnostics.md). Unknown shares are NaN.
struct ObservedTensor {
  std::string name;
  int first = 0;  // counts[i] gradients have magnitudes in [2^(first + i), 2^(first + i + 1))
  std::vector<double> counts{};
  double zero, subnormal, overflow, lost, update;
};
// A line of observed.jsonl.
struct ObservedStep {
  double step, scale, lr;  // lr: NaN if unknown
  int64_t later = 0;       // number of later observed steps, which are not shown
  std::vector<ObservedTensor> tensors;
};

// What a run has written.
struct RecordedRun {
  std::string name;  // of its folder
  Json config;       // config.resolved.json
  // Version, commit, device, threads: of run.json's last start, or else of the newest checkpoint; null if unknown.
  Json made_by;
  std::string ending;                    // of run.json: "finished", "running" (also if killed); "" if unknown
  std::map<std::string, Points> values;  // each number of metrics.jsonl by applied step
  // The last value of each; if there is none, run.json's value for the whole run.
  std::map<std::string, double> last;
  std::map<std::string, Json> tables;  // last value of each table, such as a confusion matrix
  std::vector<double> skips;           // steps at whose lines the count of skipped ones had grown
  // The last one whose learning rate is not a small share of the largest: at the end of a schedule lost updates are intended.
  std::optional<ObservedStep> observed;
  std::vector<std::string> classes;  // if the data has names
  int64_t lines_left_out = 0;        // lines that are not JSON objects with a step

  std::string precision() const;    // "float32", "bfloat16"
  std::optional<double> best_step;  // step of the checkpoint `best`
  // The value that checkpoint.monitor names, at the best checkpoint, and its step. Without that checkpoint: the best value, the
  // last one of equal ones.
  struct BestValue {
    std::string key;
    Point point;
    bool larger_is_better = false;
  };
  std::optional<BestValue> best() const;
};

// Throws CheckpointError for a folder that is not a run's, IoError for files that cannot be read. Without checkpoints there are no
// class names.
RecordedRun read_run(const std::filesystem::path& folder, bool with_checkpoints = true);

// Returns the text at a key, or `otherwise` if there is none.
std::string text_at(const Json& object, const char* key, const std::string& otherwise);

// Thins a curve to the smallest and largest value of each pixel, so that no peak is lost: for x from `low` to `high`, `pixels`
// wide.
Points thinned(const Points& points, double low, double high, int pixels);
// Computes an exponential average: each value counts `fade` times the one after it. Omits values that are not finite.
Points smoothed(const Points& points, double fade);

// A key in which configs differ.
struct Difference {
  std::string key;           // dotted
  std::vector<Json> values;  // of each config; null: it has none
};
// Returns the keys in which the runs' configs differ. Ignores names and folders.
std::vector<Difference> differences(const std::vector<RecordedRun>& runs);

// Formats a config's value on one line of at most `most_columns`: a list of components by their types; "" for none.
std::string value_words(const Json& value, size_t most_columns);

// Merges rows for people: keys of data.val and data.test with the values of data.train's join its row, "data.train, val.size".
struct FoldedDifferences {
  std::vector<Difference> shown;
  std::vector<Difference> defaults;  // differences by defaults of data set types alone
};
FoldedDifferences folded(const std::vector<Difference>& all, const std::vector<RecordedRun>& runs);

}  // namespace halfstep::app
