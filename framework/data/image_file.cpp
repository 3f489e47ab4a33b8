// SPDX-License-Identifier: Apache-2.0
#include "framework/data/image_file.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "framework/base/check.h"
#include "framework/io/atomic_file.h"
#include "framework/io/other_file.h"

#ifdef HALFSTEP_WITH_IMAGES
#include <csetjmp>
#include <cstdio>
// libjpeg's header needs size_t and FILE before it.
#include <jpeglib.h>
#include <png.h>
#endif

namespace halfstep {
namespace {

constexpr const char* kImage = "image";

std::string ending(const std::filesystem::path& path) {
  std::string out = path.extension().string();
  for (char& c : out) c = char(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return out;
}

#ifdef HALFSTEP_WITH_IMAGES

constexpr int64_t kMaxPixels = int64_t(1) << 28;
constexpr size_t kMaxPacked = 8256;  // pixels of a byte: 1032 bytes of deflate, of a bit each; JPEG stays far below

// Before memory is allocated for the size in a header.
void check_size(const std::string& path, int64_t height, int64_t width, size_t bytes) {
  check<DataError>(height > 0 && width > 0 && height <= kMaxPixels / width, kImage, path, ": a picture may have 2^28 pixels, got ",
                   width, " x ", height);
  check<DataError>(size_t(height * width) / kMaxPacked <= bytes, kImage, path, ": ", width, " x ", height, " pixels cannot lie in ",
                   bytes, " bytes: the file is cut off or damaged");
}

Picture decode_png(const std::string& path, const std::string& bytes, Background background) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const auto refuse = [&] {
    const std::string why = image.message;
    png_image_free(&image);
    fail<DataError>(kImage, path, ": the PNG is cut off or damaged (libpng: ", why, ')');
  };
  if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size())) refuse();
  Picture out{image.width, image.height, 3};
  const bool keeps_alpha = background == Background::none && (image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  try {
    check_size(path, out.height, out.width, bytes.size());
    image.format = keeps_alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // else 16 bits without a word about it would be light, not colors
    out.pixels.resize(size_t(out.height) * size_t(out.width) * (keeps_alpha ? 4 : 3));
  } catch (...) {
    png_image_free(&image);
    throw;
  }
  const png_byte shade = background == Background::white ? 255 : 0;
  const png_color behind{shade, shade, shade};
  if (!png_image_finish_read(&image, &behind, out.pixels.data(), 0, nullptr)) refuse();
  if (!keeps_alpha) return out;
  const size_t pixels = out.pixels.size() / 4;
  for (size_t i = 0; i < pixels; ++i) std::copy_n(out.pixels.data() + 4 * i, 3, out.pixels.data() + 3 * i);
  out.pixels.resize(3 * pixels);
  return out;
}

struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void jpeg_failed(j_common_ptr info) {
  auto* const errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->text);
  std::longjmp(errors->back, 1);
}
void jpeg_warned(j_common_ptr info, int level) {  // a damaged picture would be filled with gray
  if (level < 0) jpeg_failed(info);
}

// No object with a destructor lives here, where longjmp may end in. Returns false with the reason in errors.text. First with
// `pixels` null: gives the sizes. With four components a pixel is CMYK, else RGB.
bool run_jpeg(jpeg_decompress_struct& info, JpegErrors& errors, const std::string& bytes, uint8_t* pixels) {
  info.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = jpeg_failed;
  errors.manager.emit_message = jpeg_warned;
  jpeg_create_decompress(&info);
  if (setjmp(errors.back)) {
    jpeg_destroy_decompress(&info);
    return false;
  }
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&info, TRUE);
  info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  if (pixels) {
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = pixels + size_t(info.output_scanline) * info.output_width * size_t(info.output_components);
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
  }
  jpeg_destroy_decompress(&info);
  return true;
}

// Inverted CMYK to RGB, with PIL's rounding.
void from_cmyk(Picture& p) {
  const auto share = [](int a, int b) {
    const int t = a * b + 128;
    return ((t >> 8) + t) >> 8;
  };
  const size_t pixels = p.pixels.size() / 4;
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t* const from = p.pixels.data() + 4 * i;
    const int light = from[3];
    uint8_t rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = uint8_t(light - share(255 - from[c], light));
    std::copy_n(rgb, 3, p.pixels.data() + 3 * i);
  }
  p.pixels.resize(3 * pixels);
}

