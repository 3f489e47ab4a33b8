// SPDX-License-Identifier: Apache-2.0
// Files of published data sets: where they are searched, and the error when they are missing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace halfstep {

struct PublishedFile {
  std::string name;
  uint64_t bytes;
  std::string digest;  // "sha256 440f...", "md5 58c8..."
  std::string url;
};

// The first of `folders` that has a file `name`, or one with a suffix behind it; empty where none has.
std::filesystem::path find_file(const std::vector<std::filesystem::path>& folders, const std::string& name,
                                const std::vector<std::string>& suffixes = {""});

// Throws DataError: the files and folders that were searched, and commands that fetch `files` into `into` and check them. `then`:
// a command that comes after, such as one that unpacks.
[[noreturn]] void fail_missing(const char* where, const std::vector<std::string>& names,
                               const std::vector<std::filesystem::path>& folders, const std::filesystem::path& into,
                               const std::vector<PublishedFile>& files, const std::string& then = "");

}  // namespace halfstep
