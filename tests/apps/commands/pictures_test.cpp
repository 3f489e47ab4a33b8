// SPDX-License-Identifier: Apache-2.0
// Folders of pictures as people have them, from the first look to answers.
#include "apps/catalog/pictures.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "framework/data/formats/image_file.h"
#include "tests/apps/small_run.h"
#include "tests/data/picture_files.h"
#include "tests/support/environment.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// Pictures of 8 x 8 pixels, nearly of one color.
void paint(const fs::path& folder, int n, uint8_t red, uint8_t blue) {
  fs::create_directories(folder);
  for (int i = 0; i < n; ++i) {
    std::string pixels;
    for (int p = 0; p < 64; ++p) pixels += {char(red + i + p % 5), char(30 + p), char(blue - i)};
    write(folder / (std::to_string(i) + ".png"), halfstep::testing::png(8, 8, pixels));
  }
}
void paint_both(const fs::path& folder, int n) { paint(folder / "cat", n, 200, 40), paint(folder / "dog", n, 40, 200); }

// Of another content, which its size and time do not betray.
void ruin(const fs::path& picture) {
  const auto time = fs::last_write_time(picture);
  write(picture, std::string(fs::file_size(picture), '?'));
  fs::last_write_time(picture, time);
}

// The value of each curve at each step, without times.
std::string curves(const fs::path& run) {
  std::istringstream lines(read(run / "metrics.jsonl"));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const Json j = Json::parse(line);
    for (const char* key : {"step", "epoch", "train/loss", "train/epoch_loss", "val/loss", "val/accuracy", "lr"})
      if (j.contains(key)) out += std::string(key) + ' ' + j[key].dump() + ' ';
    out += '\n';
  }
  return out;
}

constexpr const char* kPictures = R"({"version": 1, "name": "p", "output_dir": "r", "seed": 2,
  "data": {"train": {"type": "ImageFolder", "path": "train", "size": 6, "transforms": [{"type": "RandomHorizontalFlip"}]},
           "val": {"type": "ImageFolder", "path": "val", "size": 6}, "root": ".", "loader": {"batch_size": 4}},
  "model": {"type": "MLP", "hidden": [6], "out_features": "auto", "dropout": 0.2},
  "loss": "CrossEntropyLoss", "optimizer": {"type": "Adam", "lr": 0.01}, "train": {"epochs": 3}, "logging": {"every": 1},
  "scheduler": {"type": "ReduceLROnPlateau", "patience": 0, "threshold": 10}})";

}  // namespace

TEST_CASE("pictures that cannot be read are listed before the first step, by validate too, or left out") {
  if (!reads_pictures()) return;
  const TempDir dir;
  const halfstep::testing::Environment cache("XDG_CACHE_HOME", (dir / "cache").string());
  paint_both(dir / "train", 8);
  paint_both(dir / "val", 4);
  write(dir / "p.json", kPictures);
  write(dir / "train/cat/3.png", "cut off");
  for (int i = 0; i < 12; ++i) write(dir / "val/dog" / (std::to_string(i) + "x.jpg"), "RIFF....WEBPVP8 ");
  write(dir / "train/dog/j.jpg", halfstep::testing::jpeg().substr(0, halfstep::testing::jpeg().size() - 2));
  for (const char* command : {"train p.json", "validate p.json"}) {
    CAPTURE(command);
    const Ran r = run(dir, command);
    CAPTURE(r.err);
    CHECK(r.code == 3);
    CHECK(contains(r.err,
                   "[ImageFolder] all pictures must be readable, but 13 of 37 are not:\n"
                   "  ./train/cat/3.png: the content is neither PNG nor JPEG (it is damaged, or no picture)\n"
                   "  ./val/dog/0x.jpg: the file is a WebP picture (PNG and JPEG are read; "));
    CHECK(contains(r.err, "\n  and 3 more\nhelp: mend or remove them; with \"on_error\": \"skip\""));
    CHECK(contains(r.err,
                   "1 JPEG lacks its end or has bytes that belong to nothing, and no pixel is missing: it is used, such as "
                   "./train/dog/j.jpg"));
  }
  CHECK(!fs::exists(dir / "r"));
  CHECK(contains(
      run(dir, "validate p.json").out,
      "cannot be trained with: its keys are right, but its data cannot be read\n  all 37 pictures were opened, 13 cannot"));
  CHECK(run(dir, "validate p.json --json").json()["pictures"] == Json{{"all", 37}, {"opened", 37}, {"bad", 13}});

  const std::string skip = " --set data.train.on_error=skip --set data.val.on_error=skip";
  const Ran left = run(dir, "train p.json --threads 1" + skip);
  CAPTURE(left.err);
  CHECK(left.code == 0);
  CHECK(contains(left.err, "data.train: 1 of 17 pictures is left out, since they cannot be read: [image] ./train/cat/3.png: "));
  CHECK(contains(left.err, "data.val: 12 of 20 pictures are left out, since they cannot be read: [image] ./val/dog/0x.jpg: "));
  CHECK(contains(left.out, "train: 16 pictures"));
  CHECK(run(dir, "validate p.json" + skip).code == 0);
  CHECK(run(dir, "eval r").code == 0);
  const Ran wrong = run(dir, "validate p.json --set data.train.on_error=ignore");
  CHECK(wrong.code == 2);
  CHECK_MESSAGE(contains(wrong.err, "on_error"), wrong.err);
}

