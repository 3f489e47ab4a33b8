// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009), in their binary version.
// Format: https://www.cs.toronto.edu/~kriz/cifar.html
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/options.h"
#include "framework/data/sets/tensor_dataset.h"

namespace halfstep {

enum class CifarLabels : uint8_t { ten, fine, coarse };  // fine and coarse: CIFAR-100's 100 classes, and their 20 groups
HALFSTEP_OPTION_NAMES(CifarLabels, "ten", "fine", "coarse");

struct CifarOptions {
  CifarLabels labels = CifarLabels::ten;
  Split split = Split::train;
  // Files to read instead of the split's, by their paths below a searched folder: whole records, any number of them.
  std::vector<std::string> files{};
  std::optional<Normalize> normalize{};
  static const OptionList<CifarOptions>& list();
};

// Images [3, 32, 32] f32, red, green and blue; in [0, 1] without `normalize`. 50000 train, 10000 test. Searches `root`, and below
// it cifar10 and cifar-10-batches-bin (cifar100, cifar-100-binary), for data_batch_1.bin to data_batch_5.bin and test_batch.bin
// (train.bin and test.bin). Throws DataError for missing files, with commands that fetch them, their sizes and digests; for a file
// of the split that is incomplete, and other files that are not whole records; and for labels out of range, with their record.
class CifarDataset : public TensorDataset<> {
 public:
  explicit CifarDataset(const std::filesystem::path& root, const CifarOptions& options = {});
  DataForm form() const override;

 private:
  CifarLabels labels_;
};

// Returns the files that the data set reads, or where it would have them.
std::vector<std::filesystem::path> cifar_files(const std::filesystem::path& root, const CifarOptions& options);

}  // namespace halfstep
