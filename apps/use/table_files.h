// SPDX-License-Identifier: Apache-2.0
// Reads tables and series to be predicted as a run read those of its training data.
#pragma once

#include <filesystem>

#include "apps/schema/json.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/time_series.h"

namespace halfstep::app {

// Work as read_csv_rows and read_last_window. A file that cannot be read whole is read without the lines that `skip_rows` of the
// run's config lists and that are no records, if that helps: a title or units, as in the training data. In errors a help that names
// a key of a config says what predict can do instead.
CsvRows rows_of_table(const std::filesystem::path& path, const CsvOptions& training, const Json& config);
LastWindow last_window_of(const std::filesystem::path& path, const TimeSeriesOptions& training, const Json& config);

}  // namespace halfstep::app
