// SPDX-License-Identifier: Apache-2.0
// What a picture's file says before it is decoded: the format, the size, and how the camera was held.
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
  int orientation = 1;            // EXIF's, 1 to 8: 6 is a quarter turn clockwise to come, from 5 on the sides are exchanged
};
// Copies `n` bytes from the place `at` of a file; false if it has fewer.
using ReadAt = std::function<bool(uint64_t at, void* to, size_t n)>;
// Throws DataError, which begins with `name`, for what is neither PNG nor JPEG, or is cut off before the pixels.
PictureHeader picture_header(const std::string& name, const ReadAt& read);

// The tag 0x0112 of the first directory of an EXIF block (a TIFF header of either byte order, after "Exif\0\0" or not). 1 where
// there is none, or none that holds.
int exif_orientation(std::string_view block);

}  // namespace halfstep
