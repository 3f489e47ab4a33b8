// SPDX-License-Identifier: Apache-2.0
// The targets of a CsvDataset. Not a public header.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/data/csv_sheet.h"

namespace halfstep {

// The class of each row. classes: of the training data; empty: learnt here. How they were read is added to `notes`. Throws
// DataError for more than 1000 classes, and for a class that the training data does not have.
std::vector<int64_t> read_classes(const CsvSheet& sheet, size_t column, std::vector<std::string>& classes, DataNotes& notes);

// Leaves out the rows whose target is `ignored`, if it is negative, all others are whole numbers from 0 on, and the training data's
// `classes` do not have it; returns how many those are.
size_t drop_ignored(CsvSheet& sheet, size_t column, int64_t ignored, const std::vector<std::string>& classes);

// Leaves out the rows whose target is missing, and returns how many those are. Throws DataError if no row is left.
size_t drop_without_target(CsvSheet& sheet, size_t column, const std::vector<std::string>& missing_words, const std::string& path);

}  // namespace halfstep