TEST_CASE("init opens the pictures: it leaves a few bad ones out, and writes nothing for more") {
  if (!reads_pictures()) return;
  const TempDir dir;
  const halfstep::testing::Environment cache("XDG_CACHE_HOME", (dir / "cache").string());
  paint_both(dir / "pets", 20);
  const Ran whole = run(dir, "init pets --out whole.json");
  CHECK(whole.code == 0);
  CHECK_MESSAGE(contains(whole.err, "all 40 pictures were opened, and can be read"), whole.err);
  CHECK(!contains(read(dir / "whole.json"), "on_error"));
  write(dir / "pets/dog/7.png", "cut off");
  const Ran few = run(dir, "init pets --out c.json");
  CHECK(few.code == 0);
  CHECK_MESSAGE(contains(few.err, "1 of 40 pictures is left out, since they cannot be read: [image] pets/dog/7.png"), few.err);
  CHECK(contains(few.err, "all 39 pictures were opened, and can be read"));
  CHECK(contains(read(dir / "c.json"), R"("on_error": "skip")"));
  CHECK(run(dir, "validate c.json").code == 0);
  for (int i = 0; i < 12; ++i)
    write(dir / "pets/cat" / (std::to_string(i) + ".png"),
          "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize " + std::to_string(i) + "\n");
  const Ran many = run(dir, "init pets --out d.json");
  CHECK(many.code == 3);
  CHECK_MESSAGE(contains(many.err, "pets: no config is written:"), many.err);
  CHECK(contains(many.err, "all pictures must be readable, but 13 of 40 are not:\n  pets/cat/0.png: "));
  CHECK(contains(many.err, "git-lfs"));
  CHECK(contains(many.err, "and 3 more\nhelp: mend or remove them"));
  CHECK(!fs::exists(dir / "d.json"));
}

TEST_CASE("ranks put together what each of them found in its pictures") {
  PictureReport all;
  for (int rank = 0; rank < 3; ++rank) {
    PictureReport one{.pictures = 10, .checked = 9, .bad = 5, .flawed = rank};
    for (int i = 0; i < 5; ++i) one.faults.push_back(std::to_string(3 * i + rank + 100) + ".png: the file is empty");
    if (rank > 0) one.flaw = std::to_string(rank) + ".jpg";
    all.add(read_report(Json::parse(to_json(one).dump())));
  }
  CHECK(contains(all.error(), "but 15 of 27 that were opened, of 30, are not:\n  100.png: the file is empty\n  101.png: "));
  CHECK(contains(all.error(), "\n  109.png: the file is empty\n  and 5 more\nhelp: "));
  CHECK(contains(all.warnings().at(0),
                 "3 JPEGs lack their end or have bytes that belong to nothing, and no pixel is missing: they are used, "
                 "such as 1.jpg"));
  CHECK(PictureReport().error().empty());
}

