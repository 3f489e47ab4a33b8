// SPDX-License-Identifier: Apache-2.0
// Reads picture files: PNG by libpng, JPEG by libjpeg-turbo.
#pragma once

#include <cstdint>
#include <filesystem>

#include "framework/base/options.h"
#include "framework/io/files/png.h"

namespace halfstep {

// The color behind transparent pixels. none: keeps their own colors, like PIL's convert("RGB").
enum class Background : uint8_t { black, white, none };
HALFSTEP_OPTION_NAMES(Background, "black", "white", "none");

// Reads a picture. channels: 3 for red, green and blue, or 1 for gray, 0.299 R + 0.587 G + 0.114 B. Of 16 bits
// `fine` has all, and `pixels` the upper 8, rounded. A
// CMYK JPEG is taken as inverted, as Adobe's programs write it, and converted to RGB without a color profile; profiles and the
// gamma of a PNG (iCCP, gAMA, cHRM, sRGB) change no pixel: all as in PIL. exif: turns the picture by its EXIF orientation, like
// PIL's ImageOps.exif_transpose. The content decides the format, not the name. A JPEG with all its pixels is read even if its end
// is missing or other bytes lie between; `flaw` then describes that. Throws IoError if the file cannot be read; DataError with the
// name for content of another format, for cut off or damaged files, and for more than 2^28 pixels; and MemoryError, also with the
// name.
Picture read_picture(const std::filesystem::path& path, int channels, Background background = Background::none, bool exif = true,
                     std::string* flaw = nullptr);
// Returns whether the name ends like those of PNG and JPEG files: .png, .apng, .jpg, .jpeg, .jpe, .jfif, .pjpeg, .pjp.
bool is_picture_name(const std::filesystem::path& path);
// Returns whether it is the name of a picture in a format that read_picture does not support: .webp, .gif, .bmp, .tif and others.
bool is_other_picture_name(const std::filesystem::path& path);
// Returns the size that read_picture would return, from the file's header, without decoding. Throws IoError and DataError like it.
struct PictureSize {
  int64_t width = 0, height = 0;
  bool operator==(const PictureSize&) const = default;
};
PictureSize picture_size(const std::filesystem::path& path, bool exif = true);
// Returns whether the content is PNG or JPEG, by its first bytes. False for an unreadable file.
bool has_picture_content(const std::filesystem::path& path);
// Throws MemoryError for a picture that does not fit into memory.
[[noreturn]] void picture_too_large(const std::filesystem::path& path, int64_t width, int64_t height);
// Returns whether halfstep was built with both libraries. Without them, read_picture throws ValueError.
bool reads_pictures();

}  // namespace halfstep
