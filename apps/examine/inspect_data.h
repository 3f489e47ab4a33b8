// SPDX-License-Identifier: Apache-2.0
// Describes a config's data, to look at before training.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/config.h"
#include "framework/data/transforms/statistics.h"
#include "framework/io/files/png.h"

namespace halfstep::app {

struct DataReport {
  std::string split, describe, summary;  // summary: see DataNotes
  int64_t samples = 0, classes = 0;
  Shape input, target;                                  // of a sample, before transforms
  std::vector<int64_t> class_counts;                    // empty without classes
  std::vector<std::string> class_names;                 // class numbers, if the data has no names
  std::vector<std::string> input_names;                 // empty: inputs are not made of columns
  std::vector<std::string> target_names;                // of a table of numbers
  std::vector<ChannelStatistics> inputs;                // before transforms
  std::vector<ChannelStatistics> transformed;           // after transforms, in epoch 0; empty without transforms
  std::vector<ChannelStatistics> targets;               // of numbers
  int64_t duplicates = 0;                               // samples with the input of an earlier one
  int64_t contradictions = 0;                           // of them those with another target
  std::vector<std::pair<int64_t, int64_t>> examples;    // the first few: a sample, and the one before it
  std::vector<std::pair<std::string, int64_t>> shared;  // of val and test: samples with the input of a sample of train
  std::vector<std::string> warnings;
};

// Reads all samples of the split, and those of train or of val and test, which it is compared with. Throws as build_dataset.
DataReport inspect_data(const Config& config, const std::string& split);
Json report_json(const DataReport& report);
void print_report(std::ostream& out, const DataReport& report);

struct SampleSheet {
  Picture picture;
  std::vector<std::string> rows;  // class of each row; empty if rows have all classes
};
// Draws samples after transforms, in rows from the left; black is a channel's smallest value on the sheet and white its largest.
// With at most 32 classes there is one row for each class, of 4 to 16 evenly spaced samples; else samples are evenly spaced in the
// whole split. Throws ConfigError for data that is not images of 1 or 3 channels.
SampleSheet sample_sheet(const Config& config, const std::string& split, int64_t samples = 64);

}  // namespace halfstep::app
