// SPDX-License-Identifier: Apache-2.0
#include "framework/data/formats/picture_header.h"

#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/base/number_text.h"

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

// Returns the value of tag 0x0112 of an EXIF block; nothing if it has none.
std::optional<uint64_t> exif_tag(std::string_view block);
// Returns the number behind tiff:Orientation of an XMP packet; nothing if it has none.
std::optional<uint64_t> xmp_tag(std::string_view packet);

int valid_orientation(std::optional<uint64_t> value) { return value && *value >= 1 && *value <= 8 ? int(*value) : 1; }

// What a file says about its orientation: EXIF counts, and XMP where EXIF says nothing, as in Pillow.
struct Orientation {
  std::optional<uint64_t> exif{}, xmp{};
  int value() const { return valid_orientation(exif ? exif : xmp); }
};

constexpr uint64_t kMostNotes = 1 << 20;  // bytes of EXIF and XMP
constexpr std::string_view kXmpSegment = "http://ns.adobe.com/xap/1.0/\0"sv;

// Unpacks the text of a chunk; "" if it is damaged or too long.
std::string unpacked(std::string_view packed) {
  std::string out(kMostNotes, '\0');
  uLongf size = uLongf(out.size());
  const int code =
      uncompress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(packed.data()), uLong(packed.size()));
  out.resize(code == Z_OK ? size : 0);
  return out;
}

// Returns the text of a chunk tEXt, zTXt or iTXt, whose keyword is cut off from `content`.
std::string chunk_text(std::string_view kind, std::string_view content) {
  if (kind == "tEXt") return std::string(content);
  if (kind == "zTXt") return content.starts_with('\0') ? unpacked(content.substr(1)) : "";
  const bool is_packed = content.starts_with('\1');
  size_t at = 2;  // behind the flag and the method; then a language and a translation
  for (int part = 0; part < 2 && at != std::string_view::npos; ++part)
    if (at = content.find('\0', std::min(at, content.size())); at != std::string_view::npos) ++at;
  if (at == std::string_view::npos) return "";
  return is_packed ? unpacked(content.substr(at)) : std::string(content.substr(at));
}

// Decodes ImageMagick's form of a block: a line with its name, one with its length, and then hexadecimal digits.
std::string raw_profile(std::string_view text) {
  for (int lines = 0; lines < 2; ++lines) {
    while (text.starts_with('\n')) text.remove_prefix(1);
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
  std::string out;
  int digits = 0, value = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (!std::isxdigit(byte)) continue;
    value = 16 * value + (is_digit(c) ? c - '0' : lower_case(c) - 'a' + 10);
    if (++digits % 2 == 0) out += char(value), value = 0;
  }
  return out;
}

// Reads a chunk of text that may hold EXIF or XMP.
void read_text_chunk(std::string_view kind, std::string_view content, Orientation& found) {
  const size_t end = content.find('\0');
  if (end == std::string_view::npos) return;
  const std::string_view keyword = content.substr(0, end), rest = content.substr(end + 1);
  const bool is_profile =
      keyword == "Raw profile type exif" || keyword == "Raw profile type APP1" || keyword == "Raw profile type xmp";
  if (!is_profile && keyword != "XML:com.adobe.xmp") return;
  const std::string text = chunk_text(kind, rest), block = is_profile ? raw_profile(text) : text;
  if (!found.exif && is_profile) found.exif = exif_tag(block);
  if (!found.xmp) found.xmp = xmp_tag(block);
}

// Reads the chunk IHDR, and the orientation in the others. Calls fail_cut_off, which throws, where the file ends too early.
PictureHeader png_header(const FileReader& read, const std::function<void()>& fail_cut_off) {
  constexpr uint64_t kSignature = 8, kSizes = 16, kChunkFrame = 12;  // bytes
  Orientation found, texts;                                          // eXIf counts before texts
  uint8_t bytes[8] = {};
  if (!read(kSizes, bytes, 8)) fail_cut_off();
  PictureHeader out{int64_t(big_endian(bytes, 4)), int64_t(big_endian(bytes + 4, 4))};
  for (uint64_t at = kSignature; read(at, bytes, 8); at += kChunkFrame + big_endian(bytes, 4)) {  // from chunk to chunk
    const std::string_view name(reinterpret_cast<const char*>(bytes) + 4, 4);
    const uint64_t length = big_endian(bytes, 4);
    if (name == "IEND" || length >> 31) break;
    const bool is_text = name == "tEXt" || name == "zTXt" || name == "iTXt";
    if ((name != "eXIf" && !is_text) || length > kMostNotes) continue;
    std::string block(length, '\0');
    if (!read(at + 8, block.data(), block.size())) continue;
    if (is_text)
      read_text_chunk(name, block, texts);
    else
      found.exif = exif_tag(block);
  }
  out.orientation = Orientation{found.exif ? found.exif : texts.exif, texts.xmp}.value();
  return out;
}

