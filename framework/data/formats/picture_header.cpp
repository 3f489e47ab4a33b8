// SPDX-License-Identifier: Apache-2.0
#include "framework/data/formats/picture_header.h"

#include <algorithm>

#include "framework/base/check.h"

namespace halfstep {
namespace {

using std::string_view_literals::operator""sv;

constexpr const char* kHeader = "image";

// Returns n bytes as a number, the highest first.
uint64_t big_endian(const uint8_t* bytes, size_t n) {
  uint64_t out = 0;
  for (size_t i = 0; i < n; ++i) out = out << 8 | bytes[i];
  return out;
}

// Reads the chunk IHDR, and eXIf if there is one. Calls fail_cut_off, which throws, where the file ends too early.
PictureHeader png_header(const FileReader& read, const std::function<void()>& fail_cut_off) {
  constexpr uint64_t kSignature = 8, kSizes = 16, kChunkFrame = 12, kMostExif = 1 << 20;  // bytes
  uint8_t bytes[8] = {};
  if (!read(kSizes, bytes, 8)) fail_cut_off();
  PictureHeader out{int64_t(big_endian(bytes, 4)), int64_t(big_endian(bytes + 4, 4))};
  for (uint64_t at = kSignature; read(at, bytes, 8); at += kChunkFrame + big_endian(bytes, 4)) {  // from chunk to chunk
    const std::string_view name(reinterpret_cast<const char*>(bytes) + 4, 4);
    const uint64_t length = big_endian(bytes, 4);
    if (name == "IEND" || length >> 31) break;
    if (name != "eXIf" || length > kMostExif) continue;
    std::string block(length, '\0');
    if (read(at + 8, block.data(), block.size())) out.orientation = exif_orientation(block);
  }
  return out;
}

// Markers of segments (ITU T.81, table B.1). kDht, kJpg and kDac begin no frame; kTem and the restarts have no content; kApp1 has
// EXIF.
enum Marker {
  kTem = 0x01,
  kFirstFrame = 0xc0,
  kDht = 0xc4,
  kJpg = 0xc8,
  kDac = 0xcc,
  kLastFrame = 0xcf,
  kFirstRestart = 0xd0,
  kLastRestart = 0xd7,
  kStartOfImage = 0xd8,
  kEndOfImage = 0xd9,
  kStartOfScan = 0xda,
  kApp1 = 0xe1,
};

// Reads the sizes of the first frame and the orientation of the first Exif segment.
PictureHeader jpeg_header(const FileReader& read, const std::function<void()>& fail_cut_off) {
  PictureHeader out;
  bool has_exif = false;
  uint64_t at = 2;
  const auto next = [&] {
    uint8_t byte = 0;
    if (!read(at++, &byte, 1)) fail_cut_off();
    return int(byte);
  };
  for (;;) {  // from segment to segment, up to the one before the pixels
    int marker = 0;
    while (marker == 0) {
      while (next() != 0xff) {}
      do marker = next();
      while (marker == 0xff);
    }
    if (marker == kTem || (marker >= kFirstRestart && marker <= kLastRestart)) continue;  // they have no content
    uint8_t bytes[7] = {};
    if (!read(at, bytes, 2)) fail_cut_off();
    const uint64_t length = big_endian(bytes, 2);
    if (length < 2 || marker == kStartOfImage || marker == kEndOfImage) fail_cut_off();
    if (marker == kStartOfScan) {
      if (out.width == 0) fail_cut_off();
      return out;
    }
    const bool is_frame = marker >= kFirstFrame && marker <= kLastFrame && marker != kDht && marker != kJpg && marker != kDac;
    if (is_frame && out.width == 0) {
      if (!read(at, bytes, 7)) fail_cut_off();
      out.height = int64_t(big_endian(bytes + 3, 2)), out.width = int64_t(big_endian(bytes + 5, 2));
    }
    if (marker == kApp1 && !has_exif) {
      std::string block(length - 2, '\0');
      if (!read(at + 2, block.data(), block.size())) fail_cut_off();
      has_exif = block.starts_with("Exif\0\0"sv);
      if (has_exif) out.orientation = exif_orientation(block);
    }
    at += length;
  }
}

}  // namespace

std::string_view picture_format(std::string_view first) {
  return first.starts_with("\x89PNG\r\n\x1a\n"sv) ? "PNG" : first.starts_with("\xff\xd8\xff"sv) ? "JPEG" : "";
}

PictureHeader picture_header(const std::string& name, const FileReader& read) {
  uint8_t first[8] = {};
  const auto fail_cut_off = [&] { fail<DataError>(kHeader, name, ": the header is cut off or damaged"); };
  if (!read(0, first, 2)) fail_cut_off();
  const bool png = first[0] == 0x89;
  check<DataError>(png || (first[0] == 0xff && first[1] == 0xd8), kHeader, name, ": the content is neither PNG nor JPEG");
  return png ? png_header(read, fail_cut_off) : jpeg_header(read, fail_cut_off);
}

int exif_orientation(std::string_view block) {
  while (block.starts_with("Exif\0\0"sv)) block.remove_prefix(6);
  const bool little = block.starts_with("II"), big = block.starts_with("MM");
  const auto number = [&](uint64_t at, uint64_t n) -> uint64_t {  // 0 beyond the end
    uint64_t out = 0;
    if (at > block.size() || n > block.size() - at) return 0;
    for (uint64_t i = 0; i < n; ++i) out = out << 8 | uint8_t(block[at + (little ? n - 1 - i : i)]);
    return out;
  };
  if ((!little && !big) || number(2, 2) != 42) return 1;
  const uint64_t entries = number(4, 4), count = number(entries, 2);
  for (uint64_t at = entries + 2; at < entries + 2 + 12 * count; at += 12) {
    const uint64_t type = number(at + 2, 2), size = type == 3 ? 2 : type == 4 ? 4 : 0;  // short and long
    if (number(at, 2) != 0x0112 || size == 0 || number(at + 4, 4) == 0) continue;
    const bool inside = number(at + 4, 4) * size <= 4;
    const uint64_t value = number(inside ? at + 8 : number(at + 8, 4), size);
    return value >= 1 && value <= 8 ? int(value) : 1;
  }
  return 1;
}

}  // namespace halfstep
