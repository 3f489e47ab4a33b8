// MNIST (LeCun, Cortes, Burges) and data sets in its files' format.
#pragma once

#include <filesystem>
#include <optional>

#include "framework/data/tensor_dataset.h"

namespace halfstep {

// Images [1, 28, 28] f32, 10 classes; 60000 train, 10000 test. Without `normalize` pixels are in [0, 1].
// Looks in `root` and root/mnist for train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, each plain or with .gz. Throws DataError: for missing files, with commands that fetch them and their
// checksums; for labels outside 0..9, with the index; for unequal counts of images and labels; and as read_idx.
class MnistDataset : public TensorDataset {
 public:
  explicit MnistDataset(const std::filesystem::path& root, Split split = Split::train, std::optional<Normalize> normalize = {});
};

}  // namespace halfstep
