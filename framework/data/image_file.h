// SPDX-License-Identifier: Apache-2.0
// Pictures in files: PNG by libpng, JPEG by libjpeg-turbo.
#pragma once

#include <filesystem>

#include "framework/io/png.h"

namespace halfstep {

// channels: 3, red, green and blue, or 1, gray by 0.299 R + 0.587 G + 0.114 B. 16 bits are rounded to 8, and what is transparent is
// black. The name's end says the format: .png, .jpg or .jpeg. Throws IoError when the file cannot be read, and DataError, which
// names it, for another end, for content of another format, for what is cut off or damaged, and for more than 2^28 pixels.
Picture read_picture(const std::filesystem::path& path, int channels);
bool is_picture_name(const std::filesystem::path& path);
// Was halfstep built with the two libraries? Without, read_picture throws ValueError.
bool reads_pictures();

}  // namespace halfstep
