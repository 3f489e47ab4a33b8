// SPDX-License-Identifier: Apache-2.0
// The pictures below a folder, and what is passed over there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace halfstep {

// Names that begin with a dot, and the folders in which macOS and Synology keep their own files (__MACOSX, @eaDir), are hidden.
struct PassedOver {
  using Paths = std::vector<std::filesystem::path>;
  Paths hidden, dead_links, loops;        // loops: links to a folder above
  Paths other_pictures;                   // of formats that are not read
  std::map<std::string, int64_t> others;  // files by their endings

  void add(const PassedOver& more);
  std::string text() const;                   // "2 hidden names, such as a/.b; 3 other files (2 .txt, 1 .db)"; "" for none
  std::vector<std::string> warnings() const;  // of other pictures and dead links
};

// Names of the folders in `root`, sorted; `files` gets the pictures that lie beside them. Throws DataError for a root that is no
// folder, or cannot be read.
std::vector<std::string> folders_in(const std::filesystem::path& root, PassedOver& passed, PassedOver::Paths* files = nullptr);
// The pictures in `folder` at any depth, sorted: files with names of pictures (image_file.h), and files whose names have no ending
// and whose content is PNG or JPEG. Follows links, but not to a folder above. Throws DataError for a folder that cannot be read.
PassedOver::Paths pictures_in(const std::filesystem::path& folder, PassedOver& passed);

}  // namespace halfstep
