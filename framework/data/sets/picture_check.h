// SPDX-License-Identifier: Apache-2.0
// Finds the pictures that cannot be read before any of them is needed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace halfstep {

struct PictureCheck {
  struct Remark {
    size_t place;  // in the list
    std::string text;
  };
  int64_t checked = 0;         // fewer than the list has where time ran out or progress() ended it
  std::vector<Remark> faults;  // of pictures that cannot be read, in the order of the list; the text is the error's
  std::vector<Remark> flaws;   // of pictures that are read all the same: read_picture's
};

struct PictureCheckOptions {
  double seconds = std::numeric_limits<double>::infinity();      // to end after
  std::function<bool(int64_t done, int64_t all)> progress = {};  // called now and then; false ends the check
};

// Decodes each picture once, on as many threads as computations use, unless this user's programs did so before: the good ones are
// remembered by path, size and time of change in $XDG_CACHE_HOME/halfstep/pictures, without it ~/.cache/halfstep/pictures. Without
// either, and where the file cannot be written, this process alone remembers them. Throws MemoryError as read_picture.
PictureCheck check_pictures(const std::vector<std::filesystem::path>& pictures, const PictureCheckOptions& options = {});

// The folder of what is remembered of pictures; empty: there is none.
std::filesystem::path picture_cache();
// A number for a picture as it is now, by path, size and time of change, and for what is known of it. 0: there is no such file.
uint64_t picture_number(const std::filesystem::path& picture, const std::string& known);

}  // namespace halfstep
