// JSON files with comments, and where each value stands in them.
#pragma once

#include <filesystem>
#include <string_view>

#include "apps/config/issues.h"
#include "apps/config/json.h"

namespace halfstep::app {

struct ParsedJson {
  Json json;
  Origins origins;
};

// `text` in JSON, with // and /* */ comments. `file` is what messages call it. Keys given twice are added to `issues`.
// Throws ConfigError "file:line:column: ..." for text that is not JSON.
ParsedJson parse_json(std::string_view text, const std::string& file, Issues& issues);
// Throws ConfigError when the file cannot be read.
ParsedJson parse_json_file(const std::filesystem::path& path, Issues& issues);

}  // namespace halfstep::app
