// SPDX-License-Identifier: Apache-2.0
#include "framework/data/formats/image_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/formats/picture_header.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/other_file.h"

#ifdef HALFSTEP_WITH_IMAGES
#include <csetjmp>
#include <cstdio>
// libjpeg's header needs size_t and FILE before it.
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>
#endif

namespace halfstep {
namespace {

constexpr const char* kImage = "image";

// Returns the ending of the name in lower case, ".png".
std::string ending_of(const std::filesystem::path& path) { return lower_case(path.extension().string()); }

constexpr int64_t kMaxPixels = int64_t(1) << 28;

#ifdef HALFSTEP_WITH_IMAGES

constexpr size_t kMaxPacked = 8256;  // most pixels per byte: deflate reaches 1032, times 8 pixels of one bit; JPEG far less

// Checks the size in a header before memory is allocated for it.
void check_size(const std::string& path, int64_t height, int64_t width, size_t bytes) {
  check<DataError>(height > 0 && width > 0 && height <= kMaxPixels / width, kImage, path, ": a picture may have 2^28 pixels, got ",
                   width, " x ", height);
  check<DataError>(size_t(height * width) / kMaxPacked <= bytes, kImage, path, ": ", width, " x ", height, " pixels cannot lie in ",
                   bytes, " bytes: the file is cut off or damaged");
}

// Returns a PNG without its color space chunks, by which libpng would convert the colors.
std::string without_color_space(std::string bytes) {
  constexpr std::string_view kChunks[] = {"gAMA", "cHRM", "sRGB", "iCCP", "cICP"};
  std::string out;
  constexpr size_t kSignature = 8, kChunkFrame = 12;  // bytes; a chunk has a length, a name and a checksum beside its content
  size_t done = 0;                                    // end of the part that `out` has, or has left out
  for (size_t at = kSignature; at + kChunkFrame <= bytes.size();) {
    size_t length = kChunkFrame;
    for (size_t i = 0; i < 4; ++i) length += size_t(uint8_t(bytes[at + i])) << (24 - 8 * i);
    if (length > bytes.size() - at) break;
    const std::string_view name = std::string_view(bytes).substr(at + 4, 4);
    if (std::find(std::begin(kChunks), std::end(kChunks), name) != std::end(kChunks))
      out.append(bytes, done, at - done), done = at + length;
    at += length;
  }
  return done == 0 ? std::move(bytes) : out.append(bytes, done);
}

struct PngBytes {
  const std::string* bytes;
  size_t done;
};

// Decodes a PNG of 16 bits to red, green, blue and alpha; returns false for a damaged one. Has no object with a destructor, because
// longjmp may end here.
bool run_png(PngBytes& from, size_t row_length, uint16_t* pixels) {
  png_structp png = png_create_read_struct(
      PNG_LIBPNG_VER_STRING, nullptr, [](png_structp p, png_const_charp) { png_longjmp(p, 1); },
      [](png_structp, png_const_charp) {});
  if (!png) return false;
  png_infop info = png_create_info_struct(png);
  if (!info || setjmp(png_jmpbuf(png))) {
    png_destroy_read_struct(&png, &info, nullptr);
    return false;
  }
  png_set_read_fn(png, &from, [](png_structp p, png_bytep to, size_t n) {
    auto* const source = static_cast<PngBytes*>(png_get_io_ptr(p));
    if (n > source->bytes->size() - source->done) png_error(p, "cut off");
    std::memcpy(to, source->bytes->data() + source->done, n);
    source->done += n;
  });
  png_read_info(png, info);
  png_set_expand(png);  // the transparent color to alpha
  png_set_gray_to_rgb(png);
  png_set_add_alpha(png, 0xffff, PNG_FILLER_AFTER);
  const uint16_t one = 1;
  if (*reinterpret_cast<const uint8_t*>(&one) == 1) png_set_swap(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  for (int pass = 0; pass < passes; ++pass)
    for (png_uint_32 y = 0; y < png_get_image_height(png, info); ++y)
      png_read_row(png, reinterpret_cast<png_bytep>(pixels + y * row_length), nullptr);
  png_destroy_read_struct(&png, &info, nullptr);
  return true;
}

// Adds the 16 bits of a PNG to its picture.
void add_fine(const std::string& path, const std::string& bytes, Background background, Picture& out) {
  const size_t pixels = size_t(out.height) * size_t(out.width);
  out.fine.resize(4 * pixels);
  PngBytes from{&bytes, 0};
  check<DataError>(run_png(from, 4 * size_t(out.width), out.fine.data()), kImage, path, ": the PNG is cut off or damaged");
  const uint32_t shade = background == Background::white ? 0xffff : 0;
  for (size_t i = 0; i < pixels; ++i) {
    const uint32_t alpha = background == Background::none ? 0xffff : out.fine[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const uint64_t sum = uint64_t(out.fine[4 * i + c]) * alpha + uint64_t(shade) * (0xffff - alpha);
      out.fine[3 * i + c] = uint16_t((sum + 0x7fff) / 0xffff);
    }
  }
  out.fine.resize(3 * pixels);
}

Picture decode_png(const std::string& path, const std::string& bytes, Background background) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const auto refuse = [&] {
    const std::string why = image.message;
    png_image_free(&image);
    if (why.find("emory") != std::string::npos) throw std::bad_alloc();
    fail<DataError>(kImage, path, ": the PNG is cut off or damaged (libpng: ", why, ')');
  };
  if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size())) refuse();
  Picture out{image.width, image.height, 3};
  const bool keeps_alpha = background == Background::none && (image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  try {
    check_size(path, out.height, out.width, bytes.size());
    image.format = keeps_alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // otherwise libpng would take 16 bits without a color space as linear light
    out.pixels.resize(size_t(out.height) * size_t(out.width) * (keeps_alpha ? 4 : 3));
  } catch (...) {
    png_image_free(&image);
    throw;
  }
  const png_byte shade = background == Background::white ? 255 : 0;
  const png_color background_color{shade, shade, shade};
  if (!png_image_finish_read(&image, &background_color, out.pixels.data(), 0, nullptr)) refuse();
  constexpr size_t kDepth = 24;  // place of the number of bits in a PNG
  if (bytes[kDepth] == 16) add_fine(path, bytes, background, out);
  if (!keeps_alpha) return out;
  const size_t pixels = out.pixels.size() / 4;
  for (size_t i = 0; i < pixels; ++i) std::copy_n(out.pixels.data() + 4 * i, 3, out.pixels.data() + 3 * i);
  out.pixels.resize(3 * pixels);
  return out;
}

struct JpegErrors {
  jpeg_error_mgr manager;  // first, because libjpeg has a pointer to it
  std::jmp_buf on_error;
  bool lacks_end;
  char text[JMSG_LENGTH_MAX], flaw[JMSG_LENGTH_MAX];  // of an error, and of a warning
};

// Ends decoding after an error.
[[noreturn]] void on_jpeg_error(j_common_ptr info) {
  auto* const errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->text);
  std::longjmp(errors->on_error, 1);
}
// Notes a warning, or ends decoding if it costs pixels.
void on_jpeg_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  auto* const errors = reinterpret_cast<JpegErrors*>(info->err);
  const int code = info->err->msg_code;
  // Ignores two warnings that cost no pixel: if the end is missing and pixels too, another warning follows.
  if (code != JWRN_JPEG_EOF && code != JWRN_EXTRANEOUS_DATA) on_jpeg_error(info);  // otherwise missing pixels would become gray
  errors->lacks_end |= code == JWRN_JPEG_EOF;
  info->err->format_message(info, errors->flaw);
}

