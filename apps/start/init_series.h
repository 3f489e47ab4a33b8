// SPDX-License-Identifier: Apache-2.0
// A first config for a table whose rows follow each other in time, and what it shares with other tables (apps/start/init_config.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/start/init_columns.h"
#include "apps/start/init_config.h"
#include "apps/start/init_reading.h"

namespace halfstep::app {

// Nothing if the table is no series: it has no time that grows evenly, or the wishes are for rows that do not follow each other.
std::optional<InitParts> init_series(const CsvSheet& sheet, const TableReading& reading, const std::filesystem::path& file,
                                           const InitWishes& wishes);

// Is it called year, date, t and the like?
bool is_named_as_time(const InitColumn& column);

// A line of Python that reads the table, changes it as `t`, and writes another.
std::string in_pandas(const std::filesystem::path& file, const std::string& change);
void add_format(InitParts& out, const TableReading& r, const InitReading& reading);
// train, val: what the parts are.
void add_split(InitParts& out, const char* type, const std::filesystem::path& file, const std::string& train,
               const std::string& val, bool stratified);
void note_odd(InitParts& out, const CsvSheet& sheet, const InitColumn& c);  // cells that are taken for missing ones

}  // namespace halfstep::app
