// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/mnist.h"

#include <array>
#include <string>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/formats/idx.h"
#include "framework/data/sets/published.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;

struct Collection {
  const char *label, *folder, *torchvision;  // name in errors, folder below the root, and torchvision's folder
  const char* prefix;                        // before "train-images-idx3-ubyte"
  int64_t classes;
  int first_label;
  const char* mirror;  // where the files are published; "": in one archive
  struct File {
    uint64_t bytes;
    const char* digest;
  };
  std::array<File, 4> files;  // train images and labels, test images and labels
};
constexpr std::array<Collection::File, 4> kInOneArchive{};  // EMNIST
constexpr Collection kCollections[] = {
    {"MNIST",
     "mnist",
     "MNIST",
     "",
     10,
     0,
     "https://ossci-datasets.s3.amazonaws.com/mnist/",
     {{{9912422, "sha256 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
       {28881, "sha256 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
       {1648877, "sha256 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
       {4542, "sha256 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}}},
    {"FashionMNIST",
     "fashion-mnist",
     "FashionMNIST",
     "",
     10,
     0,
     "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
     {{{26421880, "md5 8d4fb7e6c68d591d4c3dfef9ec88bf0d"},
       {29515, "md5 25c81989df183df01b3e8a0aad5dffbe"},
       {4422102, "md5 bef4ecab320f06d8554ea6380940ec79"},
       {5148, "md5 bb300cfdad3c16e7a12a480ee83cd310"}}}},
    {"KMNIST",
     "kmnist",
     "KMNIST",
     "",
     10,
     0,
     "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
     {{{18165135, "md5 bdb82020997e1d708af4cf47b453dcf7"},
       {29497, "md5 e144d726b3acfaa3e44228e80efcd344"},
       {3041136, "md5 5c965bf0a639b31b8f53240b1b52f4d7"},
       {5120, "md5 7320c461ea6c1c855c0b718fb2a4b134"}}}},
    {"EMNIST byclass", "emnist", "EMNIST", "emnist-byclass-", 62, 0, "", kInOneArchive},
    {"EMNIST bymerge", "emnist", "EMNIST", "emnist-bymerge-", 47, 0, "", kInOneArchive},
    {"EMNIST balanced", "emnist", "EMNIST", "emnist-balanced-", 47, 0, "", kInOneArchive},
    {"EMNIST letters", "emnist", "EMNIST", "emnist-letters-", 26, 1, "", kInOneArchive},
    {"EMNIST digits", "emnist", "EMNIST", "emnist-digits-", 10, 0, "", kInOneArchive},
    {"EMNIST mnist", "emnist", "EMNIST", "emnist-mnist-", 10, 0, "", kInOneArchive},
};
const Collection& collection_of(MnistKind kind) { return kCollections[size_t(kind)]; }

std::string file_name(const Collection& c, Split split, bool images) {
  const bool emnist = *c.prefix != 0;
  return std::string(c.prefix) +
         (split == Split::train ? "train"
          : emnist              ? "test"
                                : "t10k") +
         (images ? "-images-idx3-ubyte" : "-labels-idx1-ubyte");
}

// missing: true for the file of images, false for that of labels.
[[noreturn]] void fail_missing_of(const Collection& c, Split split, const std::vector<bool>& missing,
                                  const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  std::vector<PublishedFile> files;
  for (const bool images : missing) {
    const std::string name = file_name(c, split, images);
    const Collection::File& file = c.files[(split == Split::train ? 0 : 2) + (images ? 0 : 1)];
    names.push_back(name + "[.gz]");
    if (file.bytes > 0) files.push_back({name + ".gz", file.bytes, file.digest, c.mirror + name + ".gz"});
  }
  std::string then;
  if (files.empty()) {
    files = {
        {"gzip.zip", 561753746, "md5 58c8d27c78d21e728a6bc7b3cc06412e", "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"}};
    then = "unzip -j gzip.zip";
  }
  fail_missing(c.label, names, folders, folders[1], files, then);
}

// Reads a file. If the published file has another size, the error says that the size is wrong.
Tensor read(const fs::path& path, int rank, const Collection::File& published) {
  try {
    return read_idx(path, rank);
  } catch (const DataError& e) {
    std::error_code ignored;
    const auto bytes = fs::file_size(path, ignored);
    if (path.extension() != ".gz" || published.bytes == 0 || bytes == published.bytes) throw;
    throw DataError(joined(e.what(), "\nhelp: the published file has ", published.bytes, " bytes and the ", published.digest,
                           ", this one has ", bytes, "; fetch it anew"));
  }
}

std::vector<fs::path> folders_of(const fs::path& root, const Collection& c) {
  return {root, root / c.folder, root / c.torchvision / "raw"};
}

// Returns the file of images or of labels; empty if it is missing.
fs::path find_part(const std::vector<fs::path>& folders, const Collection& c, Split split, bool images) {
  return find_file(folders, file_name(c, split, images), {"", ".gz"});
}

TensorDataset<> load(const fs::path& root, const MnistOptions& o) {
  const Collection& c = collection_of(o.kind);
  const std::vector<fs::path> folders = folders_of(root, c);
  const fs::path image_file = find_part(folders, c, o.split, true), label_file = find_part(folders, c, o.split, false);
  std::vector<bool> missing;
  if (image_file.empty()) missing.push_back(true);
  if (label_file.empty()) missing.push_back(false);
  if (!missing.empty()) fail_missing_of(c, o.split, missing, folders);

  const Collection::File* const published = c.files.data() + (o.split == Split::train ? 0 : 2);
  const Tensor images = read(image_file, 3, published[0]), labels = read(label_file, 1, published[1]);
  check<DataError>(images.size(1) == 28 && images.size(2) == 28, c.label, image_file.string(), ": images must be 28 x 28, got ",
                   images.shape());
  check<DataError>(images.size(0) == labels.size(0), c.label, image_file.string(), " has ", images.size(0), " images, ",
                   label_file.string(), " has ", labels.size(0), " labels");
  const int first = c.first_label, last = first + int(c.classes) - 1;
  for (int64_t i = 0; i < labels.numel(); ++i) {
    uint8_t& label = labels.data_ptr<uint8_t>()[i];
    if (int64_t(label) == o.ignored) continue;
    check<DataError>(label >= first && label <= last, c.label, label_file.string(), ": labels must be in ", first, "..", last,
                     ", but label ", i, " is ", int(label));
    label = uint8_t(label - first);
  }
  const Shape shape{images.size(0), 1, 28, 28};
  return TensorDataset(images.alias(shape, contiguous_strides(shape)), labels, c.classes,
                       o.normalize.value_or(Normalize()).for_u8(), joined(c.label, ' ', name(o.split)), o.ignored);
}

// Returns each character as a text, as the names of classes.
std::vector<std::string> letters(const std::string& characters) {
  std::vector<std::string> out;
  for (const char c : characters) out.emplace_back(1, c);
  return out;
}
std::vector<std::string> class_names(MnistKind kind) {
  const std::string digits = "0123456789", capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", small = "abcdefghijklmnopqrstuvwxyz";
  switch (kind) {
    case MnistKind::fashion:
      return {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"};
    case MnistKind::kmnist: return {"お", "き", "す", "つ", "な", "は", "ま", "や", "れ", "を"};
    case MnistKind::byclass: return letters(digits + capitals + small);
    case MnistKind::bymerge:
    case MnistKind::balanced: return letters(digits + capitals + "abdefghnqrt");
    case MnistKind::letters: return letters(capitals);
    default: return letters(digits);
  }
}

}  // namespace

HALFSTEP_OPTIONS(MnistOptions, option("part", &O::kind, "62, 47, 47, 26, 10 and 10 classes"))

int64_t classes_of(MnistKind kind) { return collection_of(kind).classes; }

std::vector<fs::path> mnist_files(const fs::path& root, const MnistOptions& o) {
  const Collection& c = collection_of(o.kind);
  std::vector<fs::path> out;
  for (const bool images : {true, false}) {
    const fs::path found = find_part(folders_of(root, c), c, o.split, images);
    out.push_back(found.empty() ? root / file_name(c, o.split, images) : found);
  }
  return out;
}

MnistDataset::MnistDataset(const fs::path& root, const MnistOptions& options)
    : TensorDataset(load(root, options)), kind_(options.kind) {}

DataForm MnistDataset::form() const {
  DataForm out = Dataset::form();
  out.names = class_names(kind_);
  const bool upright = kind_ == MnistKind::mnist || kind_ == MnistKind::fashion || kind_ == MnistKind::kmnist;
  out.source = ImageForm{.fit = PictureFit::pad, .on_side = !upright};
  return out;
}

}  // namespace halfstep
