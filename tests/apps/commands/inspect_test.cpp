// SPDX-License-Identifier: Apache-2.0
// `halfstep inspect data`.
#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>

#include "framework/base/check.h"
#include "framework/io/files/png.h"
#include "tests/apps/config/load.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

uint32_t u32_at(const std::string& bytes, size_t at) {
  uint32_t out = 0;
  for (size_t i = 0; i < 4; ++i) out = out << 8 | uint8_t(bytes.at(at + i));
  return out;
}

// Reads the output of png_bytes, and checks every checksum.
Picture decoded(const std::string& png) {
  REQUIRE(png.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  Picture out;
  std::string packed;
  for (size_t at = 8; at < png.size();) {
    const uint32_t size = u32_at(png, at);
    const std::string kind = png.substr(at + 4, 4), data = png.substr(at + 8, size);
    CHECK(u32_at(png, at + 8 + size) == ::crc32(0, reinterpret_cast<const Bytef*>(png.data()) + at + 4, size + 4));
    if (kind == "IHDR") {
      out.width = u32_at(data, 0), out.height = u32_at(data, 4);
      CHECK(data[8] == 8);
      out.channels = data[9] == 2 ? 3 : 1;
    }
    if (kind == "IDAT") packed = data;
    at += 12 + size;
  }
  const size_t row = size_t(out.width * out.channels);
  std::string raw((row + 1) * size_t(out.height), '\0');
  uLongf size = raw.size();
  REQUIRE(::uncompress(reinterpret_cast<Bytef*>(raw.data()), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()) ==
          Z_OK);
  REQUIRE(size == raw.size());
  for (size_t y = 0; y < size_t(out.height); ++y) {
    CHECK(raw[y * (row + 1)] == 0);
    for (size_t x = 0; x < row; ++x) out.pixels.push_back(uint8_t(raw[y * (row + 1) + 1 + x]));
  }
  return out;
}

}  // namespace

TEST_CASE("png: what is written can be read") {
  for (const int64_t channels : {1, 3}) {
    Picture p{5, 3, channels};
    for (int64_t i = 0; i < 15 * channels; ++i) p.pixels.push_back(uint8_t(i * 37));
    const Picture back = decoded(png_bytes(p));
    CHECK((back.width == 5 && back.height == 3 && back.channels == channels));
    CHECK(back.pixels == p.pixels);
  }
  CHECK_THROWS_WITH_AS(png_bytes({2, 2, 1, {0, 0, 0}}), doctest::Contains("2 x 2 x 1 must have as many bytes, got 3"), ValueError);
  CHECK_THROWS_WITH_AS(png_bytes({0, 2, 1}), doctest::Contains("got 0 x 2 x 1"), ValueError);
}

TEST_CASE("inspect data: a table with every kind of fault") {
  TempDir dir;
  write(dir / "t.csv", "a,b,c,y\n1,5,2,u\n2,5,3,v\n1,5,2,u\n3,5,7,w\n1,5,2,v\n");
  write(dir / "c.json", R"({"model": {"type": "Linear", "out_features": "auto"}, "loss": "CrossEntropyLoss", "optimizer": "SGD",
    "data": {"root": ".", "train": {"type": "CSV", "path": "t.csv", "transforms": [{"type": "Normalize", "mean": 1, "std": 2}]}},
    "train": {"epochs": 1}})");
  const Json json = run(dir, "inspect data c.json --json").json();
  CHECK(json["samples"] == 5);
  CHECK(json["input_shape"] == Json::parse("[3]"));
  CHECK(json["class_counts"] == Json::parse("[2, 2, 1]"));
  CHECK(json["class_names"] == Json::parse(R"(["u", "v", "w"])"));
  CHECK(json["inputs"][2]["name"] == "c");
  CHECK(json["inputs"][0]["mean"].get<double>() == doctest::Approx(1.6));
  CHECK(json["inputs"][0]["std"].get<double>() == doctest::Approx(0.8));
  CHECK(json["inputs"][2]["max"] == 7);
  CHECK(json["transformed"][0]["mean"].get<double>() == doctest::Approx(0.3));
  CHECK(json["duplicates"] == 2);
  CHECK(json["contradictions"] == 1);
  CHECK(json["duplicate_examples"] == Json::parse("[[2, 0], [4, 0]]"));
  CHECK(json["warnings"] ==
        Json::parse(R"(["1 of 3 columns are constant: b", "1 samples have the input of another and another target"])"));
  const Ran text = run(dir, "inspect data c.json");
  CHECK(text.code == 0);
  CHECK(contains(text.out, "classes: u:2 v:2 w:1\n"));
  CHECK(contains(text.out, "inputs, by column:\n"));
  CHECK(contains(text.out, "  a\n"));
  CHECK(contains(text.out, "duplicates: 2 (2 = 0, 4 = 0)\n"));
  CHECK(contains(text.out, "warning: 1 of 3 columns are constant: b\n"));
  // Held-out data with inputs of the training data, in whatever file.
  write(dir / "v.csv", "c,b,a,y\n2,5,1,u\n2,5,1,v\n9,5,9,v\n3,5,2,v\n");
  const std::string val = R"( --set 'data.val={"type": "CSV", "path": "v.csv"}')";
  CHECK(run(dir, "inspect data c.json --json" + val).json()["shared"] == Json::parse(R"({"val": 3})"));
  CHECK(contains(run(dir, "inspect data c.json" + val).out, "val: 3 samples have the input of a sample of train\n"));
  CHECK(run(dir, "inspect data c.json --json --split val" + val).json()["shared"] == Json::parse(R"({"val": 3})"));
  CHECK(!json.contains("shared"));
  const Ran absent = run(dir, "inspect data c.json --split val");
  CHECK(absent.code == 2);
  CHECK(contains(absent.err, "[inspect] the config must have data.val, but has none"));
  const Ran no_images = run(dir, "inspect data c.json --out s.png");
  CHECK(no_images.code == 2);
  CHECK(contains(no_images.err, "--out needs images of 1 or 3 channels, but a sample has shape [3]"));
}

