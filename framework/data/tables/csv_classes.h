// SPDX-License-Identifier: Apache-2.0
// Reads the targets of a CsvDataset. Not a public header.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/data/tables/csv_sheet.h"

namespace halfstep {

// Returns the class of each row. classes: the training data's; empty: learnt here. Adds to `notes` how they were read. Throws
// DataError for more than 1000 classes, and for a class that the training data lacks.
std::vector<int64_t> read_classes(const CsvSheet& sheet, size_t column, std::vector<std::string>& classes, DataNotes& notes);

// Drops the rows whose target is `ignored`, if it is negative, all others are whole numbers from 0 on, and the training data's
// `classes` do not have it, and returns their number.
size_t drop_ignored(CsvSheet& sheet, size_t column, int64_t ignored, const std::vector<std::string>& classes);

// Drops the rows without a target, and returns their number. Throws DataError if no row is left.
size_t drop_without_target(CsvSheet& sheet, size_t column, const std::vector<std::string>& missing_words, const std::string& path);

}  // namespace halfstep
