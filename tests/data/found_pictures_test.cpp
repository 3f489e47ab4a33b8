// SPDX-License-Identifier: Apache-2.0
// Folders as people have them: what is a picture there, what is passed over, and what is found before training.
#include "framework/data/sets/found_pictures.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "framework/base/check.h"
#include "framework/data/loading/subsets.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/sets/picture_check.h"
#include "framework/data/sets/picture_statistics.h"
#include "tests/data/picture_files.h"
#include "tests/io/files.h"
#include "tests/support/environment.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace fs = std::filesystem;

namespace {

std::string dot() { return png(1, 1, "abc"); }

}  // namespace

TEST_CASE("ImageFolder: hidden names, links and other files are passed over, and counted") {
  const TempDir dir;
  const fs::path root = dir / "pets";
  fs::create_directories(root / "cat/young");
  fs::create_directories(root / "dog/@eaDir");
  fs::create_directories(root / "__MACOSX/cat");
  fs::create_directories(root / ".ipynb_checkpoints");
  for (const char* name : {"a.png", "b.JFIF", "c.jpe", "d.pjpeg", "e.apng", "young/f.jpg", "no ending"})
    write_bytes(root / "cat" / name, dot());
  for (const char* name : {".DS_Store", "._a.png", "notes.txt", "a text", "g.webp"}) write_bytes(root / "cat" / name, "x");
  for (const char* name : {"a.png", "@eaDir/a.png"}) write_bytes(root / "dog" / name, dot());
  write_bytes(root / ".ipynb_checkpoints/a.png", dot());
  write_bytes(root / "stray.png", dot());
  write_bytes(root / "dog" / "n\xf6tes\n.\xe4", "x");
  fs::create_symlink("../nowhere.png", root / "dog/gone.png");
  fs::create_directory_symlink("..", root / "dog/up");
  fs::create_directory_symlink("../..", root / "cat/young/top");
  fs::create_directory_symlink(".", root / "self");
  fs::create_directory_symlink("../cat/young", root / "dog/borrowed");  // of another folder: followed, up to its link back

  const ImageFolderDataset data(root, {.size = 2});
  CHECK(data.class_names() == std::vector<std::string>{"cat", "dog"});
  CHECK(data.size() == 7 + 2);
  const DataNotes notes = data.notes();
  CAPTURE(notes.summary);
  CHECK(notes.summary.starts_with("left out: 5 hidden names, such as " + (root / ".ipynb_checkpoints").string()));
  CHECK(contains(notes.summary, "; 4 links to folders above, such as "));
  CHECK(notes.summary.ends_with("; 3 other files (1 without ending, 1 .txt, 1 .\xef\xbf\xbd)"));
  REQUIRE(notes.warnings.size() == 3);
  CHECK(contains(notes.warnings[0], "1 picture is left out, since only PNG and JPEG are read: 1 .webp"));
  CHECK(notes.warnings[1] == "1 link leads nowhere, such as " + (root / "dog/gone.png").string());
  CHECK(contains(notes.warnings[2], "1 picture is left out, since they lie beside the folders of the classes"));
  CHECK(picture_files(data).size() == 9);
  const auto part = subset(std::make_shared<ImageFolderDataset>(root, ImageFolderOptions{.size = 2}), {8, 0});
  CHECK(picture_files(*part) == std::vector<fs::path>{data.file(8), data.file(0)});

  // A link back by a detour.
  fs::create_directories(dir / "ring/a");
  fs::create_directories(dir / "ring/b");
  fs::create_directory_symlink("../b", dir / "ring/a/b");
  fs::create_directory_symlink("../a", dir / "ring/b/a");
  write_bytes(dir / "ring/a/1.png", dot());
  PassedOver passed;
  CHECK(pictures_in(dir / "ring/b", passed).size() == 1);
  CHECK(passed.loops.size() == 1);
}

TEST_CASE("ImageFolder: folders that are called as parts of the data are doubted") {
  const TempDir dir;
  for (const char* folder : {"Train/cat", "Validation/cat"}) {
    fs::create_directories(dir / folder);
    write_bytes(dir / folder / "a.png", dot());
  }
  const ImageFolderDataset data(dir.path(), {.size = 2});
  REQUIRE(data.notes().warnings.size() == 1);
  CHECK(contains(data.notes().warnings[0], "the classes are called Train and Validation, as parts of data are"));
  CHECK(ImageFolderDataset(dir / "Train", {.size = 2}).notes().warnings.empty());
}