TEST_CASE("an evaluation that fails loses no step: the run continues with it, to the bit") {
  if (!reads_pictures()) return;
  const TempDir dir;
  const halfstep::testing::Environment cache("XDG_CACHE_HOME", (dir / "cache").string());
  paint_both(dir / "train", 7);
  paint_both(dir / "val", 4);
  write(dir / "p.json", kPictures);
  for (const std::string options : {"", " --set checkpoint.every='3 epochs' --set checkpoint.keep_best=0",
                                    " --set train.eval_every='3 steps' --set checkpoint.every='5 steps'",
                                    " --set train.eval_every='9 epochs' --set checkpoint.every='9 epochs'"}) {
    CAPTURE(options);
    const std::string train = "train p.json --quiet --threads 1" + options + " --set output_dir=";
    REQUIRE(run(dir, train + "whole --overwrite").code == 0);
    const fs::path victim = dir / "val/dog/2.png";
    const std::string good = read(victim);
    ruin(victim);
    const Ran failed = run(dir, train + "part --overwrite");
    CHECK(failed.code == 3);
    CHECK_MESSAGE(contains(failed.err, "val/dog/2.png"), failed.err);
    const std::vector<int64_t> there = list_checkpoints(dir / "part");
    REQUIRE(there.size() == 1);
    CHECK(there[0] == (contains(options, "3 steps") ? 3 : contains(options, "9 epochs") ? 12 : 4));
    const auto time = fs::last_write_time(victim);
    write(victim, good);
    fs::last_write_time(victim, time);
    CHECK(run(dir, train + "part --resume auto").code == 0);
    CHECK(identity(dir / "part") == identity(dir / "whole"));
    CHECK(curves(dir / "part") == curves(dir / "whole"));
  }
}

TEST_CASE("init: parts of the data and folders that hold just another are not classes") {
  if (!reads_pictures()) return;
  const TempDir dir;
  const auto init = [&](const std::string& folder) {
    const Ran made = run(dir, "init " + folder + " --out c.json --replace");
    REQUIRE_MESSAGE(made.code == 0, made.err);
    const Ran valid = run(dir, "validate c.json");
    CHECK_MESSAGE(valid.code == 0, valid.err);
    return made.err + read(dir / "c.json") + valid.err;
  };
  const auto has = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) CHECK_MESSAGE(contains(text, part), text);
  };
  paint_both(dir / "shop/Training", 4);
  paint_both(dir / "shop/VALIDATION", 2);
  paint_both(dir / "shop/Test", 2);
  has(init("shop"), {"8 training pictures in 2 classes.", R"("train": {"type": "ImageFolder", "path": "Training", "trans)",
                     R"("val": {"type": "ImageFolder", "path": "VALIDATION", "trans)",
                     R"("test": {"type": "ImageFolder", "path": "Test", "trans)"});
  fs::remove_all(dir / "shop/VALIDATION");
  has(init("shop"), {R"("val": {"type": "ImageFolder", "path": "Test", "trans)"});
  fs::remove_all(dir / "shop/Test");
  paint(dir / "shop/Test", 3, 1, 200);  // without classes
  has(init("shop"), {"8 pictures in 2 classes; Test has no folders of classes: left out",
                     R"("train": {"type": "ImageFolder", "path": "Training", "range": [0, 0.8])",
                     R"("val": {"type": "ImageFolder", "path": "Training", "range": [0.8, 1])"});
  fs::create_directories(dir / "given/again");
  fs::rename(dir / "shop", dir / "given/again/shop");
  fs::create_directories(dir / "given/__MACOSX/again");
  has(init("given"), {"; they lie in given/again/shop", R"("root": "given/again/shop")", R"("path": "Training")"});
  paint_both(dir / "deep/PetImages", 4);
  has(init("deep"), {"8 pictures in 2 classes; they lie in deep/PetImages", R"("root": "deep/PetImages")", R"("path": ".")"});
  paint_both(dir / "zoo/Set_Training/Set_Training", 4);
  paint_both(dir / "zoo/Set_Validation", 2);
  has(init("zoo"), {"8 training pictures in 2 classes.", R"("path": "Set_Training/Set_Training", "trans)",
                    R"("val": {"type": "ImageFolder", "path": "Set_Validation", "trans)"});
  paint_both(dir / "tubes/test_tube", 2);  // a class, as there is no test_train beside it
  paint(dir / "tubes/train station", 3, 1, 200);
  has(init("tubes"), {"in 2 classes", R"("path": ".")"});
  paint(dir / "one/cat", 5, 10, 100);
  has(init("one"), {"5 pictures in 1 class; with one class every model is right, and accuracy is always 100 %",
                    "data.train: has one class, of which every model is right: accuracy is always 100 %"});
  write(dir / "t.csv", "a,b\n1,x\n2,x\n3,x\n4,x\n");
  write(dir / "c.json",
        R"({"data": {"root": ".", "train": {"type": "CSV", "path": "t.csv"}}, "model": {"type": "MLP", "hidden": [2],
    "out_features": "auto"}, "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1}, "train": {"epochs": 1}})");
  CHECK(contains(run(dir, "train c.json --threads 1").err, "has one class, of which every model is right"));
}

