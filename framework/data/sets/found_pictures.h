// SPDX-License-Identifier: Apache-2.0
// Finds the pictures below a folder, and records what is skipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace halfstep {

// Skipped files. Names that begin with a dot, and folders in which macOS and Synology keep their own files (__MACOSX, @eaDir), are
// hidden.
struct PassedOver {
  using Paths = std::vector<std::filesystem::path>;
  Paths hidden, dead_links, loops;        // loops: links to a folder above
  Paths other_pictures;                   // in unsupported formats
  std::map<std::string, int64_t> others;  // number of files by ending

  void add(const PassedOver& more);
  std::string text() const;                   // "2 hidden names, such as a/.b; 3 other files (2 .txt, 1 .db)"; "" for none
  std::vector<std::string> warnings() const;  // about other pictures and dead links
};

// Returns the names of the folders in `root`, sorted; `files` receives the pictures beside them. Throws DataError for a root that
// is not a folder, or cannot be read.
std::vector<std::string> folders_in(const std::filesystem::path& root, PassedOver& passed, PassedOver::Paths* files = nullptr);
// Returns the pictures in `folder` at any depth, sorted: files with names of pictures (image_file.h), and files whose names have
// no ending and whose content is PNG or JPEG. Follows links, but not to a folder above. Throws DataError for a folder that cannot
// be read.
PassedOver::Paths pictures_in(const std::filesystem::path& folder, PassedOver& passed);

}  // namespace halfstep
