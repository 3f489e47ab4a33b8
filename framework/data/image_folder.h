// SPDX-License-Identifier: Apache-2.0
// Pictures in folders, a folder a class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/data/dataset.h"

namespace halfstep {

struct ImageFolderOptions {
  // More than 0: the shorter side is made this long (bilinear, antialiased, as torchvision's Resize), and a square cut out of the
  // middle. 0: all pictures must have the size of the first one.
  int64_t size = 0;
  bool grayscale = false;
  std::vector<std::string> classes{};  // the folders, e.g. the training data's; empty: those that there are, sorted by name
};

// Images [3, H, W] f32, [1, H, W] if grayscale, in [0, 1]; the class is the folder below `root` that the file lies in, at any
// depth. Files are in the order of their paths, and decoded as batches are made: framework/data/image_file.h. Files whose names do
// not end in .png, .jpg or .jpeg are passed over. Throws DataError: for a root that is no folder or has no folders, a class without
// pictures, a folder that is not among `classes`; and as read_picture, when a batch has the file in question.
class ImageFolderDataset : public Dataset {
 public:
  explicit ImageFolderDataset(const std::filesystem::path& root, const ImageFolderOptions& options = {});

  int64_t size() const override { return int64_t(files_.size()); }
  Shape input_shape() const override { return shape_; }
  Shape target_shape() const override { return {}; }
  int64_t classes() const override { return int64_t(class_names_.size()); }
  Batch batch(std::span<const int64_t> indices) const override;
  std::string describe() const override;

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
  Shape shape_;
};

}  // namespace halfstep
