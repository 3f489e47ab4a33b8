// SPDX-License-Identifier: Apache-2.0
#include "apps/report/mistakes.h"

#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "framework/data/formats/image_file.h"
#include "tests/apps/tiny_run.h"
#include "tests/data/picture_files.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::string from_base64(const std::string& text) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int known = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | uint32_t(letters.find(c));
    if ((known += 6) >= 8) out += char(bits >> (known -= 8) & 255);
  }
  return out;
}

std::string page_part(const Mistakes& found) {
  std::ostringstream out;
  write_mistakes(out, "", found);
  return out.str();
}

// Trains this config in `dir`, into r.
void trained(const TempDir& dir, const std::string& config) {
  write(dir / "run.json", config);
  const Ran ran = run(dir, "train run.json --quiet --threads 1");
  REQUIRE_MESSAGE(ran.code == 0, ran.err);
}

}  // namespace

TEST_CASE("report: a picture in the wrong folder is shown, with its name and pixels") {
  const TempDir dir;
  const auto picture = [&](const char* part, const char* kind, int i, uint8_t red, uint8_t blue) {
    const int side = 120;
    fs::create_directories(dir / part / kind);
    std::string pixels;
    for (int p = 0; p < side * side; ++p) pixels += {char(red + i), char(30), char(blue)};
    write(dir / part / kind / (std::to_string(i) + ".png"), halfstep::testing::png(side, side, pixels));
  };
  for (const char* part : {"train", "val"})
    for (int i = 0; i < 4; ++i) picture(part, "red", i, 200, 40), picture(part, "blue", i, 40, 200);
  picture("val", "blue", 9, 200, 40);
  trained(dir, R"({"version": 1, "name": "p", "output_dir": "r",
      "data": {"root": ".",
               "train": {"type": "ImageFolder", "path": "train", "size": 120,
                         "transforms": [{"type": "Normalize", "from": "data"}]},
               "val": {"type": "ImageFolder", "path": "val", "size": 120, "transforms": [{"type": "Normalize", "from": "data"}]},
               "loader": {"batch_size": 4}},
      "model": {"type": "Sequential", "layers": [{"type": "AdaptiveAvgPool2d", "output_size": 8}, "Flatten",
                                                {"type": "Linear", "out_features": "auto"}]},
      "loss": {"type": "CrossEntropyLoss"}, "optimizer": {"type": "SGD", "lr": 0.05}, "train": {"epochs": 3}})");
  REQUIRE(run(dir, "report r --out page.html").code == 0);
  const std::string page = read(dir / "page.html");
  CHECK(contains(page, "1 of 9 samples of data.val at step "));
  CHECK(contains(page, " are answered wrongly (11.11 %)"));
  CHECK(contains(page, "<b>red</b>"));
  CHECK(contains(page, "is blue<br>blue/9.png"));
  const std::string begin = "src=\"data:image/png;base64,";
  const size_t at = page.find(begin) + begin.size();
  CHECK(page.find("src=", at) == std::string::npos);  // one picture, and no other address
  write(dir / "shown.png", from_base64(page.substr(at, page.find('"', at) - at)));
  const Picture shown = read_picture(dir / "shown.png", 3);
  CHECK(shown.width == 60);  // of 120: no side is longer than 96
  CHECK(shown.pixels[0] == 209);
  CHECK(shown.pixels[2] == 40);

  REQUIRE(run(dir, "report r --samples 0 --out page.html").code == 0);
  CHECK_FALSE(contains(read(dir / "page.html"), "Wrong answers"));
  CHECK(run(dir, "report r --samples -1").code == 2);
  // Where the pictures are gone the page says why it shows none.
  fs::rename(dir / "val", dir / "gone");
  REQUIRE(run(dir, "report r --out page.html").code == 0);
  CHECK(contains(read(dir / "page.html"), "Not shown: "));
  CHECK(contains(read(dir / "page.html"), "val"));
}

TEST_CASE("report: a wrong row of a table is shown as in its file") {
  const TempDir dir;
  std::string rows = "size,soil,kind,note\n";
  for (int i = 0; i < 12; ++i) rows += std::to_string(10 + i) + (i % 2 ? ",clay,oak,a\n" : ",sand,fir,b\n");
  write(dir / "train.csv", rows);
  write(dir / "val.csv", rows + "10,sand,fir,\"two\nlines\"\n,clay,fir,c\n");
  trained(dir, R"({"version": 1, "name": "t", "output_dir": "r",
      "data": {"root": ".", "train": {"type": "CSV", "path": "train.csv"},
               "val": {"type": "CSV", "path": "val.csv"}, "target": "kind", "exclude": ["note"],
               "standardize": true, "missing": "median", "loader": {"batch_size": 4}},
      "model": {"type": "Linear", "out_features": "auto"}, "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.5},
      "train": {"epochs": 20}})");
  const Mistakes found = [&] {
    const fs::path here = fs::current_path();
    fs::current_path(dir.path());
    const Mistakes out = find_mistakes("r", 5, 60);
    fs::current_path(here);
    return out;
  }();
  REQUIRE_MESSAGE(found.fault.empty(), found.fault);
  CHECK(found.samples == 14);
  REQUIRE(found.worst.size() == 1);
  CHECK(found.columns == std::vector<std::string>{"size", "soil", "note"});  // of the file, and not only what the model sees
  CHECK(found.worst[0].cells == std::vector<std::string>{"", "clay", "c"});
  CHECK(found.worst[0].sample == "line 16");
  CHECK(found.confusion == std::vector<std::vector<int64_t>>{{7, 1}, {0, 6}});
  CHECK(found.worst[0].truth == "fir");
  CHECK(found.worst[0].answer == "oak");
  CHECK(found.worst[0].confidence > 0.5);
}

