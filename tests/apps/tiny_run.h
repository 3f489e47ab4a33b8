// SPDX-License-Identifier: Apache-2.0
// A run of twelve steps, and functions that change its folder.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "framework/io/files/checksum.h"
#include "tests/apps/support.h"

namespace halfstep::app::testing {

// The config of 12 steps of a tiny model; 3 of them are an epoch.
inline const char* kTiny = R"({
  "name": "tiny", "output_dir": "r", "device": "cpu",
  "model": {"type": "Linear", "out_features": "auto"},
  "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1},
  "data": {"train": {"type": "Random", "num_batches": 3, "input_shape": [4], "classes": 3},
           "val": {"type": "Random", "num_batches": 1, "input_shape": [4], "classes": 3}, "loader": {"batch_size": 8}},
  "train": {"epochs": 4}, "logging": {"every": 1}, "checkpoint": {"keep_last": 0}
})";

struct Folder : TempDir {
  Folder() { write(*this / "tiny.json", kTiny); }
  Ran train(const std::string& options = "") const { return run(*this, "train tiny.json --quiet --threads 1 " + options); }
};

// Returns every file below `dir` with its content.
inline std::map<std::string, std::string> snapshot(const fs::path& dir) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) out[fs::relative(entry.path(), dir).string()] = read(entry.path());
  }
  return out;
}

inline void replace_in(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = read(file);
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  write(file, text.replace(at, from.size(), to));
}

// Changes a JSON file of a checkpoint, and updates the manifest.
inline void set_json(const fs::path& checkpoint, const char* file, const std::string& pointer, const nlohmann::json& value) {
  nlohmann::json content = nlohmann::json::parse(read(checkpoint / file));
  content[nlohmann::json::json_pointer(pointer)] = value;
  write(checkpoint / file, content.dump());
  nlohmann::json manifest = nlohmann::json::parse(read(checkpoint / "manifest.json"));
  manifest["files"][file] = {{"bytes", fs::file_size(checkpoint / file)}, {"sha256", sha256_file(checkpoint / file)}};
  write(checkpoint / "manifest.json", manifest.dump());
}
inline void set_state(const fs::path& checkpoint, const std::string& pointer, const nlohmann::json& value) {
  set_json(checkpoint, "state.json", pointer, value);
}

inline bool shows_library_text(const std::string& text) {
  for (const char* words : {"json.exception", "filesystem error", "basic_string", "std::", "terminate called"}) {
    if (contains(text, words)) return true;
  }
  return false;
}

inline std::vector<Json> lines_of(const fs::path& metrics) {
  std::vector<Json> out;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

}  // namespace halfstep::app::testing
