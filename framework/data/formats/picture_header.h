// SPDX-License-Identifier: Apache-2.0
// Reads a picture file's header: format, size and orientation of the camera.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace halfstep {

// Returns "PNG", "JPEG" or "" by the first bytes of a file.
std::string_view picture_format(std::string_view first_bytes);

struct PictureHeader {
  int64_t width = 0, height = 0;  // as stored
  int orientation = 1;            // EXIF's or XMP's, 1 to 8: 6 needs a quarter turn clockwise; from 5 on the sides are exchanged
};
// Copies the `n` bytes at offset `at` of a file to `to`; returns false if it has fewer.
using FileReader = std::function<bool(uint64_t at, void* to, size_t n)>;
// Reads the header. Throws DataError, which begins with `name`, for a file that is neither PNG nor JPEG, or is cut off before the
// pixels.
PictureHeader picture_header(const std::string& name, const FileReader& read);

// Returns tag 0x0112 of the first directory of an EXIF block (a TIFF header of either byte order, with or without "Exif\0\0"
// before it). 1 if there is no valid one.
int exif_orientation(std::string_view block);
// Returns tiff:Orientation of an XMP packet, as an attribute or an element; 1 if there is no valid one.
int xmp_orientation(std::string_view packet);

}  // namespace halfstep