// Returns whether a JPEG without its end has all its scans.
bool has_all_scans(jpeg_decompress_struct& info) {
  if (!jpeg_has_multiple_scans(&info)) return true;
  if (!info.coef_bits) return false;  // with one scan per component there is no record of those read
  for (int c = 0; c < info.num_components; ++c)
    for (const int missing : info.coef_bits[c])
      if (missing != 0) return false;
  return true;
}

// Reads the sizes into `info`, and the pixels, unless `pixels` is null. Returns false with the reason in errors.text. A pixel with
// four components is CMYK, else RGB. Has no object with a destructor, because longjmp may end here.
bool run_jpeg(jpeg_decompress_struct& info, JpegErrors& errors, const std::string& bytes, uint8_t* pixels) {
  info.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = on_jpeg_error;
  errors.manager.emit_message = on_jpeg_message;
  jpeg_create_decompress(&info);
  if (setjmp(errors.on_error)) {
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
    if (errors.lacks_end && !has_all_scans(info)) {
      std::memcpy(errors.text, errors.flaw, sizeof errors.text);
      jpeg_destroy_decompress(&info);
      return false;
    }
    jpeg_finish_decompress(&info);
  }
  jpeg_destroy_decompress(&info);
  return true;
}

// Converts inverted CMYK to RGB, with PIL's rounding.
void convert_from_cmyk(Picture& picture) {
  const auto scaled = [](int a, int b) {  // a b / 255, rounded
    const int product = a * b + 128;
    return ((product >> 8) + product) >> 8;
  };
  const size_t pixels = picture.pixels.size() / 4;
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t* const from = picture.pixels.data() + 4 * i;
    const int light = from[3];
    uint8_t rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = uint8_t(light - scaled(255 - from[c], light));
    std::copy_n(rgb, 3, picture.pixels.data() + 3 * i);
  }
  picture.pixels.resize(3 * pixels);
}

