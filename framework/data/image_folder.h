// SPDX-License-Identifier: Apache-2.0
// Pictures in folders, a folder a class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/data/dataset.h"
#include "framework/data/image_file.h"

namespace halfstep {

// How a picture is fitted into a square, with bilinear antialiased resizing. crop: resize the shorter side and crop the middle, as
// torchvision's Resize and CenterCrop. squash: resize both sides. pad: resize the longer side and fill the rest with the
// background.
enum class PictureFit : uint8_t { crop, squash, pad };

struct ImageFolderOptions {
  int64_t size = 0;  // of the square's side; 0: all pictures must have the size of the first one
  bool grayscale = false;
  std::vector<std::string> classes{};  // the folders, e.g. the training data's; empty: those that there are, sorted by name
  PictureFit fit = PictureFit::crop;
  Background background = Background::black;  // behind transparent pixels and of `pad`, where none is black
};

// Writes a picture's pixels, fitted into a square of this size, to [C, size, size], in [0, 1].
void fit_picture(const Picture& picture, int64_t size, PictureFit fit, Background background, float* to);
// The same without a change of size: [C, H, W].
void to_planes(const Picture& picture, float* to);

// Images [3, H, W] f32, [1, H, W] if grayscale, in [0, 1]; the class is the folder below `root` that the file lies in, at any
// depth. Files are in the order of their paths, and decoded as batches are made: framework/data/image_file.h. Files whose names do
// not end in .png, .jpg or .jpeg are passed over; notes() warns of pictures in other formats. Throws DataError: for a root that is
// no folder or has no folders, a class without pictures, a folder that is not among `classes`; and as read_picture, when a batch
// has the file in question.
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

  // Without a size: checks that all pictures have the size of the first one, from their headers. Stops after `seconds`, and returns
  // how many pictures were checked. Throws DataError with an example and the number of pictures that differ.
  int64_t check_sizes(double seconds) const;

  const std::vector<std::string>& class_names() const { return class_names_; }
  const std::filesystem::path& file(int64_t index) const { return files_[size_t(index)].path; }

 private:
  struct File {
    std::filesystem::path path;
    int64_t label;
  };
  void read(const File& file, float* to) const;

  std::string label_;
  ImageFolderOptions options_;
  std::vector<std::string> class_names_;
  std::vector<File> files_;
  std::vector<std::filesystem::path> unread_;  // pictures of other formats
  Shape shape_;
  DataNotes notes_;
};

}  // namespace halfstep
