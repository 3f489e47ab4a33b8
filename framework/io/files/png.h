// SPDX-License-Identifier: Apache-2.0
// Writes pictures for people: PNG files with 8 bits (RFC 2083).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace halfstep {

struct Picture {
  int64_t width = 0, height = 0, channels = 1;  // 1: grey, 3: red, green, blue
  std::vector<uint8_t> pixels = {};             // rows from the top, channels of a pixel side by side
  std::vector<uint16_t> fine = {};              // of a file with 16 bits: `pixels` before they were rounded; else empty
};

// Encodes a picture. Throws ValueError if the sizes do not fit the pixels.
std::string png_bytes(const Picture& picture);
// Writes a picture atomically. Also throws IoError.
void save_png(const std::filesystem::path& path, const Picture& picture);

}  // namespace halfstep
