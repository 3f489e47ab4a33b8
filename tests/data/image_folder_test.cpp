// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/image_folder.h"

#include <doctest/doctest.h>

#include <cmath>

#include "framework/base/check.h"
#include "framework/data/formats/image_file.h"
#include "framework/data/loading/loader.h"
#include "framework/data/transforms/data_form.h"
#include "tests/data/picture_files.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

std::string solid(int pixels, std::string color) {
  std::string out;
  for (int i = 0; i < pixels; ++i) out += color;
  return out;
}

}  // namespace

TEST_CASE("pictures: PNG and JPEG, in color and gray") {
  if (!reads_pictures()) return void(std::puts("SKIPPED: built without libpng and libjpeg"));
  const TempDir dir;
  write_bytes(dir / "a.png", png(2, 1, "\x01\x02\x03\xff\xfe\xfd"));
  const Picture p = read_picture(dir / "a.png", 3);
  CHECK(p.width == 2);
  CHECK(p.height == 1);
  CHECK(p.pixels == std::vector<uint8_t>{1, 2, 3, 255, 254, 253});
  write_bytes(dir / "g.PNG", png(2, 2, std::string("\0\x10\x80\xff", 4), 0));
  CHECK(read_picture(dir / "g.PNG", 1).pixels == std::vector<uint8_t>{0, 16, 128, 255});
  CHECK(read_picture(dir / "g.PNG", 3).pixels[3] == 16);
  write_bytes(dir / "w.png", png(2, 1, std::string("\x80\x00\x10\xff", 4), 0, 16));
  CHECK(read_picture(dir / "w.png", 1).pixels == std::vector<uint8_t>{128, 17});
  write_bytes(dir / "t.png", png(1, 1, std::string("\xff\xff\xff\0", 4), 6));
  CHECK(read_picture(dir / "t.png", 3).pixels == std::vector<uint8_t>{255, 255, 255});
  write_bytes(dir / "j.jpeg", jpeg());
  const Picture j = read_picture(dir / "j.jpeg", 3);
  CHECK(j.width == 16);
  CHECK(j.height == 8);
  const auto near = [&](size_t at, int value) { return std::abs(int(j.pixels[at]) - value) <= 2; };
  CHECK((near(0, 200) && near(1, 39) && near(2, 80) && near(45, 20) && near(46, 180) && near(47, 240)));
  CHECK(std::abs(int(read_picture(dir / "j.jpeg", 1).pixels[0]) - 92) <= 2);
}

TEST_CASE("ImageFolder: a folder a class, brought to one size, by any workers") {
  if (!reads_pictures()) return;
  const TempDir dir;
  std::filesystem::create_directories(dir / "dogs/deeper");
  std::filesystem::create_directory(dir / "cats");
  write_bytes(dir / "dogs/b.jpg", jpeg());
  write_bytes(dir / "dogs/deeper/c.png", png(2, 6, solid(12, std::string("\0\xff\0", 3))));
  write_bytes(dir / "cats/a.png", png(4, 4, solid(16, std::string("\xff\0\x33", 3))));
  write_bytes(dir / "cats/notes.txt", "not a picture");
  const auto data = std::make_shared<ImageFolderDataset>(dir.path(), ImageFolderOptions{.size = 4});
  CHECK(data->class_names() == std::vector<std::string>{"cats", "dogs"});
  CHECK(data->describe() == "ImageFolder " + dir.path().string() + ": 3 pictures, input [3, 4, 4], 2 classes");
  const Batch batch = data->batch(std::vector<int64_t>{2, 0, 1});
  CHECK(batch.target.to_vector<int>() == std::vector<int>{1, 0, 1});
  const float* x = batch.input.data_ptr<float>();
  CHECK(x[0] == doctest::Approx(0));
  CHECK(x[16] == doctest::Approx(1));
  CHECK(x[48] == doctest::Approx(1));
  CHECK(x[48 + 32] == doctest::Approx(0.2));
  CHECK(x[96] == doctest::Approx(200 / 255.0).epsilon(0.02));  // half of the middle of the JPEG
  CHECK(x[96 + 3] == doctest::Approx(20 / 255.0).epsilon(0.1));
  DataLoader workers(data, {.batch_size = 3, .num_workers = 2});
  CHECK(workers.next()->input.to_vector<float>() == data->batch(std::vector<int64_t>{0, 1, 2}).input.to_vector<float>());
  CHECK(ImageFolderDataset(dir.path(), {.size = 4, .grayscale = true}).input_shape() == Shape{1, 4, 4});

  const ImageFolderDataset as_they_are(dir.path());
  CHECK(as_they_are.input_shape() == Shape{3, 4, 4});
  CHECK(contains(message_of<DataError>([&] { as_they_are.batch(std::vector<int64_t>{1}); }),
                 "b.jpg: a picture must be 4 x 4 pixels as the first one, " + (dir / "cats/a.png").string() +
                     ", got 16 x 8\nhelp: set \"size\""));
  const std::string none = message_of<DataError>([&] { ImageFolderDataset(dir.path(), {.classes = {"birds"}}); });
  CHECK_MESSAGE(contains(none, "must have a folder of a class that the training data has, but has \"cats\""), none);
}

