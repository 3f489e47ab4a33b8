// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

// A separate working directory for a test, since lines save files.
class InTempDir {
 public:
  InTempDir() : before_(std::filesystem::current_path()) {
    std::string name = (std::filesystem::temp_directory_path() / "halfstep-docs-XXXXXX").string();
    path_ = mkdtemp(name.data());
    std::filesystem::current_path(path_);
  }
  ~InTempDir() {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(path_);
  }

 private:
  std::filesystem::path before_, path_;
};

}  // namespace
