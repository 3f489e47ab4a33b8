// SPDX-License-Identifier: Apache-2.0
// Describes the form of data that the readers refuse, as the user gives it: --set data.encoding=latin-1.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/start/init_config.h"
#include "framework/data/tables/csv_cells.h"

namespace halfstep::app {

struct InitReading {
  CsvFormat format{};
  std::optional<bool> header{};
  bool skips_pictures = false;    // that cannot be read
  std::vector<InitLine> lines{};  // of the config, without skip_rows, to which a series adds its own
};

// kind: of the data, for messages. Throws ConfigError for another key than `keys`, and for a value that the key does not take.
InitReading reading_of(const InitWishes& wishes, const std::string& kind, const std::vector<std::string>& keys);
InitReading table_reading(const InitWishes& wishes);
// Adds "skip_rows", if there are any.
void add_skip_rows(InitParts& out, const InitReading& reading);
// Returns the message of an error, with the options of init for the key of a config that its help names.
std::string with_option(const std::string& message);

}  // namespace halfstep::app