TEST_CASE("pictures: inks become RGB, and what is behind transparent pixels is a choice") {
  if (!reads_pictures()) return;
  const TempDir dir;
  write_bytes(dir / "inks.jpg", jpeg_of_inks());
  const Picture p = read_picture(dir / "inks.jpg", 3);
  CHECK(p.pixels.size() == 8 * 8 * 3);
  const int wanted[] = {215, 46, 114};
  for (size_t i = 0; i < p.pixels.size(); ++i) CHECK(std::abs(int(p.pixels[i]) - wanted[i % 3]) <= 2);
  write_bytes(dir / "t.png", png(2, 1, std::string("\xff\x80\x00\x00\x01\x02\x03\xff", 8), 6));
  const auto pixels = [&](Background b) { return read_picture(dir / "t.png", 3, b).pixels; };
  CHECK(pixels(Background::black) == std::vector<uint8_t>{0, 0, 0, 1, 2, 3});
  CHECK(pixels(Background::white) == std::vector<uint8_t>{255, 255, 255, 1, 2, 3});
  CHECK(pixels(Background::none) == std::vector<uint8_t>{255, 128, 0, 1, 2, 3});
  CHECK(read_picture(dir / "t.png", 3).pixels == pixels(Background::none));
  std::filesystem::create_directory(dir / "a");
  std::filesystem::copy_file(dir / "t.png", dir / "a/t.png");
  const ImageFolderDataset folder(dir.path());
  CHECK(folder.batch(std::vector<int64_t>{0}).input.to_vector<float>() ==
        std::vector<float>{1, 1 / 255.f, 128 / 255.f, 2 / 255.f, 0, 3 / 255.f});
  write_bytes(dir / "g.png", png(1, 1, std::string("\x40"), 0));
  CHECK(read_picture(dir / "g.png", 3, Background::none).pixels == std::vector<uint8_t>{64, 64, 64});
}

TEST_CASE("pictures: sizes of the first bytes are those of the whole") {
  const TempDir dir;
  write_bytes(dir / "a.png", png(5, 3, solid(15, "abc")));
  write_bytes(dir / "b.jpg", jpeg());
  write_bytes(dir / "c.jpg", jpeg_of_inks());
  CHECK(picture_size(dir / "a.png") == PictureSize{5, 3});
  CHECK(picture_size(dir / "b.jpg") == PictureSize{16, 8});
  CHECK(picture_size(dir / "c.jpg") == PictureSize{8, 8});
  for (const size_t cut : {1, 20, 100}) {
    write_bytes(dir / "d.jpg", jpeg().substr(0, cut));
    CHECK(contains(message_of<DataError>([&] { picture_size(dir / "d.jpg"); }), "d.jpg: the header is cut off or damaged"));
  }
  write_bytes(dir / "e.png", "GIF89a and more than twenty-four bytes");
  CHECK(contains(message_of<DataError>([&] { picture_size(dir / "e.png"); }), "the file is a GIF picture"));
  CHECK(contains(message_of<IoError>([&] { picture_size(dir / "none.png"); }), "cannot read"));
}

TEST_CASE("ImageFolder: squashed, and padded with the background") {
  if (!reads_pictures()) return;
  const TempDir dir;
  std::filesystem::create_directory(dir / "a");
  // The left half red 1, the right one 0.2; 8 x 4.
  std::string row;
  for (int x = 0; x < 8; ++x) row += x < 4 ? std::string("\xff\0\0", 3) : std::string("\x33\0\0", 3);
  write_bytes(dir / "a/wide.png", png(8, 4, row + row + row + row));
  const auto red = [&](PictureFit fit, Background background) {
    const ImageFolderDataset data(dir.path(), {.size = 4, .fit = fit, .background = background});
    const auto all = data.batch(std::vector<int64_t>{0}).input.to_vector<float>();
    return std::vector<float>(all.begin(), all.begin() + 16);
  };
  const auto near = [](const std::vector<float>& got, const std::vector<float>& wanted) {
    for (size_t i = 0; i < 16; ++i) CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(0.12));
  };
  near(red(PictureFit::crop, Background::black), {1, 1, .2f, .2f, 1, 1, .2f, .2f, 1, 1, .2f, .2f, 1, 1, .2f, .2f});
  near(red(PictureFit::squash, Background::black), {1, .9f, .3f, .2f, 1, .9f, .3f, .2f, 1, .9f, .3f, .2f, 1, .9f, .3f, .2f});
  near(red(PictureFit::pad, Background::black), {0, 0, 0, 0, 1, .9f, .3f, .2f, 1, .9f, .3f, .2f, 0, 0, 0, 0});
  near(red(PictureFit::pad, Background::white), {1, 1, 1, 1, 1, .9f, .3f, .2f, 1, .9f, .3f, .2f, 1, 1, 1, 1});
  // A tall one is padded at its sides.
  std::string tall;
  for (int y = 0; y < 8; ++y) tall += solid(4, std::string("\xff\0\0", 3));
  write_bytes(dir / "a/wide.png", png(4, 8, tall));
  near(red(PictureFit::pad, Background::none), {0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0});
}

