// SPDX-License-Identifier: Apache-2.0
// How a config comes about before it is checked: extends, --set, ${...}, keys that splits of the data share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/config/source.h"

namespace halfstep::app {

// `over` on top of `base`: objects merge key by key, null deletes, everything else replaces. Origins follow. A key for a section
// that `base` has switched off ("enabled": false) and `over` does not switch on has no effect, and is added to `issues`.
void merge_over(ParsedJson& base, const ParsedJson& over, Issues& issues);

// The file with all it extends merged under it. Throws ConfigError for unreadable files, for a circle and for a chain without end.
ParsedJson load_with_bases(const std::filesystem::path& file, Issues& issues);

// "a.0.b=value": the value is JSON if it can be, else a string. Steps through numbers into lists; `true` and a component's bare
// name become objects on the way. What cannot be set is added to `issues`.
void apply_set(ParsedJson& config, const std::string& assignment, Issues& issues);

// What is set takes the place of what the config has in its stead: train.max_steps of train.epochs, and the other way round;
// data.fold of the splits' range. `issues` has a warning for each that says so.
void replace_rivals(ParsedJson& config, const std::vector<std::string>& sets, Issues& issues);

// Copies the keys of data sets in "data" itself into each of data.train, data.val and data.test that is present, does not set the
// key and has a type with that key, and removes them from "data". A key that no split takes remains, and is reported as unknown.
void share_data_keys(ParsedJson& config);
// After all of them: an assignment to a section that is switched off, such as "amp.dtype=bfloat16" with "amp": false, has no
// effect and is added to `issues`, unless another one of `sets` assigns the section's `enabled`.
void check_effective(const ParsedJson& config, const std::vector<std::string>& sets, Issues& issues);

// Replaces ${name}, ${seed}, ${config_dir} and ${env:X} in all strings; sets the default name. A string or key that is not UTF-8 or
// holds a NUL character is added to `issues`.
void expand(ParsedJson& config, const std::filesystem::path& file, Issues& issues);

}  // namespace halfstep::app
