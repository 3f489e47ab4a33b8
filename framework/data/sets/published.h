// SPDX-License-Identifier: Apache-2.0
// Files of published data sets: the search for them, and the error if they are missing.
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

// Returns the first of `folders` with a file `name`, or one with one of the suffixes; empty if there is none.
std::filesystem::path find_file(const std::vector<std::filesystem::path>& folders, const std::string& name,
                                const std::vector<std::string>& suffixes = {""});

// Throws DataError with the files and folders that were searched, and commands that fetch `files` into `into` and check them.
// then: a command that follows these, such as one that unpacks; "": none.
[[noreturn]] void fail_missing(const char* where, const std::vector<std::string>& names,
                               const std::vector<std::filesystem::path>& folders, const std::filesystem::path& into,
                               const std::vector<PublishedFile>& files, const std::string& then = "");

}  // namespace halfstep