TEST_CASE("folders of held-out pictures that are no class: counted in evaluation, answered by predict") {
  if (!reads_pictures()) return;
  const TempDir dir;
  const halfstep::testing::Environment cache("XDG_CACHE_HOME", (dir / "cache").string());
  paint_both(dir / "pets/train", 8), paint_both(dir / "pets/val", 4);
  paint(dir / "pets/val/fox", 3, 90, 90), paint(dir / "pets/test/unknown", 5, 200, 40);
  const Ran made = run(dir, "init pets --out c.json");
  REQUIRE_MESSAGE(made.code == 0, made.err);
  CHECK_MESSAGE(contains(made.err, "; test has no folder of a class, but \"unknown\": left out; halfstep predict answers"),
                made.err);
  CHECK(!contains(read(dir / "c.json"), R"("test": )"));
  const char* const left = "3 pictures are left out, in folders that are no classes of the training data: \"fox\" (3)";
  CHECK_MESSAGE(contains(run(dir, "validate c.json").out + made.err, left), made.err);
  const Ran trained = run(dir, "train c.json --quiet --set train.epochs=2");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK_MESSAGE(contains(trained.err, left), trained.err);
  const Ran evaluated = run(dir, "eval runs/pets");
  CHECK(evaluated.code == 0);
  CHECK_MESSAGE(contains(evaluated.out + evaluated.err, left), evaluated.err);
  const Ran predicted = run(dir, "predict runs/pets pets/test pets/val");
  CHECK(predicted.code == 0);
  CHECK(std::count(predicted.out.begin(), predicted.out.end(), '\n') == 16);
  CHECK_MESSAGE(contains(predicted.err, "8 with a known answer:"), predicted.err);
  const Ran none = run(dir, "validate c.json --set data.val.path=test");
  CHECK(none.code == 3);
  CHECK_MESSAGE(contains(none.err, "must have a folder of a class that the training data has, but has \"unknown\""), none.err);
}

TEST_CASE("predict: the class of a nested folder is the training data's") {
  if (!reads_pictures()) return;
  const TempDir dir;
  paint(dir / "data/cat/dog", 4, 200, 40);  // cats in a folder called dog
  paint(dir / "data/cat/indoor", 4, 200, 40);
  paint(dir / "data/dog/deep/er", 8, 40, 200);
  fs::create_directories(dir / "data/dog/.hidden");
  write(dir / "data/dog/.hidden/x.png", "x");
  write(dir / "p.json", R"({"version": 1, "name": "p", "output_dir": "r", "data": {"root": ".", "train": {"type": "ImageFolder",
    "path": "data", "size": 4}, "loader": {"batch_size": 8}}, "model": {"type": "MLP", "hidden": [8], "out_features": "auto"},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "Adam", "lr": 0.05}, "train": {"epochs": 40}})");
  REQUIRE(run(dir, "train p.json --quiet --threads 1").code == 0);
  for (const char* path : {"data", "data/", "./data", "data/cat data/dog/deep", "data/cat/dog/1.png data/dog/deep/er/1.png"}) {
    CAPTURE(path);
    const Ran r = run(dir, std::string("predict r ") + path);
    CHECK(r.code == 0);
    CHECK_MESSAGE(contains(r.err, "accuracy 100 %"), r.err);
  }
  CHECK(contains(run(dir, "predict r data").err, "left out: 1 hidden name, such as data/dog/.hidden"));

  // Names that are no UTF-8, or have a line break.
  const fs::path odd = dir / "odd";
  fs::create_directories(odd);
  fs::copy(dir / "data/cat/dog/1.png", odd / "\xe9t\xe9 \xc3\xa9.png");
  fs::copy(dir / "data/cat/dog/1.png", odd / "two\nlines.png");
  const std::string csv = run(dir, "predict r odd --csv").out, json = run(dir, "predict r odd --json").out;
  CHECK_MESSAGE(contains(csv, "odd/\\xe9t\\xe9 \xc3\xa9.png,cat,"), csv);
  CHECK_MESSAGE(contains(json, R"("odd/\\xe9t\\xe9 )"), json);
  const std::string text = run(dir, "predict r odd").out;
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}

