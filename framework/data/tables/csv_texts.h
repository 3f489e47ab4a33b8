// SPDX-License-Identifier: Apache-2.0
// Makes the inputs of a CsvDataset whose features are texts. Not a public header.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/data/tables/csv_sheet.h"
#include "framework/data/tokens/token_rows.h"

namespace halfstep {

// Learns tokens from the texts. Throws DataError with the file's name.
TokenRows learn_tokens(const TokenRowOptions& options, const TextColumns& texts, std::span<const int64_t> rows,
                       const std::string& path);

// Returns [rows, length] i64. Adds to `notes` how many texts were cut, and so on.
Tensor tokens_of_rows(const TokenRows& tokens, const TextColumns& texts, std::span<const int64_t> rows, const CsvSheet& sheet,
                      const std::vector<size_t>& columns, DataNotes& notes);

}  // namespace halfstep
