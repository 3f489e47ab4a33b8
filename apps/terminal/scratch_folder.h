// SPDX-License-Identifier: Apache-2.0
// A private temporary folder, removed with the object.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "framework/base/check.h"

namespace halfstep::app {

class ScratchFolder {
 public:
  // Throws IoError if it cannot be made. what: names its user in the message.
  [[nodiscard]] explicit ScratchFolder(const char* what) {
    const std::filesystem::path parent = std::filesystem::temp_directory_path();
    std::string name = (parent / "halfstep-XXXXXX").string();
    check<IoError>(mkdtemp(name.data()) != nullptr, what, "cannot make a folder in ", parent.string());
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace halfstep::app
