// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/png.h"

#include <zlib.h>

#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep {
namespace {

void put_u32(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += char(value >> shift & 0xff);
}

void put_chunk(std::string& out, const std::string& kind, const std::string& data) {
  put_u32(out, uint32_t(data.size()));
  const std::string checked = kind + data;
  out += checked;
  put_u32(out, uint32_t(::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), uInt(checked.size()))));
}

}  // namespace

std::string png_bytes(const Picture& picture) {
  constexpr int64_t kMaxEdge = 1 << 15;  // 32-bit sizes limit a chunk, and one call of zlib
  const bool has_valid_size = picture.width >= 1 && picture.height >= 1 && picture.width <= kMaxEdge && picture.height <= kMaxEdge;
  check<ValueError>(has_valid_size && (picture.channels == 1 || picture.channels == 3), "png", "a picture must have 1 to ",
                    kMaxEdge, " pixels an edge and 1 or 3 channels, got ", picture.width, " x ", picture.height, " x ",
                    picture.channels);
  check<ValueError>(int64_t(picture.pixels.size()) == picture.width * picture.height * picture.channels, "png", "a picture of ",
                    picture.width, " x ", picture.height, " x ", picture.channels, " must have as many bytes, got ",
                    picture.pixels.size());
  const size_t row = size_t(picture.width * picture.channels);
  std::string raw;
  raw.reserve((row + 1) * size_t(picture.height));
  for (int64_t y = 0; y < picture.height; ++y) {
    raw += '\0';  // no filter
    raw.append(reinterpret_cast<const char*>(picture.pixels.data()) + size_t(y) * row, row);
  }
  uLongf size = ::compressBound(uLong(raw.size()));
  std::string packed(size, '\0');
  const int status = ::compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(raw.data()),
                                 uLong(raw.size()), Z_DEFAULT_COMPRESSION);
  check<MemoryError>(status == Z_OK, "png", "zlib could not compress ", raw.size(), " bytes");
  packed.resize(size);

  std::string head;
  put_u32(head, uint32_t(picture.width));
  put_u32(head, uint32_t(picture.height));
  head += {char(8), char(picture.channels == 3 ? 2 : 0), char(0), char(0), char(0)};  // 8 bits; colour or grey
  std::string out = "\x89PNG\r\n\x1a\n";
  put_chunk(out, "IHDR", head);
  put_chunk(out, "IDAT", packed);
  put_chunk(out, "IEND", "");
  return out;
}

void save_png(const std::filesystem::path& path, const Picture& picture) { atomic_write(path, png_bytes(picture)); }

}  // namespace halfstep
