// SPDX-License-Identifier: Apache-2.0
// Columns of a table that give the target away, or that name rows which belong together (apps/start/init_config.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/start/init_columns.h"

namespace halfstep::app {

// Returns whether the column says to which part or fold of the data a row belongs: "split" with "train" and "test", "fold".
bool names_parts(const CsvSheet& sheet, const InitColumn& c);
// Returns whether the column is an id that several rows share, such as a patient's.
bool is_shared_id(const CsvSheet& sheet, const InitColumn& c);
// Returns "equals y under other names"; "" if the column is not the target under another code or in another scale.
std::string why_same_as_target(const CsvSheet& sheet, const TableReading& r, const InitColumn& c, const InitColumn& target);

// Notes what a random part for validation means where columns name parts, or ids that rows share and that are no inputs, with a
// line of Python for better parts.
void note_random_part(InitParts& out, const CsvSheet& sheet, const std::filesystem::path& file, const std::vector<InitColumn>& all,
                      const InitColumn& target, const std::vector<const InitColumn*>& inputs);

}  // namespace halfstep::app
