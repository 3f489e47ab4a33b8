// SPDX-License-Identifier: Apache-2.0
// Pictures in folders, one folder per class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/formats/image_file.h"
#include "framework/data/sets/dataset.h"
#include "framework/data/sets/found_pictures.h"
#include "framework/data/sets/picture_check.h"

namespace halfstep {

// How to fit a picture into a square, with bilinear antialiased resizing. crop: resize the shorter side and crop the middle, like
// torchvision's Resize and CenterCrop. squash: resize both sides. pad: resize the longer side and fill the rest with the
// background.
enum class PictureFit : uint8_t { crop, squash, pad };
HALFSTEP_OPTION_NAMES(PictureFit, "crop", "squash", "pad");

struct ImageFolderOptions {
  int64_t size = 0;  // side of the square; 0: all pictures must have the size of the first one
  bool grayscale = false;
  std::vector<std::string> classes{};  // folders, e.g. the training data's; empty: the existing ones, sorted by name
  PictureFit fit = PictureFit::crop;
  Background background = Background::none;  // behind transparent pixels and for `pad`, where none means black
  bool exif = true;                          // whether pictures are turned by their EXIF orientation
  bool skip_bad = false;                     // whether to leave out unreadable pictures, which check_pictures finds
  PictureCheckOptions check{};               // options of that check
  static const OptionList<ImageFolderOptions>& list();
};

// Writes a picture's pixels, fitted into a square of this size, to `to`: [C, size, size], in [0, 1].
void fit_picture(const Picture& picture, int64_t size, PictureFit fit, Background background, float* to);
// Does the same without a change of size: [C, H, W].
void to_planes(const Picture& picture, float* to);

// Images [3, H, W] f32, or [1, H, W] if grayscale, in [0, 1]; the class is the folder below `root` that contains the file at any
// depth. Files are sorted by path, and decoded as batches are made (framework/data/formats/image_file.h). found_pictures.h decides
// which files are pictures; notes() lists what is skipped. Throws DataError for a root that is not a folder or has no folders, for
// a class without pictures, and if no folder is in `classes`; and throws like read_picture when a batch has the file. Folders that
// are not in `classes` are skipped, with a warning that counts their pictures.
class ImageFolderDataset : public Dataset {
 public:
  explicit ImageFolderDataset(const std::filesystem::path& root, const ImageFolderOptions& options = {});

  int64_t size() const override { return int64_t(files_.size()); }
  Shape input_shape() const override { return shape_; }
  Shape target_shape() const override { return {}; }
  int64_t classes() const override { return int64_t(class_names_.size()); }
  Batch batch(std::span<const int64_t> indices) const override;
  std::string describe() const override;
  DataNotes notes() const override;
  std::vector<int64_t> labels() const override;
  DataForm form() const override;

  // Without a size: checks that all pictures have the size of the first one, by their headers if these can be read. Stops after
  // `seconds`, and returns how many were checked. Throws DataError with an example and the number of pictures that differ.
  int64_t check_sizes(double seconds) const;

  const std::vector<std::string>& class_names() const { return class_names_; }
  const std::filesystem::path& file(int64_t index) const { return files_[size_t(index)].path; }

 private:
  struct File {
    std::filesystem::path path;
    int64_t label;
  };
  void read(const File& file, float* to) const;
  void remove_bad(const std::filesystem::path& root);          // the pictures that cannot be read
  std::optional<PictureSize> size_of(const File& file) const;  // empty if the header cannot be read

  std::string label_;
  ImageFolderOptions options_;
  std::vector<std::string> class_names_;
  std::vector<File> files_;
  PassedOver passed_over_;
  std::vector<std::filesystem::path> unclassified_;  // pictures beside the folders of the classes
  std::string bad_pictures_;                         // how many are left out, with an example
  size_t first_ = 0;                                 // without a size: the file whose size all must have
  Shape shape_;
  DataNotes notes_;
};

// Returns the picture of each sample of an ImageFolderDataset, of a part of one, or of a transformed one; empty for other data.
std::vector<std::filesystem::path> picture_files(const Dataset& data);

}  // namespace halfstep
