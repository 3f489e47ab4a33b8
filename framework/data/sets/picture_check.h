// SPDX-License-Identifier: Apache-2.0
// Finds unreadable pictures before they are needed.
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
    size_t index;  // index in the list
    std::string text;
  };
  int64_t checked = 0;         // fewer than in the list if time ran out or progress() ended it
  std::vector<Remark> faults;  // unreadable pictures, in the order of the list; the text is the error's
  std::vector<Remark> flaws;   // pictures that are read despite a flaw, with read_picture's text
  // Pictures of one color, whose shapes are in their transparency alone; and which color behind them shows these.
  struct Hidden {
    size_t index;
    bool on_black, on_white;
  };
  std::vector<Hidden> hidden;
  std::vector<size_t> dark;  // pictures of 16 bits, not of one color, with no value of 2^12 or more
};

struct PictureCheckOptions {
  double seconds = std::numeric_limits<double>::infinity();      // time limit
  std::function<bool(int64_t done, int64_t all)> progress = {};  // called after every few pictures; false ends the check
};

// Decodes each picture once, on as many threads as computations use, unless one of this user's programs did so before: good
// pictures are remembered by path, size and time of change in $XDG_CACHE_HOME/halfstep/pictures, or ~/.cache/halfstep/pictures.
// Without either, and if the file cannot be written, only this process remembers them. Throws MemoryError like read_picture.
PictureCheck check_pictures(const std::vector<std::filesystem::path>& pictures, const PictureCheckOptions& options = {});

// Returns the folder of the remembered pictures; empty: none.
std::filesystem::path picture_cache();
// Returns a number for a picture in its current state, by path, size and time of change, combined with `remark`, which is part of
// what is remembered of it. 0: no such file.
uint64_t picture_number(const std::filesystem::path& picture, const std::string& remark);

}  // namespace halfstep
