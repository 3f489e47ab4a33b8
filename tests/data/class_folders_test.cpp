// SPDX-License-Identifier: Apache-2.0
// Folders that look like classes, and are parts of the data, masks, or a level too high.
#include "framework/data/sets/class_folders.h"

#include <doctest/doctest.h>

#include "framework/data/sets/image_folder.h"
#include "tests/data/picture_files.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Returns the doubt about folders with one picture each: "cat/test".
std::string doubt_of(const std::vector<std::string>& folders, int64_t pictures = 1) {
  std::vector<ClassFolder> classes;
  for (const std::string& f : folders) {
    const size_t end = std::min(f.find('/'), f.size());
    const std::string name = f.substr(0, end), below = f.substr(std::min(end + 1, f.size()));
    if (classes.empty() || classes.back().name != name) classes.push_back({name, {}});
    classes.back().pictures[below] += pictures;
  }
  return doubt_of_classes(classes);
}

void doubts(const std::vector<std::string>& folders, const std::string& part) {
  const std::string doubt = doubt_of(folders);
  CHECK_MESSAGE(contains(doubt, part), folders[0], ": ", doubt);
}

}  // namespace

TEST_CASE("folders of classes: the same folders in most of them are a level too high") {
  doubts({"site a/benign", "site a/malignant", "site b/benign", "site b/malignant"},
         "the classes site a and site b have the same folders benign and malignant: if those are the classes, path is a level too "
         "high, and must name a folder such as site a");
  doubts(
      {"1/images/cat", "1/images/dog", "2/images/cat", "2/images/dog"},
      "the classes 1 and 2 have the same folders in images/, cat and dog: if those are the classes, path is a level too high, and "
      "must name a folder such as 1/images");
  doubts({"a/0", "a/1", "b/0", "b/1", "c/1"}, "the classes a, b and c have the same folders 0 and 1");
  doubts({"pets/cat", "pets/dog"}, "the class pets has the folders cat and dog: if those");
  // Folders of their own, one that is the same, and pictures beside such folders.
  CHECK(doubt_of({"cat", "dog"}).empty());
  CHECK(doubt_of({"cat/kitten", "cat/old", "dog/puppy", "dog/old"}).empty());
  CHECK(doubt_of({"n01/images", "n02/images"}).empty());
  CHECK(doubt_of({"cat", "cat", "cat", "cat", "cat/in", "cat/out", "dog", "dog", "dog/in", "dog/out"}).empty());
}

TEST_CASE("folders of classes: parts of the data inside, beside, or in the names") {
  doubts(
      {"bottle/testing", "bottle/training", "cable/training"},
      "bottle/ has the folders testing and training, as parts of data are called, and their pictures are thrown together: a part "
      "is the folder above its classes, training/bottle/ in place of bottle/training/");
  doubts({"old/dev/cat", "old/dev/dog", "old/train/cat", "old/train/dog", "x/cat"},
         "if the classes lie in these, path must name one, such as old/train/");
  doubts({"dev", "train"}, "the classes are called dev and train, as parts of data are: path must name one");
  doubts({"cat_train", "cat_val", "dog_train", "dog_val"}, "a part is the folder above its classes, val/dog in place of dog_val");
  CHECK(doubt_of({"train station", "bus stop"}).empty());
  CHECK(doubt_of({"cat/test", "dog/test"}).empty());
}

TEST_CASE("folders of classes: pictures and their masks") {
  doubts({"image", "label"}, "the classes image and label are called as pictures and their masks are");
  doubts({"JPEGImages", "SegmentationClass"}, "are called as pictures and their masks");
  doubts({"imgs_a", "masks_a"}, "are called as pictures and their masks");
  doubts({"street", "street_gt"}, "are called as pictures and their masks");
  CHECK(doubt_of({"with_mask", "without_mask"}).empty());
  CHECK(doubt_of({"mask", "no_mask"}).empty());
  CHECK(doubt_of({"face", "mask"}).empty());
}

TEST_CASE("ImageFolder: doubts about the folders are warnings, for the training data alone") {
  const TempDir dir;
  for (const char* folder : {"fold1/cat", "fold1/dog", "fold2/cat", "fold2/dog"}) {
    std::filesystem::create_directories(dir / folder);
    write_bytes(dir / folder / "a.png", png(1, 1, "abc"));
  }
  REQUIRE(ImageFolderDataset(dir.path(), {.size = 2}).notes().warnings.size() == 1);
  CHECK(contains(ImageFolderDataset(dir.path(), {.size = 2}).notes().warnings[0],
                 "the classes fold1 and fold2 have the same folders"));
  CHECK(ImageFolderDataset(dir.path(), {.size = 2, .classes = {"fold1", "fold2"}}).notes().warnings.empty());
  CHECK(ImageFolderDataset(dir / "fold1", {.size = 2}).notes().warnings.empty());
}
