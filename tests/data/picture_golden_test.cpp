// SPDX-License-Identifier: Apache-2.0
// Files as cameras and programs write them, compared with what Pillow reads (scripts/make_picture_goldens.py).
#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>

#include "framework/base/check.h"
#include "framework/data/formats/image_file.h"
#include "framework/data/formats/picture_header.h"
#include "framework/io/weights/safetensors.h"
#include "tests/data/picture_files.h"
#include "tests/io/files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

const TensorMap& pictures_of_pillow() {
  static const TensorMap all =
      load_safetensors(std::filesystem::path(halfstep_source_dir()) / "tests/data/picture_goldens.safetensors").tensors;
  return all;
}

std::string file_of(const std::string& name) {
  const std::vector<int> bytes = pictures_of_pillow().at(name + ".file").to(DType::i32).to_vector<int>();
  return {bytes.begin(), bytes.end()};
}

}  // namespace

TEST_CASE("pictures: turned by EXIF, and with colors that no chunk changes, as Pillow reads them") {
  if (!reads_pictures()) return void(std::puts("SKIPPED: built without libpng and libjpeg"));
  const TempDir dir;
  int pictures = 0;
  for (const auto& [key, pixels] : pictures_of_pillow()) {
    if (!key.ends_with(".pixels")) continue;
    const std::string name = key.substr(0, key.size() - 7);
    CAPTURE(name);
    const bool exact = !name.starts_with("jpeg");
    const auto path = dir / (exact ? "a PNG.jpg" : "a JPEG.png");  // the content decides
    write_bytes(path, file_of(name));
    std::string flaw;
    const Picture p = read_picture(path, 3, Background::none, true, &flaw);
    CHECK(flaw.empty() == (name != "jpeg.junk_before_end"));
    REQUIRE(Shape{p.height, p.width, p.channels} == pixels.shape());
    const std::vector<int> wanted = pixels.to(DType::i32).to_vector<int>();
    int most = 0;
    for (size_t i = 0; i < wanted.size(); ++i) most = std::max(most, std::abs(wanted[i] - int(p.pixels[i])));
    CHECK(most <= (exact ? 0 : 2));
    CHECK(picture_size(path) == PictureSize{p.width, p.height});
    const Picture stored = read_picture(path, 1, Background::none, false);
    CHECK(picture_size(path, false) == PictureSize{stored.width, stored.height});
    CHECK(stored.width > stored.height);
    ++pictures;
  }
  CHECK(pictures >= 35);
}

TEST_CASE("EXIF blocks that hold nothing leave a picture as it is") {
  const std::string good = std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", 22);
  CHECK(exif_orientation(good) == 6);
  CHECK(exif_orientation(std::string("Exif\0\0", 6) + good) == 6);
  for (size_t n = 0; n < 20; ++n) CHECK(exif_orientation(good.substr(0, n)) == 1);
  for (const size_t damaged : {0, 1, 2, 3, 4, 7, 10, 11, 13, 17, 18}) {
    CAPTURE(damaged);
    std::string block = good;
    block[damaged] = char(block[damaged] ^ 0x40);
    CHECK(exif_orientation(block) == 1);
  }
}

namespace {

// Puts a chunk behind a PNG's header.
std::string with_chunk(const std::string& file, const std::string& kind, const std::string& content) {
  const std::string all = kind + content;
  const auto big = [](uint64_t value) { return std::string{char(value >> 24), char(value >> 16), char(value >> 8), char(value)}; };
  constexpr size_t kHeader = 33;  // bytes: the signature and IHDR
  return file.substr(0, kHeader) + big(content.size()) + all +
         big(crc32(0, reinterpret_cast<const Bytef*>(all.data()), uInt(all.size()))) + file.substr(kHeader);
}

std::string packed(const std::string& text) {
  std::string out(compressBound(text.size()), '\0');
  uLongf size = out.size();
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()), text.size());
  return out.substr(0, size);
}

// Returns ImageMagick's form of a block.
std::string profile(const std::string& name, const std::string& block) {
  std::string out = '\n' + name + "\n      " + std::to_string(block.size());
  for (size_t i = 0; i < block.size(); ++i) {
    if (i % 36 == 0) out += '\n';
    for (const int digit : {uint8_t(block[i]) / 16, uint8_t(block[i]) % 16}) out += "0123456789abcdef"[digit];
  }
  return out + '\n';
}

}  // namespace

