// SPDX-License-Identifier: Apache-2.0
// Describes a run, a checkpoint or a file of weights.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>

#include "apps/schema/json.h"

namespace halfstep::app {

// Describes what `path` names: a run's folder, with the model in use (model_in_use in model_file.h), a checkpoint, or weights in
// any form of framework/io/weights/weight_file.h. values: includes the range of each tensor's numbers. key: chooses one dictionary
// of tensors in a file of torch.save that has several.
//
//   kind        "run", "checkpoint", "exported" (by `halfstep export`) or "tensors"
//   checkpoints of a run: step, bytes, latest and best, and "fault" for one that cannot be read
//   checkpoint  whose digests were compared, with step, epoch, applied and skipped steps, metrics, written_by, optimizer, data
//   tensors     name, shape, dtype, numbers; with `values` min, max, mean, std, nan and inf; "unread": true if halfstep has no such
//               tensor
//   key         of weights: where the file has them
//   files       of weights: the files, if there are several
//   others      of weights: the number of entries that are no tensors
//
// Omits unknown values. Throws IoError or DataError for a file that cannot be read, CheckpointError for a run without a readable
// checkpoint.
Json inspect_model(const std::filesystem::path& path, bool values, const std::string& key = "");

// Prints the report. width: of the terminal; 0: no limit.
void print_model_report(std::ostream& out, const Json& report, size_t width = 0);

}  // namespace halfstep::app
