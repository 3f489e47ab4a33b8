// SPDX-License-Identifier: Apache-2.0
// A file that grows by whole pieces. Pieces that cannot be written are counted and warned of once; nothing throws after the file
// is open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace halfstep::app {

class AppendedFile {
 public:
  AppendedFile() = default;  // discards pieces
  // Replaces the file's content by `begin`. Throws IoError.
  AppendedFile(const std::filesystem::path& path, std::string_view begin);
  ~AppendedFile();
  AppendedFile(AppendedFile&& other) noexcept;
  AppendedFile& operator=(AppendedFile&& other) noexcept;

  bool append(std::string_view piece);  // writes all of it or nothing; false: it is lost
  void sync();                          // to the disk; a failure counts as a lost piece
  bool is_torn() const { return is_torn_; }  // whether the file ends with an incomplete piece that could not be removed
  bool is_open() const { return fd_ >= 0; }
  int64_t lost() const { return lost_; }
  void count_loss(int error);  // of one piece, with this errno; warns of the first one

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  bool is_torn_ = false;
  int64_t lost_ = 0;
};

}  // namespace halfstep::app
