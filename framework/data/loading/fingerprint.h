// SPDX-License-Identifier: Apache-2.0
// Whether data are the same: the samples of a data set, whatever files they come from, and files, whatever their paths. Of large
// data up to 8 MiB are compared, evenly spread over it, so that the answer takes bounded time; a change of little may then be
// missed.
#pragma once

#include <filesystem>
#include <string>

#include "framework/data/sets/dataset.h"

namespace halfstep {

// Returns the SHA-256 of a data set before transforms: of its size and shapes, all labels known without making batches, and
// samples.
std::string fingerprint(const Dataset& data);
// Returns that of a file's size and bytes; of a folder, of the names and sizes of its pictures, also in folders below. "": it
// cannot be read, or there are none.
std::string fingerprint(const std::filesystem::path& path);

// Returns whether two files have equal bytes; or two folders pictures of equal names and sizes, of which some are compared. Reads
// no further than the first difference. False for what cannot be read, and for empty files.
bool have_same_content(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace halfstep