Picture decode_jpeg(const std::string& path, const std::string& bytes, std::string* flaw) {
  jpeg_decompress_struct info{};
  JpegErrors errors{};
  const auto refuse = [&] {
    if (errors.manager.msg_code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
    fail<DataError>(kImage, path, ": the JPEG is cut off or damaged (libjpeg: ", errors.text, ')');
  };
  if (!run_jpeg(info, errors, bytes, nullptr)) refuse();
  Picture out{int64_t(info.image_width), int64_t(info.image_height), 3};
  check_size(path, out.height, out.width, bytes.size());
  const bool cmyk = info.num_components == 4;
  out.pixels.resize(size_t(out.height) * size_t(out.width) * (cmyk ? 4 : 3));
  if (!run_jpeg(info, errors, bytes, out.pixels.data())) refuse();
  if (cmyk) convert_from_cmyk(out);
  if (flaw) *flaw = errors.flaw;
  return out;
}

// Returns the picture turned and mirrored as its EXIF orientation says.
Picture oriented(Picture stored, int orientation) {
  if (orientation == 1) return stored;
  const bool swaps_sides = orientation >= 5;  // rows become columns
  // Whether the result begins at the right end of the stored rows, and whether it begins at the bottom row.
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Picture out{swaps_sides ? stored.height : stored.width, swaps_sides ? stored.width : stored.height, stored.channels};
  const auto turn = [&](const auto& given, auto& turned) {
    turned.resize(given.size());
    auto* to = turned.data();
    for (int64_t y = 0; y < out.height && !given.empty(); ++y) {
      for (int64_t x = 0; x < out.width; ++x, to += stored.channels) {
        const int64_t u = swaps_sides ? y : x, v = swaps_sides ? x : y;
        const int64_t column = from_right ? stored.width - 1 - u : u, row = from_bottom ? stored.height - 1 - v : v;
        std::copy_n(given.data() + (row * stored.width + column) * stored.channels, stored.channels, to);
      }
    }
  };
  turn(stored.pixels, out.pixels);
  turn(stored.fine, out.fine);
  return out;
}

// Converts RGB to gray with PIL's rounding: 0.299 R + 0.587 G + 0.114 B, in units of 2^-16.
void convert_to_gray(Picture& picture) {
  constexpr uint32_t kRed = 19595, kGreen = 38470, kBlue = 7471, kHalf = 0x8000;
  const auto convert = [](auto& pixels) {
    for (size_t i = 0; i < pixels.size() / 3; ++i) {
      const auto* const rgb = pixels.data() + 3 * i;
      pixels[i] = std::remove_cvref_t<decltype(*rgb)>((rgb[0] * kRed + rgb[1] * kGreen + rgb[2] * kBlue + kHalf) >> 16);
    }
    pixels.resize(pixels.size() / 3);
  };
  convert(picture.pixels);
  convert(picture.fine);
  picture.channels = 1;
}

#endif

}  // namespace

