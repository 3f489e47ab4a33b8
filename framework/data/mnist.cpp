#include "framework/data/mnist.h"

#include <sstream>
#include <string>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/idx.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
constexpr const char* kWhere = "MNIST";
constexpr const char* kMirror = "https://ossci-datasets.s3.amazonaws.com/mnist/";

struct File {
  const char* name;
  const char* gz_sha256;
};
constexpr File kFiles[2][2] = {{{"train-images-idx3-ubyte", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
                                {"train-labels-idx1-ubyte", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"}},
                               {{"t10k-images-idx3-ubyte", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
                                {"t10k-labels-idx1-ubyte", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}};

fs::path find(const fs::path& root, const char* name) {
  for (const fs::path& dir : {root, root / "mnist"}) {
    for (const char* suffix : {"", ".gz"}) {
      const fs::path path = dir / (std::string(name) + suffix);
      std::error_code none;  // what cannot be looked at is not there
      if (fs::is_regular_file(path, none)) return path;
    }
  }
  return {};
}

[[noreturn]] void fail_missing(const fs::path& root, const std::vector<File>& missing) {
  std::ostringstream looked, cure;
  cure << "fetch and check them with\n  mkdir -p " << (root / "mnist").string() << " && cd " << (root / "mnist").string();
  for (const File& file : missing) {
    looked << (looked.tellp() > 0 ? ", " : "") << (root / file.name).string() << "[.gz]";
    cure << "\n  curl -LO " << kMirror << file.name << ".gz";
  }
  for (const File& file : missing) cure << "\n  echo \"" << file.gz_sha256 << "  " << file.name << ".gz\" | sha256sum -c";
  fail<DataError>(kWhere, "files are missing, looked for ", looked.str(), " and in ", (root / "mnist").string(), Help{cure.str()});
}

TensorDataset load(const fs::path& root, Split split, const std::optional<Normalize>& normalize) {
  const auto& files = kFiles[split == Split::train ? 0 : 1];
  fs::path paths[2];
  std::vector<File> missing;
  for (int i = 0; i < 2; ++i) {
    paths[i] = find(root, files[i].name);
    if (paths[i].empty()) missing.push_back(files[i]);
  }
  if (!missing.empty()) fail_missing(root, missing);

  const Tensor images = read_idx(paths[0], 3), labels = read_idx(paths[1], 1);
  check<DataError>(images.size(1) == 28 && images.size(2) == 28, kWhere, paths[0].string(), ": images must be 28 x 28, got ",
                   images.shape());
  check<DataError>(images.size(0) == labels.size(0), kWhere, paths[0].string(), " has ", images.size(0), " images, ",
                   paths[1].string(), " has ", labels.size(0), " labels");
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const int label = labels.data<uint8_t>()[i];
    check<DataError>(label <= 9, kWhere, paths[1].string(), ": labels must be in 0..9, but label ", i, " is ", label);
  }
  const Shape shape{images.size(0), 1, 28, 28};
  return TensorDataset(images.alias(shape, contiguous_strides(shape)), labels, 10, normalize.value_or(Normalize()).for_u8(),
                       "MNIST " + std::string(name(split)));
}

}  // namespace

MnistDataset::MnistDataset(const fs::path& root, Split split, std::optional<Normalize> normalize)
    : TensorDataset(load(root, split, normalize)) {}

}  // namespace halfstep