// Markers of segments (ITU T.81, table B.1). kDht, kJpg and kDac begin no frame; kTem and the restarts have no content; kApp1 has
// EXIF or XMP.
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

// Reads the sizes of the first frame and the orientation of the first segments of EXIF and XMP.
PictureHeader jpeg_header(const FileReader& read, const std::function<void()>& fail_cut_off) {
  PictureHeader out;
  Orientation found;
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
      out.orientation = found.value();
      return out;
    }
    const bool is_frame = marker >= kFirstFrame && marker <= kLastFrame && marker != kDht && marker != kJpg && marker != kDac;
    if (is_frame && out.width == 0) {
      if (!read(at, bytes, 7)) fail_cut_off();
      out.height = int64_t(big_endian(bytes + 3, 2)), out.width = int64_t(big_endian(bytes + 5, 2));
    }
    if (marker == kApp1) {
      std::string block(length - 2, '\0');
      if (!read(at + 2, block.data(), block.size())) fail_cut_off();
      if (!has_exif && block.starts_with("Exif\0\0"sv)) has_exif = true, found.exif = exif_tag(block);
      if (!found.xmp && block.starts_with(kXmpSegment)) found.xmp = xmp_tag(block);
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

int exif_orientation(std::string_view block) { return valid_orientation(exif_tag(block)); }
int xmp_orientation(std::string_view packet) { return valid_orientation(xmp_tag(packet)); }

namespace {

std::optional<uint64_t> exif_tag(std::string_view block) {
  while (block.starts_with("Exif\0\0"sv)) block.remove_prefix(6);
  const bool little = block.starts_with("II"), big = block.starts_with("MM");
  const auto number = [&](uint64_t at, uint64_t n) -> uint64_t {  // 0 beyond the end
    uint64_t out = 0;
    if (at > block.size() || n > block.size() - at) return 0;
    for (uint64_t i = 0; i < n; ++i) out = out << 8 | uint8_t(block[at + (little ? n - 1 - i : i)]);
    return out;
  };
  if ((!little && !big) || number(2, 2) != 42) return {};
  const uint64_t entries = number(4, 4), count = number(entries, 2);
  for (uint64_t at = entries + 2; at < entries + 2 + 12 * count; at += 12) {
    const uint64_t type = number(at + 2, 2), size = type == 3 ? 2 : type == 4 ? 4 : 0;  // short and long
    if (number(at, 2) != 0x0112 || size == 0 || number(at + 4, 4) == 0) continue;
    const bool inside = number(at + 4, 4) * size <= 4;
    return number(inside ? at + 8 : number(at + 8, 4), size);
  }
  return {};
}

std::optional<uint64_t> xmp_tag(std::string_view packet) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = packet.find(kName); at != std::string_view::npos; at = packet.find(kName, at + 1)) {
    std::string_view rest = packet.substr(at + kName.size());
    const bool is_element = rest.starts_with('>');
    while (!rest.empty() && std::isspace(static_cast<unsigned char>(rest[0]))) rest.remove_prefix(1);
    if (!is_element && !rest.starts_with('=')) continue;
    rest.remove_prefix(1);
    while (!rest.empty() && (std::isspace(static_cast<unsigned char>(rest[0])) || rest[0] == '"' || rest[0] == '\''))
      rest.remove_prefix(1);
    if (!rest.empty() && is_digit(rest[0])) return uint64_t(rest[0] - '0');
  }
  return {};
}

}  // namespace

}  // namespace halfstep