TEST_CASE("pictures that cannot be read are found together, once, and may be left out") {
  if (!reads_pictures()) return;
  const TempDir dir;
  const Environment cache("XDG_CACHE_HOME", (dir / "cache").string());
  fs::create_directories(dir / "pets/cat");
  fs::create_directories(dir / "pets/dog");
  std::vector<fs::path> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(dir / (i % 2 ? "pets/cat" : "pets/dog") / (std::to_string(i) + ".png"));
    write_bytes(all.back(), png(2, 1, std::string(6, char(i))));
  }
  write_bytes(all[3], "no picture");
  write_bytes(all[8], dot().substr(0, 50));
  write_bytes(all[11], jpeg().substr(0, jpeg().size() - 2));
  write_bytes(all[12], std::string("RIFF\0\0\0\0WEBPVP8 ", 16));
  PictureCheck found = check_pictures(all);
  CHECK(found.checked == 40);
  REQUIRE(found.faults.size() == 3);
  CHECK(found.faults[0].index == 3);
  CHECK(contains(found.faults[2].text, "12.png: the file is a WebP picture\nhelp: PNG and JPEG are read"));
  REQUIRE(found.flaws.size() == 1);
  CHECK(found.flaws[0].index == 11);

  // Good ones are remembered as long as their size and time are the same; bad ones are looked at again.
  CHECK(fs::file_size(dir / "cache/halfstep/pictures") == 24 + 8 * 37);
  const auto replace = [&](size_t i, const std::string& bytes) {
    const auto time = fs::last_write_time(all[i]);
    write_bytes(all[i], bytes);
    fs::last_write_time(all[i], time);
  };
  replace(20, std::string(fs::file_size(all[20]), 'x'));
  replace(12, dot());
  found = check_pictures(all);
  CHECK(found.faults.size() == 2);
  CHECK(found.flaws.size() == 1);
  write_bytes(all[20], "longer than before, or shorter");
  CHECK(check_pictures(all).faults.size() == 3);
  CHECK(check_pictures(all, {.progress = [](int64_t, int64_t) { return false; }}).checked == 37);

  const ImageFolderDataset data(dir / "pets", {.size = 2, .skip_bad = true});
  CHECK(data.size() == 37);
  REQUIRE(data.notes().warnings.size() == 1);
  CHECK(contains(data.notes().warnings[0], "3 of 40 pictures are left out, since they cannot be read: [image] "));
  for (size_t i = 0; i < 40; i += 2) write_bytes(all[i], "");
  CHECK(contains(message_of<DataError>([&] { ImageFolderDataset(dir / "pets", {.size = 2, .skip_bad = true}); }),
                 "no picture of the class dog in "));
  // Where nothing can be remembered, all are looked at all the same.
  const Environment nowhere("XDG_CACHE_HOME", "/proc/nowhere");
  CHECK(check_pictures(all).faults.size() == 21);
}

TEST_CASE("ImageFolder: one size, though the first picture cannot be read") {
  if (!reads_pictures()) return;
  const TempDir dir;
  fs::create_directories(dir / "a");
  write_bytes(dir / "a/0.png", "no picture");
  write_bytes(dir / "a/1.png", png(3, 2, std::string(18, 'x')));
  write_bytes(dir / "a/2.png", dot());
  const ImageFolderDataset data(dir.path());
  CHECK(data.input_shape() == Shape{3, 2, 3});
  CHECK(contains(message_of<DataError>([&] { data.check_sizes(60); }), "1 of 3 are not 3 x 2 as the first one, "));
  fs::remove(dir / "a/1.png"), fs::remove(dir / "a/2.png");
  CHECK(contains(message_of<DataError>([&] { ImageFolderDataset{dir.path()}; }), "0.png: the content is neither PNG nor JPEG"));
}

TEST_CASE("picture_statistics: measured once for the same pictures, and of a sample where there are many") {
  const TempDir dir;
  const Environment cache("XDG_CACHE_HOME", (dir / "cache").string());
  for (const char* folder : {"p/a", "p/b", "q/a"}) std::filesystem::create_directories(dir / folder);
  const auto picture = [](char red) { return png(2, 1, std::string{red, 0, char(255), red, 0, char(255)}); };
  for (int i = 0; i < 6; ++i) write_bytes(dir / (i % 2 ? "p/a/" : "p/b/") / (std::to_string(i) + ".png"), picture(char(i)));
  int64_t done = 0;
  const auto measure = [&](const char* folder, const ImageFolderOptions& options = {}) {
    done = 0;
    return picture_statistics(ImageFolderDataset(dir / folder, options), [&](int64_t n, int64_t) { done = n; });
  };
  const PictureStatistics first = measure("p");
  CHECK((done == 6 && first.examined == 6 && first.all == 6));
  CHECK(first.channels[0].mean == doctest::Approx(2.5 / 255));
  CHECK((first.channels[1].std == 0 && first.channels[2].mean == 1));
  const PictureStatistics again = measure("p");
  CHECK(done == 0);
  CHECK((again.channels[0].mean == first.channels[0].mean && again.channels[0].std == first.channels[0].std));
  CHECK(measure("p", {.grayscale = true}).channels.size() == 1);
  CHECK(done == 6);
  write_bytes(dir / "p/a/1.png", picture(100) + "more");
  CHECK(measure("p").channels[0].mean == doctest::Approx(114.0 / 6 / 255));
  CHECK(done == 6);
  for (int i = 0; i < 4200; ++i) write_bytes(dir / "q/a/" / (std::to_string(i) + ".png"), picture(char(i % 200)));
  const PictureStatistics sample = measure("q");
  CHECK((done == 4096 && sample.examined == 4096 && sample.all == 4200));
  CHECK(sample.channels[0].count == 2 * 4096);
  CHECK(sample.channels[0].mean == doctest::Approx(99.5 / 255).epsilon(0.01));
}
