// SPDX-License-Identifier: Apache-2.0
// Reads JSON files with comments, and the place of each value in them.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/schema/issues.h"

namespace halfstep::app {

inline constexpr size_t kMaxConfigBytes = size_t(16) << 20;  // of a file and all that it extends

struct ParsedJson {
  nlohmann::json json;  // finds keys in large objects quickly
  Origins origins;
};

// Parses JSON with // and /* */ comments. `file` is its name in messages. Adds duplicate keys to `issues`. Throws ConfigError
// "file:line:column: ..." for text that is not JSON, nests too deeply, contains NUL characters, or has so many values that storing
// their places would need an unreasonable amount of memory.
ParsedJson parse_json(std::string_view text, const std::string& file, Issues& issues);
// Parses a file, and subtracts its size from `bytes_left`. Throws ConfigError if the file cannot be read or is larger than that.
ParsedJson parse_json_file(const std::filesystem::path& path, size_t& bytes_left, Issues& issues);

}  // namespace halfstep::app