bool is_picture_name(const std::filesystem::path& path) {
  constexpr std::string_view kRead[] = {".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".pjpeg", ".pjp"};
  return std::find(std::begin(kRead), std::end(kRead), ending_of(path)) != std::end(kRead);
}

bool is_other_picture_name(const std::filesystem::path& path) {
  constexpr std::string_view kOthers[] = {".webp", ".gif",  ".bmp", ".tif", ".tiff", ".avif",
                                          ".heic", ".heif", ".jp2", ".jxl", ".ppm",  ".pgm"};
  return std::find(std::begin(kOthers), std::end(kOthers), ending_of(path)) != std::end(kOthers);
}

PictureSize picture_size(const std::filesystem::path& path, bool exif) {
  check_path(path);
  std::ifstream in(path, std::ios::binary);
  check<IoError>(bool(in), kImage, "cannot read ", path.string());
  constexpr size_t kLeastRead = 4096;
  std::string window;  // part of the file from `begin` on
  uint64_t begin = 0;
  const FileReader read = [&](uint64_t at, void* to, size_t n) {
    if (at < begin || at + n > begin + window.size()) {
      window.resize(std::max(n, kLeastRead));
      in.clear();
      in.seekg(std::streamoff(begin = at));
      in.read(window.data(), std::streamsize(window.size()));
      window.resize(size_t(in.gcount()));
    }
    if (at + n > begin + window.size()) return false;
    std::memcpy(to, window.data() + (at - begin), n);
    return true;
  };
  if (const std::string head = head_of_file(path); picture_format(head).empty()) refuse_other_file<DataError>(kImage, path, head);
  PictureHeader header = picture_header(path.string(), read);
  check<DataError>(header.width > 0 && header.height > 0 && header.height <= kMaxPixels / header.width, kImage, path.string(),
                   ": a picture may have 2^28 pixels, got ", header.width, " x ", header.height);
  if (exif && header.orientation >= 5) std::swap(header.width, header.height);
  return {header.width, header.height};
}

bool has_picture_content(const std::filesystem::path& path) { return !picture_format(head_of_file(path)).empty(); }

void picture_too_large(const std::filesystem::path& path, int64_t width, int64_t height) {
  fail<MemoryError>(kImage, path.string(), ": a picture of ", width, " x ", height, " pixels needs more memory than there is",
                    Help{"make it smaller; with a smaller data.loader.num_workers fewer are read at once"});
}

#ifdef HALFSTEP_WITH_IMAGES

bool reads_pictures() { return true; }

Picture read_picture(const std::filesystem::path& path, int channels, Background background, bool exif, std::string* flaw) {
  check<ValueError>(channels == 1 || channels == 3, kImage, "channels must be 1 or 3, got ", channels);
  const std::string name = path.string();
  PictureHeader header;
  try {
    std::string bytes = read_file(path);
    check<DataError>(!bytes.empty(), kImage, name, ": the file is empty");
    const std::string_view format = picture_format(bytes);
    if (format.empty()) refuse_other_file<DataError>(kImage, path, bytes);
    check<DataError>(!format.empty(), kImage, name, ": the content is neither PNG nor JPEG", Help{"it is damaged, or no picture"});
    const FileReader read = [&](uint64_t at, void* to, size_t n) {
      if (at > bytes.size() || n > bytes.size() - at) return false;
      std::memcpy(to, bytes.data() + at, n);
      return true;
    };
    header = picture_header(name, read);
    Picture out =
        format == "PNG" ? decode_png(name, without_color_space(std::move(bytes)), background) : decode_jpeg(name, bytes, flaw);
    if (channels == 1) convert_to_gray(out);
    return exif ? oriented(std::move(out), header.orientation) : out;
  } catch (const std::bad_alloc&) { picture_too_large(path, header.width, header.height); }
}

#else

bool reads_pictures() { return false; }

Picture read_picture(const std::filesystem::path&, int, Background, bool, std::string*) {
  fail<ValueError>(kImage, "this halfstep was built without libpng and libjpeg",
                   Help{"install libpng-dev and libjpeg62-turbo-dev, and build anew"});
}

#endif

}  // namespace halfstep