TEST_CASE("ImageFolder: pictures of other formats are counted, and sizes compared without decoding") {
  if (!reads_pictures()) return;
  const TempDir dir;
  std::filesystem::create_directory(dir / "cats");
  for (const char* name : {"a.webp", "b.WEBP", "c.gif", "d.tif", "notes.txt"}) write_bytes(dir / "cats" / name, "x");
  CHECK(contains(message_of<DataError>([&] { ImageFolderDataset data(dir.path()); }),
                 "cats must have pictures (PNG or JPEG), but has none: 4 pictures are left out, since only PNG and JPEG are read: "
                 "1 .WEBP, 1 .gif, 1 .tif, 1 .webp, such as " +
                     (dir / "cats/a.webp").string() + "\nhelp: convert them"));
  for (const char* name : {"1.png", "2.png", "4.png"}) write_bytes(dir / "cats" / name, png(4, 4, solid(16, "abc")));
  const ImageFolderDataset data(dir.path());
  CHECK(data.check_sizes(60) == 3);
  CHECK(data.check_sizes(0) == 0);
  CHECK(data.labels() == std::vector<int64_t>{0, 0, 0});
  REQUIRE(data.notes().warnings.size() == 1);
  CHECK(contains(data.notes().warnings[0],
                 "4 pictures are left out, since only PNG and JPEG are read: 1 .WEBP, 1 .gif, 1 .tif, 1 .webp, such as "));
  write_bytes(dir / "cats/3.jpg", jpeg());
  CHECK(contains(message_of<DataError>([&] { ImageFolderDataset(dir.path()).check_sizes(60); }),
                 "all pictures must have one size, but 1 of 4 are not 4 x 4 as the first one, "));
  CHECK(ImageFolderDataset(dir.path(), {.size = 4}).check_sizes(60) == 4);
}

TEST_CASE("pictures of 16 bits keep all of them") {
  if (!reads_pictures()) return;
  const TempDir dir;
  std::filesystem::create_directory(dir / "a");
  // Gray, values that 8 bits would take for black.
  write_bytes(dir / "a/gray.png", png(2, 2, std::string("\0\0\0\x01\0\x50\x12\x34", 8), 0, 16));
  const Picture gray = read_picture(dir / "a/gray.png", 1);
  CHECK(gray.fine == std::vector<uint16_t>{0, 1, 0x50, 0x1234});
  CHECK(gray.pixels == std::vector<uint8_t>{0, 0, 0, 18});
  const ImageFolderDataset data(dir.path(), {.grayscale = true});
  const std::vector<float> values = data.batch(std::vector<int64_t>{0}).input.to_vector<float>();
  for (size_t i = 0; i < 4; ++i) CHECK(values[i] == doctest::Approx(gray.fine[i] / 65535.0));
  Tensor inverted = read_input_picture(dir / "a/gray.png", data.form(), /*invert=*/true);
  CHECK(inverted.to_vector<float>()[2] == doctest::Approx(1 - 0x50 / 65535.0));
  // Colors, and with a background behind them.
  write_bytes(dir / "rgb.png", png(1, 1, std::string("\x01\x02\x00\x64\xff\xff", 6), 2, 16));
  CHECK(read_picture(dir / "rgb.png", 3).fine == std::vector<uint16_t>{0x102, 100, 0xffff});
  const uint32_t weighted = 0x102 * 19595 + 100 * 38470 + 65535 * 7471 + 32768;
  CHECK(read_picture(dir / "rgb.png", 1).fine == std::vector<uint16_t>{uint16_t(weighted >> 16)});
  write_bytes(dir / "clear.png", png(2, 1, std::string("\0\x40\0\0\0\x40\x40\0", 8), 4, 16));  // gray and alpha
  CHECK(read_picture(dir / "clear.png", 1).fine == std::vector<uint16_t>{0x40, 0x40});
  const uint16_t mixed = uint16_t((0x40 * 0x4000 + 0xffffLL * 0xbfff) / 0xffff);
  CHECK(read_picture(dir / "clear.png", 1, Background::white).fine == std::vector<uint16_t>{0xffff, mixed});
  CHECK(read_picture(dir / "clear.png", 3, Background::black).fine == std::vector<uint16_t>{0, 0, 0, 16, 16, 16});
  CHECK(read_picture(dir / "a/gray.png", 3).fine.size() == 12);
  write_bytes(dir / "plain.png", png(1, 1, "\x05", 0));
  CHECK(read_picture(dir / "plain.png", 3).fine.empty());
}