Picture decode_jpeg(const std::string& path, const std::string& bytes) {
  jpeg_decompress_struct info{};
  JpegErrors errors{};
  const auto refuse = [&] { fail<DataError>(kImage, path, ": the JPEG is cut off or damaged (libjpeg: ", errors.text, ')'); };
  if (!run_jpeg(info, errors, bytes, nullptr)) refuse();
  Picture out{int64_t(info.image_width), int64_t(info.image_height), 3};
  check_size(path, out.height, out.width, bytes.size());
  const bool cmyk = info.num_components == 4;
  out.pixels.resize(size_t(out.height) * size_t(out.width) * (cmyk ? 4 : 3));
  if (!run_jpeg(info, errors, bytes, out.pixels.data())) refuse();
  if (cmyk) from_cmyk(out);
  return out;
}

const char* format_of(const std::string& bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return "PNG";
  if (bytes.starts_with("\xff\xd8\xff")) return "JPEG";
  return "neither PNG nor JPEG";
}

void to_gray(Picture& p) {
  for (size_t i = 0; i < p.pixels.size() / 3; ++i) {
    const uint8_t* const c = p.pixels.data() + 3 * i;
    p.pixels[i] = uint8_t((c[0] * 19595 + c[1] * 38470 + c[2] * 7471 + 0x8000) >> 16);
  }
  p.pixels.resize(p.pixels.size() / 3);
  p.channels = 1;
}

#endif

}  // namespace

bool is_picture_name(const std::filesystem::path& path) {
  const std::string end = ending(path);
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

bool is_other_picture_name(const std::filesystem::path& path) {
  constexpr std::string_view kOthers[] = {".webp", ".gif",  ".bmp", ".tif", ".tiff", ".avif",
                                          ".heic", ".heif", ".jp2", ".jxl", ".ppm",  ".pgm"};
  return std::find(std::begin(kOthers), std::end(kOthers), ending(path)) != std::end(kOthers);
}

PictureSize picture_size(const std::filesystem::path& path) {
  constexpr int64_t kLargest = int64_t(1) << 28;
  check_path(path);
  std::ifstream in(path, std::ios::binary);
  check<IoError>(bool(in), kImage, "cannot read ", path.string());
  uint8_t b[24] = {};
  const auto next = [&](int n) {
    in.read(reinterpret_cast<char*>(b), n);
    check<DataError>(in.gcount() == n, kImage, path.string(), ": the header is cut off or damaged");
  };
  const auto number = [&](int at, int bytes) {
    int64_t out = 0;
    for (int i = at; i < at + bytes; ++i) out = out << 8 | b[i];
    return out;
  };
  const auto checked = [&](int64_t width, int64_t height) {
    check<DataError>(width > 0 && height > 0 && height <= kLargest / width, kImage, path.string(),
                     ": a picture may have 2^28 pixels, got ", width, " x ", height);
    return PictureSize{width, height};
  };
  next(2);
  if (b[0] == 0x89) {
    next(22);  // the rest of the signature, the first chunk's length and name
    return checked(number(14, 4), number(18, 4));
  }
  if (b[0] != 0xff || b[1] != 0xd8) refuse_other_file<DataError>(kImage, path, head_of_file(path));
  check<DataError>(b[0] == 0xff && b[1] == 0xd8, kImage, path.string(), ": the content is neither PNG nor JPEG");
  for (;;) {  // from segment to segment, to the one that begins a frame
    do next(1);
    while (b[0] != 0xff);
    do next(1);
    while (b[0] == 0xff);
    const int marker = b[0];
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd9)) continue;
    next(2);
    const int64_t length = number(0, 2);
    if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc) {
      next(5);
      return checked(number(3, 2), number(1, 2));
    }
    in.seekg(length - 2, std::ios::cur);
  }
}

#ifdef HALFSTEP_WITH_IMAGES

bool reads_pictures() { return true; }

Picture read_picture(const std::filesystem::path& path, int channels, Background background) {
  check<ValueError>(channels == 1 || channels == 3, kImage, "channels must be 1 or 3, got ", channels);
  const std::string name = path.string();
  check<DataError>(is_picture_name(path), kImage, name, ": the name must end in .png, .jpg or .jpeg");
  const std::string bytes = read_file(path), said = ending(path) == ".png" ? "PNG" : "JPEG", is = format_of(bytes);
  check<DataError>(!bytes.empty(), kImage, name, ": the file is empty");
  if (is.size() > 4) refuse_other_file<DataError>(kImage, path, bytes);
  check<DataError>(is == said, kImage, name, ": the name says ", said, ", but the content is ", is,
                   Help{is.size() <= 4 ? "rename the file" : "it is damaged, or no picture"});
  Picture out = is == "PNG" ? decode_png(name, bytes, background) : decode_jpeg(name, bytes);
  if (channels == 1) to_gray(out);
  return out;
}

#else

bool reads_pictures() { return false; }

Picture read_picture(const std::filesystem::path&, int, Background) {
  fail<ValueError>(kImage, "this halfstep was built without libpng and libjpeg",
                   Help{"install libpng-dev and libjpeg62-turbo-dev, and build anew"});
}

#endif

}  // namespace halfstep
