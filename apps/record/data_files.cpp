// SPDX-License-Identifier: Apache-2.0
#include "apps/record/data_files.h"

#include <filesystem>
#include <string>

#include "framework/data/loading/fingerprint.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

void add_files(const Json& value, const fs::path& root, Json& out) {
  if (value.is_structured()) {
    for (const auto& [key, inner] : value.items())
      if (key != "transforms") add_files(inner, root, out);
    return;
  }
  if (!value.is_string() || value.get<std::string>().empty()) return;
  const fs::path path = (root / value.get<std::string>()).lexically_normal();
  if (out.contains(path.string())) return;
  const std::string hash = fingerprint(path);
  if (!hash.empty()) out[path.string()] = hash;
}

}  // namespace

Json data_files_sha256(const Json& config) {
  Json out = Json::object();
  const Json data = config.value("data", Json::object());
  const Json root = data.value("root", Json());
  for (const char* split : {"train", "val", "test"})
    if (data.contains(split)) add_files(data[split], root.is_string() ? root.get<std::string>() : "", out);
  return out;
}

}  // namespace halfstep::app