TEST_CASE("report: the largest errors of numbers come first; time and number bound the search") {
  const TempDir dir;
  std::string rows = "a,b\n";
  for (int i = 0; i < 40; ++i) rows += std::to_string(i) + "," + std::to_string(i == 31 ? 1000 : 3 * i) + "\n";
  write(dir / "t.csv", rows);
  const std::string data = R"({"type": "CSV", "path": ")" + (dir / "t.csv").string() + R"(", "task": "regression"})";
  trained(dir, R"({"version": 1, "name": "t", "output_dir": "r", "data": {"train": )" + data + R"(, "val": )" + data +
                   R"(, "loader": {"batch_size": 8}}, "model": {"type": "Linear", "out_features": "auto"}, "loss": "MSELoss",
                   "optimizer": {"type": "SGD", "lr": 1e-6}, "train": {"epochs": 1}})");
  const Mistakes found = find_mistakes(dir / "r", 3, 60);
  REQUIRE_MESSAGE(found.fault.empty(), found.fault);
  REQUIRE(found.worst.size() == 3);
  CHECK(found.worst[0].sample == "line 33");
  CHECK(found.worst[0].truth == "1000");
  CHECK(found.worst[0].cells == std::vector<std::string>{"31"});
  CHECK(found.worst[1].confidence >= found.worst[2].confidence);
  CHECK(contains(page_part(found), "The largest errors of 40 samples of data.val"));
  const Mistakes hurried = find_mistakes(dir / "r", 3, 0);
  CHECK(hurried.examined == 8);
  CHECK_FALSE(hurried.rmse.has_value());
  double squares = 0;
  for (const Mistakes::Answered& a : found.all) squares += (a.answer - a.truth) * (a.answer - a.truth) / 40;
  CHECK(found.rmse.value() == doctest::Approx(std::sqrt(squares)));
  CHECK(found.r2.has_value());
  CHECK(contains(page_part(hurried), "of the first 8 samples of data.val, which has 40, at step"));
}

TEST_CASE("report: runs of the same data share the table of their mistakes; others have their own") {
  const auto of = [](double answer, double confidence, int64_t samples) {
    Mistakes out{.split = "val", .step = 3, .examined = 2, .samples = samples, .wrong = answer == 1 ? 1 : 0};
    out.classes = {"fir", "oak"};
    out.columns = {"size"};
    out.all = {{0, answer, confidence}, {1, 1, 0.75}};
    if (answer == 1) out.worst = {{0, "line 2", "fir", "oak", confidence, {}, false, {"15"}}};
    return out;
  };
  const std::vector<Mistakes> two = {of(1, 0.625, 2), of(0, 0.875, 2)};
  REQUIRE(are_comparable(two));
  std::ostringstream out;
  write_mistakes_together(out, {"one", "other"}, two);
  CHECK(contains(out.str(),
                 "<td class=\"soft\">line 2</td><td>fir</td><td><b>oak</b> <span class=\"soft\">62.5 %</span></td>"
                 "<td>fir <span class=\"soft\">87.5 %</span></td><td class=\"n\">15</td>"));
  CHECK(contains(out.str(), "1 of 2 samples of data.val at step 3 are answered wrongly (50 %)"));
  CHECK(contains(out.str(), "None of 2 samples"));
  CHECK_FALSE(are_comparable({of(1, 0.5, 2), of(1, 0.5, 3)}));
  Mistakes other = of(1, 0.5, 2);
  other.all[0].truth = 1;
  CHECK_FALSE(are_comparable({of(1, 0.5, 2), other}));
  CHECK_FALSE(are_comparable({of(1, 0.5, 2), {.fault = "gone"}}));
}

TEST_CASE("report: where no answers can be shown the page says why") {
  const Folder dir;
  REQUIRE(dir.train("--set data.val=null --set output_dir=alone").code == 0);
  CHECK(find_mistakes(dir / "alone", 3, 60).fault == "the run has no data.val");
  REQUIRE(dir.train("--set loss=MultiMarginLoss --set output_dir=margin").code == 0);
  CHECK(find_mistakes(dir / "margin", 3, 60).fault == "the loss gives the answers no probabilities");
  CHECK(contains(find_mistakes(dir / "nothing", 3, 60).fault, "nothing"));
  CHECK(contains(page_part({.fault = "a < b"}), "Not shown: a &lt; b"));
}
