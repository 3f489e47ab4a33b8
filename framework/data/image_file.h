// SPDX-License-Identifier: Apache-2.0
// Pictures in files: PNG by libpng, JPEG by libjpeg-turbo.
#pragma once

#include <cstdint>
#include <filesystem>

#include "framework/io/png.h"

namespace halfstep {

// The color behind transparent pixels. none: transparency is ignored, as by PIL's convert("RGB").
enum class Background : uint8_t { black, white, none };

// channels: 3, red, green and blue, or 1, gray by 0.299 R + 0.587 G + 0.114 B. 16 bits are rounded to 8. A CMYK JPEG is
// taken as inverted, as Adobe's programs write it, and converted to RGB without a color profile, as by PIL.
// The name's end says the format: .png, .jpg or .jpeg. Throws IoError when the file cannot be read, and DataError, which
// names it, for another end, for content of another format, for what is cut off or damaged, and for more than 2^28 pixels.
Picture read_picture(const std::filesystem::path& path, int channels, Background background = Background::black);
bool is_picture_name(const std::filesystem::path& path);
// Is it the name of a picture in a format that read_picture does not support: .webp, .gif, .bmp, .tif and others?
bool is_other_picture_name(const std::filesystem::path& path);
// The size from the header of the file, without decoding it. Throws IoError and DataError like read_picture.
struct PictureSize {
  int64_t width = 0, height = 0;
  bool operator==(const PictureSize&) const = default;
};
PictureSize picture_size(const std::filesystem::path& path);
// Was halfstep built with the two libraries? Without, read_picture throws ValueError.
bool reads_pictures();

}  // namespace halfstep