TEST_CASE("pictures: turned by EXIF in a PNG's texts, and by XMP where EXIF says nothing") {
  const TempDir dir;
  using namespace std::string_literals;
  const std::string plain = png(5, 3, std::string(45, 'a')), exif = "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0"s,
                    upright = "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x01\0\0"s, none = "MM\0*\0\0\0\x08\0\0"s;
  const std::string xmp = "<x:xmpmeta><rdf:Description tiff:Make='a'><tiff:Orientation>6</tiff:Orientation></rdf:Description>";
  const auto turns = [&](const std::string& bytes) {
    write_bytes(dir / "p", bytes);
    const PictureSize size = picture_size(dir / "p");
    CHECK(picture_size(dir / "p", false).width >= picture_size(dir / "p", false).height);
    if (reads_pictures()) CHECK(read_picture(dir / "p", 3).width == size.width);
    return size.width < size.height;
  };
  CHECK(!turns(plain));
  for (const char* name : {"exif", "APP1"}) {
    const std::string keyword = joined("Raw profile type ", name) + '\0', block = name == "APP1"s ? "Exif\0\0"s + exif : exif;
    CHECK(turns(with_chunk(plain, "tEXt", keyword + profile(name, block))));
    CHECK(turns(with_chunk(plain, "zTXt", keyword + '\0' + packed(profile(name, block)))));
    CHECK(!turns(with_chunk(plain, "zTXt", keyword + '\0' + packed(profile(name, block)).substr(9))));
  }
  const std::string adobe = "XML:com.adobe.xmp\0"s;
  CHECK(turns(with_chunk(plain, "iTXt", adobe + "\0\0\0\0"s + xmp)));
  CHECK(turns(with_chunk(plain, "iTXt", adobe + "\1\0en\0name\0"s + packed(xmp))));
  CHECK(turns(with_chunk(plain, "tEXt", "Raw profile type xmp\0"s + profile("xmp", xmp))));
  CHECK(!turns(with_chunk(plain, "tEXt", "Comment\0"s + xmp)));
  CHECK(!turns(with_chunk(with_chunk(plain, "iTXt", adobe + "\0\0\0\0"s + xmp), "eXIf", upright)));  // EXIF counts
  CHECK(turns(with_chunk(with_chunk(plain, "iTXt", adobe + "\0\0\0\0"s + xmp), "eXIf", none)));
  CHECK(!turns(with_chunk(with_chunk(plain, "tEXt", "Raw profile type exif\0"s + profile("exif", exif)), "eXIf", upright)));
  const auto segment = [](const std::string& content) { return "\xff\xe1\0"s + char(content.size() + 2) + content; };
  const auto photo = [&](const std::string& segments) { return jpeg().substr(0, 2) + segments + jpeg().substr(2); };
  const std::string packet = "http://ns.adobe.com/xap/1.0/\0<rdf:Description tiff:Orientation=\"8\"/>"s;
  CHECK(turns(photo(segment(packet))));
  CHECK(turns(photo(segment("Exif\0\0"s + none) + segment(packet))));
  CHECK(!turns(photo(segment(packet) + segment("Exif\0\0"s + upright))));
  for (const char* other : {"tiff:Orientation='9'", "tiff:Orientation", "tiff:OrientationOf=6", "exif:Orientation='6'", ""})
    CHECK(xmp_orientation(other) == 1);
}

TEST_CASE("pictures: a JPEG that lacks its end is read if it lacks no pixel") {
  if (!reads_pictures()) return;
  const TempDir dir;
  const auto flaw_of = [&](const std::string& bytes) {
    write_bytes(dir / "p.jpg", bytes);
    std::string flaw;
    read_picture(dir / "p.jpg", 3, Background::none, true, &flaw);
    return flaw;
  };
  CHECK(flaw_of(jpeg()).empty());
  for (const std::string& whole : {jpeg(), file_of("jpeg.1"), file_of("jpeg.3")}) {  // the last one is progressive
    CHECK(flaw_of(whole.substr(0, whole.size() - 2)) == "Premature end of JPEG file");
    CHECK(contains(message_of<DataError>([&] { flaw_of(whole.substr(0, whole.size() - 12)); }), "the JPEG is cut off or damaged"));
  }
  // Wherever a file is cut off: it is refused, or has every pixel.
  for (const std::string& whole : {file_of("jpeg.1"), file_of("jpeg.3")}) {
    flaw_of(whole);
    const std::vector<uint8_t> pixels = read_picture(dir / "p.jpg", 3).pixels;
    int read = 0;
    for (size_t cut = whole.size() - 1; cut > 4; --cut) {
      if (!message_of<DataError>([&] { flaw_of(whole.substr(0, cut)); }).empty()) continue;
      ++read;
      CHECK(read_picture(dir / "p.jpg", 3).pixels == pixels);
    }
    CHECK(read >= 2);
  }
  const std::string scans = file_of("jpeg.3");
  CHECK(contains(message_of<DataError>([&] { flaw_of(scans.substr(0, scans.rfind("\xff\xda"))); }), "Premature end of JPEG file"));
}
