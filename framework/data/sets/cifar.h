// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009), in their binary version.
// Format: https://www.cs.toronto.edu/~kriz/cifar.html
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/sets/tensor_dataset.h"

namespace halfstep {

enum class CifarLabels : uint8_t { ten, fine, coarse };  // fine and coarse: of CIFAR-100, 100 classes and 20 groups of them

struct CifarOptions {
  CifarLabels labels = CifarLabels::ten;
  Split split = Split::train;
  // Other files than the split's, by their paths below a folder that is looked in: whole records, any number of them.
  std::vector<std::string> files{};
  std::optional<Normalize> normalize{};
};

// Images [3, 32, 32] f32, red, green and blue; without `normalize` in [0, 1]. 50000 train, 10000 test. Looks in `root`, and below
// it in cifar10 and cifar-10-batches-bin (cifar100, cifar-100-binary), for data_batch_1.bin to data_batch_5.bin and test_batch.bin
// (train.bin and test.bin). Throws DataError: for missing files, with commands that fetch them, size and digest; for a file of the
// split that is not whole, and others that are not whole records; for labels outside the classes, with their record.
class CifarDataset : public TensorDataset<> {
 public:
  explicit CifarDataset(const std::filesystem::path& root, const CifarOptions& options = {});
  DataForm form() const override;

 private:
  CifarLabels labels_;
};

}  // namespace halfstep
