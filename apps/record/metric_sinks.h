// SPDX-License-Identifier: Apache-2.0
// The sinks that logging.sinks names, as one: metrics.jsonl, metrics.csv, and event files of TensorBoard; and stdout.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/record/metric_sink.h"

namespace halfstep::app {

inline constexpr const char* kMetricsCsv = "metrics.csv";
inline constexpr const char* kStdoutSink = "stdout";  // no choice of logging.sinks: `halfstep train --lines` adds it
inline constexpr const char* kEventsPrefix = "events.out.tfevents.";  // the start of the name by which TensorBoard knows such files

// Is an entry's value the table of a confusion matrix: a row for each class, of numbers?
bool is_confusion_matrix(const Json& value);

class MetricSinks : public MetricSink {
 public:
  MetricSinks() = default;  // takes entries and writes none
  // Names: "jsonl", "csv", "tensorboard", kStdoutSink; one that is given twice counts once. Throws IoError.
  // config: of the run, for TensorBoard to compare runs by.
  MetricSinks(const std::vector<std::string>& names, const std::filesystem::path& folder, const ResumePoint& from,
              const Json& config);
  void write(const Json& entry) override;
  void sync() override;
  int64_t lost() const override;  // of all sinks together

 private:
  std::vector<std::unique_ptr<MetricSink>> sinks_;
};

// A table with a row an entry and a column a number; what an entry lacks is empty, and a number that is not finite is "nan". A new
// name adds a column: the head is written anew then, and earlier rows are shorter than it, which readers take as empty cells.
class CsvSink : public FileSink {
 public:
  CsvSink(const std::filesystem::path& path, const ResumePoint& from);  // throws IoError
  void write(const Json& entry) override;
  int64_t lost() const override { return lost_ + FileSink::lost(); }

 private:
  std::filesystem::path path_;
  std::vector<std::string> columns_;
  int64_t lost_ = 0;  // of earlier forms of the file
};

// An event file of TensorBoard, a new one each time a run starts or resumes. It begins with the start of a session, by which
// TensorBoard forgets what an earlier file says of later steps, and has the numbers and words of the config that its page HPARAMS
// compares runs by. A confusion matrix becomes a picture of its page IMAGES.
// Format: tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto
class EventSink : public FileSink {
 public:
  EventSink(const std::filesystem::path& folder, const ResumePoint& from, const Json& config);  // throws IoError
  void write(const Json& entry) override;
};

}  // namespace halfstep::app
