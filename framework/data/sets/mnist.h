// SPDX-License-Identifier: Apache-2.0
// MNIST (LeCun, Cortes, Burges) and data sets in its files' format.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "framework/base/options.h"
#include "framework/data/sets/tensor_dataset.h"

namespace halfstep {

// fashion: Fashion-MNIST (Xiao, Rasul, Vollgraf). kmnist: Kuzushiji-MNIST (Clanuwat et al.). The others are parts of EMNIST (Cohen
// et al.), whose files have transposed images; like torchvision, this does not turn them. Its letters are classes 0..25.
enum class MnistKind : uint8_t { mnist, fashion, kmnist, byclass, bymerge, balanced, letters, digits, emnist_mnist };
HALFSTEP_OPTION_NAMES(MnistKind, "MNIST", "FashionMNIST", "KMNIST", "byclass", "bymerge", "balanced", "letters", "digits", "mnist");

struct MnistOptions {
  Split split = Split::train;
  std::optional<Normalize> normalize{};
  MnistKind kind = MnistKind::mnist;
  std::optional<int64_t> ignored{};  // a label of 255, say, that losses leave out, see TensorDataset<2>
  static const OptionList<MnistOptions>& list();
};

// Images [1, 28, 28] f32, and 10 classes (62, 47, 47 and 26 for byclass, bymerge, balanced and letters). Without `normalize`
// pixels are in [0, 1]. Searches `root`, root/mnist (fashion-mnist, kmnist, emnist) and torchvision's folder root/MNIST/raw for
// train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (emnist-letters-train-...
// and so on), each plain or with .gz. Throws DataError for missing files, with commands that fetch them, their sizes and digests;
// for labels out of range, with the index; for unequal counts of images and labels; and like read_idx.
class MnistDataset : public TensorDataset<> {
 public:
  explicit MnistDataset(const std::filesystem::path& root, const MnistOptions& options);
  explicit MnistDataset(const std::filesystem::path& root, Split split = Split::train, std::optional<Normalize> normalize = {})
      : MnistDataset(root, MnistOptions{split, normalize}) {}
  DataForm form() const override;

 private:
  MnistKind kind_;
};

int64_t classes_of(MnistKind kind);
// Returns the files of images and of labels that the data set reads, or where it would have them.
std::vector<std::filesystem::path> mnist_files(const std::filesystem::path& root, const MnistOptions& options);

}  // namespace halfstep
