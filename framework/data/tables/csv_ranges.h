// SPDX-License-Identifier: Apache-2.0
// Compares the inputs of a table with those of the training data, and numbers with float32. Not a public header.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/data/tables/csv.h"
#include "framework/data/tables/csv_columns.h"

namespace halfstep {

// Counts values outside of the training data's ranges, if the encoding has these.
class CsvRangeCheck {
 public:
  // place: of rows in examples, "row" or "line".
  CsvRangeCheck(const CsvEncoding& encoding, const char* place) : encoding_(encoding), place_(place) {}
  // Compares a value of input j before scaling; `number` is that of its row or line.
  void add(const CsvFeature& feature, size_t j, double value, int64_t number);
  int64_t far() const { return far_; }
  const std::string& far_example() const { return far_example_; }  // as CsvRows::far_value
  // Return warnings, "" for none: of far values; of values in columns of which the training data has one value alone.
  std::string far_text() const;
  std::string untrained_text() const;

 private:
  const CsvEncoding& encoding_;
  const char* place_;
  int64_t far_ = 0, untrained_ = 0;
  std::string far_example_, untrained_example_;
};

// Adds these warnings for held-out data.
void warn_of_ranges(const std::vector<CsvFeature>& features, const std::vector<int64_t>& rows, const CsvSheet& sheet,
                    const CsvEncoding& encoding, DataNotes& notes);
// Adds warnings of training data's inputs and targets that become equal in float32. targets: empty for classes.
void warn_of_equal_floats(const std::vector<CsvFeature>& features, const std::vector<double>& targets,
                          const std::vector<int64_t>& rows, const CsvOptions& o, const CsvEncoding& encoding,
                          const ColumnScale& target_scale, DataNotes& notes);

}  // namespace halfstep