TEST_CASE("inspect data: a row of the sheet for each class") {
  TempDir dir;
  for (int i = 0; i < 40; ++i) {
    const bool bright = i == 7;
    const fs::path folder = dir / (bright ? "pets/white" : "pets/black");
    fs::create_directories(folder);
    save_png(folder / (std::to_string(i) + ".png"), Picture{4, 4, 1, std::vector<uint8_t>(16, bright ? 255 : 0)});
  }
  write(dir / "c.json", R"({"model": {"type": "MLP", "hidden": [4]}, "loss": "CrossEntropyLoss", "optimizer": "SGD",
    "data": {"root": ".", "train": {"type": "ImageFolder", "path": "pets", "grayscale": true}}, "train": {"epochs": 1}})");
  const Ran ran = run(dir, "inspect data c.json --out s.png");
  REQUIRE(ran.code == 0);
  CHECK(contains(ran.out, "classes: black:39 white:1\n"));
  CHECK(contains(ran.out, "samples: s.png, a row for each class, from the top: black, white\n"));
  const Picture sheet = decoded(read(dir / "s.png"));
  CHECK((sheet.width == 16 * 66 + 2 && sheet.height == 2 * 66 + 2));
  const auto at = [&](int64_t row, int64_t column) {
    return int(sheet.pixels[size_t((row * 66 + 30) * sheet.width + column * 66 + 30)]);
  };
  CHECK((at(0, 0) == 0 && at(0, 15) == 0));
  CHECK((at(1, 0) == 255 && at(1, 1) == 128));  // one sample, and nothing beside it
}

TEST_CASE("inspect data: the inputs that a column becomes") {
  TempDir dir;
  write(dir / "t.csv", "price,color,sold,y\n1,red,2026-01-02,5.5\n2,blue,2026-03-04,6\n3,red,2025-01-02,7\n");
  write(dir / "c.json", R"({"model": {"type": "Linear", "out_features": 1}, "loss": "MSELoss", "optimizer": "SGD",
    "data": {"root": ".", "train": {"type": "CSV", "path": "t.csv", "target": "y", "task": "regression",
                                     "dates": ["sold"], "dates_as": "parts"}},
    "train": {"epochs": 1}})");
  const Json json = run(dir, "inspect data c.json --json").json();
  std::string names;
  for (const Json& input : json["inputs"]) names += input["name"].get<std::string>() + " ";
  CHECK(names == "price color=blue color=red sold.year sold.month sold.day sold.weekday ");
  CHECK(json["targets"][0]["name"] == "y");
  CHECK(contains(run(dir, "inspect data c.json").out, "  color=red\n"));
}

TEST_CASE("inspect data: a sheet of samples after transforms, and numbers as targets") {
  TempDir dir;
  write(dir / "c.json", kGood);
  const std::string set =
      R"( --set 'data.train.transforms=[{"type": "Pad", "padding": 2, "fill": 0}, {"type": "Normalize", "from": "data"}]' )";
  const Ran ran = run(dir, "inspect data c.json --json --out s.png" + set);
  REQUIRE(ran.code == 0);
  CHECK(ran.json()["transformed"].size() == 1);
  const Picture sheet = decoded(read(dir / "s.png"));
  CHECK((sheet.channels == 1 && sheet.width == 6 * 66 + 2 && sheet.height == 10 * 66 + 2));  // 10 classes; [32, 32] twice as large
  const auto at = [&](int64_t y, int64_t x) { return int(sheet.pixels[size_t(y * sheet.width + x)]); };
  CHECK(at(0, 0) == 128);
  CHECK(at(2, 2) == 0);  // the padding
  int bright = 0;
  for (int64_t y = 2; y < 66; ++y)
    for (int64_t x = 2; x < 66; ++x) bright += at(y, x) > 100;
  CHECK(bright > 40);
  const Json numbers =
      run(dir, R"(inspect data c.json --json --set loss=MSELoss )"
               R"(--set 'data.train={"type": "Random", "input_shape": [4], "target_shape": [10], "num_batches": 4}')")
          .json();
  CHECK(numbers["targets"].size() == 10);
  CHECK(numbers["inputs"].size() == 4);
  CHECK(!numbers.contains("class_counts"));
}
