// SPDX-License-Identifier: Apache-2.0
// Assembles a config before it is checked: the files that it extends (merge.cpp), --set (assignments.cpp), ${...} (variables.cpp),
// keys that splits of the data share (shared_keys.cpp).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/config/source.h"

namespace halfstep::app {

// Merges `over` into `base`: objects merge key by key, null deletes, everything else replaces. Origins follow. A key for a section
// that `base` has switched off ("enabled": false) and `over` does not switch on has no effect, and is added to `issues`.
void merge_over(ParsedJson& base, const ParsedJson& over, Issues& issues);

// Reads the file and merges it over all that it extends. Throws ConfigError for unreadable files, for a cycle and for a chain that
// is too long.
ParsedJson load_with_bases(const std::filesystem::path& file, Issues& issues);

// Applies "a.0.b=value": the value is JSON if it parses, else a string. Numbers step into lists. On the way, null, a
// boolean and a component's bare name become objects. Adds what cannot be set to `issues`.
void apply_set(ParsedJson& config, const std::string& assignment, Issues& issues);

// Removes the alternative of a key that --set gives: train.epochs for train.max_steps, and vice versa; the splits' range for
// data.fold. Adds a warning to `issues` for each.
void replace_rivals(ParsedJson& config, const std::vector<std::string>& sets, Issues& issues);

// Copies the keys of data sets in "data" itself into each of data.train, data.val and data.test that is present, lacks the key and
// has a type with that key, and removes them from "data". A key that no split takes remains, and is reported as unknown.
void share_data_keys(ParsedJson& config);
// Adds an issue for an assignment to a section that is switched off after all assignments, such as "amp.dtype=bfloat16" with
// "amp": false, unless another one of `sets` assigns the section's `enabled`.
void check_effective(const ParsedJson& config, const std::vector<std::string>& sets, Issues& issues);

// Replaces ${name}, ${seed}, ${config_dir} and ${env:X} in all strings; sets the default name and output_dir. A string or key
// that is not UTF-8 or holds a NUL character is added to `issues`.
void expand(ParsedJson& config, const std::filesystem::path& file, Issues& issues);

}  // namespace halfstep::app
