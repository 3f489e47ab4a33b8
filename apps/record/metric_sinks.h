// SPDX-License-Identifier: Apache-2.0
// The sinks of logging.sinks, as one: metrics.jsonl, metrics.csv, and TensorBoard's event files; and stdout.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/record/metric_sink.h"

namespace halfstep::app {

inline constexpr const char* kMetricsCsv = "metrics.csv";
inline constexpr const char* kStdoutSink = "stdout";  // not a choice of logging.sinks: `halfstep train --lines` adds it
inline constexpr const char* kEventsPrefix = "events.out.tfevents.";  // prefix of file names that TensorBoard recognises

// Returns whether an entry's value is a confusion matrix: a row of numbers for each class.
bool is_confusion_matrix(const Json& value);

class MetricSinks : public MetricSink {
 public:
  MetricSinks() = default;  // discards entries
  // Names: "jsonl", "csv", "tensorboard", kStdoutSink; duplicates count once. config: of the run, for TensorBoard's comparison of
  // runs. Throws IoError.
  MetricSinks(const std::vector<std::string>& names, const std::filesystem::path& folder, const ResumePoint& from,
              const Json& config);
  void write(const Json& entry) override;
  void sync() override;
  int64_t lost() const override;  // sum over all sinks

 private:
  std::vector<std::unique_ptr<MetricSink>> sinks_;
};

// A table with a row for each entry and a column for each number; missing values are empty, and numbers that are not finite are
// "nan". A new name adds a column: the header is then rewritten, and earlier rows are shorter, which readers take as empty cells.
class CsvSink : public FileSink {
 public:
  CsvSink(const std::filesystem::path& path, const ResumePoint& from);  // throws IoError
  void write(const Json& entry) override;
  int64_t lost() const override { return lost_ + FileSink::lost(); }

 private:
  std::filesystem::path path_;
  std::vector<std::string> columns_;
  int64_t lost_ = 0;  // rows that were lost before the file was rewritten
};

// An event file of TensorBoard, a new one each time a run starts or resumes. It begins with the start of a session, which makes
// TensorBoard drop later steps of earlier files, and contains the numbers and words of the config, by which the page HPARAMS
// compares runs. A confusion matrix becomes a picture on the page IMAGES. Format: tensorflow/core/lib/io/record_writer.h and
// tensorflow/core/util/event.proto
class EventSink : public FileSink {
 public:
  EventSink(const std::filesystem::path& folder, const ResumePoint& from, const Json& config);  // throws IoError
  void write(const Json& entry) override;
};

}  // namespace halfstep::app
