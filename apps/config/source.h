// SPDX-License-Identifier: Apache-2.0
// Reads JSON files with comments, and the place of each value in them.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/schema/issues.h"

namespace halfstep::app {

inline constexpr size_t kMaxConfigBytes = size_t(16) << 20;  // of a file and all that it extends

using Tree = nlohmann::json;  // finds keys in large objects quickly

struct ParsedJson {
  Tree json;
  Origins origins;
};

// Parses JSON with // and /* */ comments. `file` is its name in messages. Adds duplicate keys to `issues`. Throws ConfigError
// "file:line:column: ..." for text that is not JSON, nests too deeply, contains NUL characters, or has so many values that storing
// their places would need an unreasonable amount of memory.
ParsedJson parse_json(std::string_view text, const std::string& file, Issues& issues);
// Parses a file, and subtracts its size from `bytes_left`. Throws ConfigError if the file cannot be read or is larger than that.
ParsedJson parse_json_file(const std::filesystem::path& path, size_t& bytes_left, Issues& issues);

// Removes the places of all that is below the path.
void erase_below(Origins& origins, const std::string& path);
// Returns whether a section of the config is switched off.
inline bool is_off(const Tree& section) {
  return section.is_object() && section.contains("enabled") && section["enabled"] == false;
}

}  // namespace halfstep::app
