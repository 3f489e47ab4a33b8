// SPDX-License-Identifier: Apache-2.0
// First configs for tables whose rows follow each other in time; also helpers for other tables (apps/start/init_config.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/start/init_columns.h"
#include "apps/start/init_config.h"
#include "apps/start/init_reading.h"

namespace halfstep::app {

// Returns nothing if the table is not a series: no time that grows evenly, or wishes for independent rows.
std::optional<InitParts> init_series(const CsvSheet& sheet, const TableReading& reading, const std::filesystem::path& file,
                                           const InitWishes& wishes);

// Returns whether it is named year, date, t and the like.
bool is_named_as_time(const InitColumn& column);

// Returns a line of Python that reads the table, changes it as `t`, and writes another.
std::string in_pandas(const std::filesystem::path& file, const std::string& change);
void add_format(InitParts& out, const TableReading& r, const InitReading& reading);
// Adds the splits. train, val: descriptions of the parts.
void add_split(InitParts& out, const char* type, const std::filesystem::path& file, const std::string& train,
               const std::string& val, bool stratified);
void note_odd_cells(InitParts& out, const CsvSheet& sheet, const InitColumn& c);  // notes cells that are declared as missing

}  // namespace halfstep::app