TEST_CASE("pictures of 16 bits in a small part of their range are learnt; they, and shapes in transparency alone, are named") {
  if (!reads_pictures()) return;
  const TempDir dir;
  const halfstep::testing::Environment cache("XDG_CACHE_HOME", (dir / "cache").string());
  // Brighter to the right, or to the left, in classes that are not mirrored: `color` is PNG's, and `pixel` makes one of a level
  // from 0 to 7.
  const auto paint_slopes = [&](const fs::path& folder, char color, char depth, const auto& pixel) {
    for (const bool right : {false, true}) {
      const fs::path of_class = folder / (right ? "r" : "l");
      fs::create_directories(of_class);
      for (int i = 0; i < 20; ++i) {
        std::string pixels;
        for (int p = 0; p < 64; ++p) pixels += pixel((right ? p % 8 : 7 - p % 8), (i * 7 + p / 8) % 3);
        write(of_class / (std::to_string(i) + ".png"), halfstep::testing::png(8, 8, pixels, color, depth));
      }
    }
  };
  using Text = std::string;
  paint_slopes(dir / "depth", 0, 16, [](int level, int noise) { return Text{'\x01', char(10 * level + noise)}; });
  paint_slopes(dir / "icons", 6, 8, [](int level, int) { return Text{char(255), char(255), char(255), char(30 * level)}; });
  paint_slopes(dir / "plain", 0, 8, [](int level, int noise) { return Text{char(30 * level + noise)}; });
  paint_slopes(dir / "both", 0, 8, [](int level, int noise) { return Text{char(30 * level + noise)}; });
  for (int i = 0; i < 20; ++i)
    fs::copy_file(dir / "depth/l" / (std::to_string(i) + ".png"), dir / "both/l" / (std::to_string(i) + ".png"),
                  fs::copy_options::overwrite_existing);
  REQUIRE(run(dir, "init depth --out d.json").code == 0);
  const Ran learnt = run(dir, "train d.json --threads 1 --set train.epochs=30 --json");
  CAPTURE(learnt.err);
  REQUIRE(learnt.code == 0);
  CHECK(learnt.json()["val.accuracy"] == 1.0);
  CHECK(!contains(learnt.err, "16 bits"));
  const std::string raw = " --set data.train.transforms=[] --set data.val.transforms=[]";
  for (int again = 0; again < 2; ++again) {  // opened, and remembered
    const Ran dark = run(dir, "validate d.json" + raw);
    CHECK_MESSAGE(contains(dark.err,
                           "40 of 40 pictures have 16 bits and use less than 1/16 of their range, which becomes 0 to 1, such as "
                           "depth/l/0.png with values up to 328 of 65535: {\"type\": \"Normalize\", \"from\": \"data\"} in "),
                  dark.err);
    const Ran made = run(dir, "init icons --out i.json --replace");
    CHECK_MESSAGE(contains(made.err,
                           "40 of 40 pictures have one color all over, and their shapes in their transparency, which is "
                           "lost, such as icons/l/0.png: \"background\": \"black\" beside \"path\" shows them"),
                  made.err);
  }
  CHECK(contains(run(dir, "validate i.json --set data.train.background=white --set data.val.background=white").err, "40 of 40"));
  const std::string black = " --set data.train.background=black --set data.val.background=black";
  const Ran shown = run(dir, "train i.json --threads 1 --set train.epochs=30 --json" + black);
  CHECK(!contains(shown.err, "transparency"));
  CHECK(shown.json()["val.accuracy"] == 1.0);
  CHECK(contains(run(dir, "init both --out b.json").err, "20 of 40 pictures have 16 bits"));
  CHECK(contains(run(dir, "validate b.json").err, "beside the others they are nearly black; scale them in their files"));
  CHECK(run(dir, "init plain --out p.json").code == 0);
  CHECK(run(dir, "validate p.json --set data.train.transforms=[] --set data.val.transforms=[]").err.empty());
  // Weights of classes have their names.
  const Ran weighted = run(dir, "train p.json --threads 1 --set train.epochs=1 --set loss.weight=[1,2.5]");
  CHECK_MESSAGE(contains(weighted.out + weighted.err, "class weights of the loss: l 1, r 2.5\n"), weighted.out);
}
