// SPDX-License-Identifier: Apache-2.0
// Pictures in files: PNG by libpng, JPEG by libjpeg-turbo.
#pragma once

#include <cstdint>
#include <filesystem>

#include "framework/io/files/png.h"

namespace halfstep {

// The color behind transparent pixels. none: they keep their own, as by PIL's convert("RGB").
enum class Background : uint8_t { black, white, none };

// channels: 3, red, green and blue, or 1, gray by 0.299 R + 0.587 G + 0.114 B. 16 bits are rounded to 8. A CMYK JPEG is
// taken as inverted, as Adobe's programs write it, and converted to RGB without a color profile; profiles and the gamma of a PNG
// (iCCP, gAMA, cHRM, sRGB) change no pixel: all as by PIL. exif: turned as EXIF says, as by PIL's ImageOps.exif_transpose.
// The content decides the format, not the name. A JPEG whose pixels are all there is read, even if its end is missing or other
// bytes lie between; `flaw` then gets what is wrong with it. Throws IoError when the file cannot be read; DataError, which names
// it, for content of another format, for what is cut off or damaged, and for more than 2^28 pixels; and MemoryError, which names it
// too.
Picture read_picture(const std::filesystem::path& path, int channels, Background background = Background::none, bool exif = true,
                     std::string* flaw = nullptr);
// Does the name end as those of PNG and JPEG files do: .png, .apng, .jpg, .jpeg, .jpe, .jfif, .pjpeg, .pjp?
bool is_picture_name(const std::filesystem::path& path);
// Is it the name of a picture in a format that read_picture does not support: .webp, .gif, .bmp, .tif and others?
bool is_other_picture_name(const std::filesystem::path& path);
// The size of what read_picture gives, from the header of the file, without decoding it. Throws IoError and DataError like it.
struct PictureSize {
  int64_t width = 0, height = 0;
  bool operator==(const PictureSize&) const = default;
};
PictureSize picture_size(const std::filesystem::path& path, bool exif = true);
// Is the content PNG or JPEG, by its first bytes? False for what cannot be read.
bool has_picture_content(const std::filesystem::path& path);
// Throws MemoryError, which names the picture.
[[noreturn]] void picture_too_large(const std::filesystem::path& path, int64_t width, int64_t height);
// Was halfstep built with the two libraries? Without, read_picture throws ValueError.
bool reads_pictures();

}  // namespace halfstep
