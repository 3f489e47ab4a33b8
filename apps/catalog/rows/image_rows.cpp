// SPDX-License-Identifier: Apache-2.0
// Rows of image data sets.
#include "apps/catalog/pictures.h"
#include "apps/catalog/rows/dataset_rows.h"
#include "framework/data/sets/cifar.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/sets/mnist.h"

namespace halfstep::app {
namespace {

std::vector<Field> files_and_split() { return {root_field("folder with the files, or with a folder of them"), which_split()}; }

// Makes a row of the MNIST family, of one kind or of those that its fields name.
DatasetRow mnist_row(const char* type, const char* doc, MnistKind kind, std::vector<Field> fields = {}) {
  const auto options_of = [kind](const SplitRequest& r) {
    MnistOptions out{split_of(r), normalize_of(r.self()), kind, ignored_class(r)};
    read_options(r.self(), out);
    return out;
  };
  const auto make = [options_of](const SplitRequest& r) { return std::make_shared<MnistDataset>(data_root(r), options_of(r)); };
  const auto facts = [options_of, known_sizes = fields.empty()](const SplitRequest& r) {
    DataFacts out{{1, 28, 28}, {}, classes_of(options_of(r).kind), {}};
    if (known_sizes) out.size = split_of(r) == Split::train ? 60000 : 10000;
    return std::optional(out);
  };
  const auto files = [kind](const SplitRequest& r) {
    MnistOptions options{.split = split_of(r), .kind = kind};
    read_options(r.self(), options);
    return mnist_files(data_root(r), options);
  };
  return {{type, doc, joined_fields({files_and_split(), fields})}, make, facts, files, /*takes_range=*/false, /*normalizes=*/true};
}

// Returns the field of EMNIST's parts.
Field emnist_part() {
  Component own{"EMNIST", "", fields_of(MnistOptions{.kind = MnistKind::balanced})};
  Field out = field_of(own, "part");
  out.words.erase(out.words.begin(), out.words.begin() + int(MnistKind::byclass));
  return out;
}

DatasetRow cifar_row(const char* type, const char* doc, CifarLabels labels) {
  Component own{type, doc, fields_of(CifarOptions{.labels = labels})};
  std::erase(field_of(own, "labels").words, "ten");
  if (labels == CifarLabels::ten) own.fields.pop_back();
  own.fields = joined_fields({files_and_split(), own.fields});
  const auto options_of = [labels](const SplitRequest& r) {
    CifarOptions out{.labels = labels, .split = split_of(r), .normalize = normalize_of(r.self())};
    read_options(r.self(), out);
    return out;
  };
  const auto make = [options_of](const SplitRequest& r) { return std::make_shared<CifarDataset>(data_root(r), options_of(r)); };
  const auto facts = [options_of](const SplitRequest& r) {
    const CifarOptions o = options_of(r);
    DataFacts out{{3, 32, 32}, {}, o.labels == CifarLabels::ten ? 10 : o.labels == CifarLabels::fine ? 100 : 20, {}};
    if (o.files.empty()) out.size = split_of(r) == Split::train ? 50000 : 10000;
    return std::optional(out);
  };
  const auto files = [labels](const SplitRequest& r) {
    CifarOptions options{.labels = labels, .split = split_of(r)};
    read_options(r.self(), options);
    return cifar_files(data_root(r), options);
  };
  return {own, make, facts, files, /*takes_range=*/false, /*normalizes=*/true};
}

std::shared_ptr<ImageFolderDataset> make_folder(const SplitRequest& r) {
  ImageFolderOptions options;
  read_options(r.self(), options);
  const SplitRequest train = train_of(r);
  if (r.form && std::holds_alternative<ImageForm>(r.form->source))
    options.classes = r.form->names;
  else if (r.split != "train" && train.self()["type"] == "ImageFolder")
    options.classes = make_folder(train)->class_names();
  PicturesLine line;
  options.check.progress = [&](int64_t done, int64_t total) {
    line.show(done, total);
    return true;
  };
  return std::make_shared<ImageFolderDataset>(data_path(r), options);
}

constexpr double kSizesSeconds = 2;  // limit for reading the sizes of all pictures

std::optional<DataFacts> folder_facts(const SplitRequest& r) {
  std::error_code none;
  if (!std::filesystem::exists(data_path(r), none)) return {};
  const auto data = make_folder(r);
  DataFacts out = facts_of(*data);
  if (const int64_t checked = data->check_sizes(kSizesSeconds); checked < data->size())
    out.notes.warnings.push_back(joined("the sizes of ", checked, " of ", data->size(), " pictures were checked within ",
                                        kSizesSeconds, " s; set \"size\" if they may differ"));
  return out;
}

}  // namespace

std::filesystem::path data_root(const SplitRequest& r) {
  const Json& self = r.self();
  if (self.contains("root") && !self["root"].is_null()) return self["root"].get<std::string>();
  return r.config["data"]["root"].get<std::string>();
}

std::filesystem::path data_path(const SplitRequest& r, const char* key) {
  const std::filesystem::path path = r.self()[key].get<std::string>();
  return path.is_absolute() ? path : path == "." ? data_root(r) : data_root(r) / path;
}

Field root_field(const char* doc) { return text("root", nullptr, joined(doc, "; left out: data.root")); }
Field path_field(const char* doc) { return text("path", nullptr, joined(doc, ", relative to data.root")).required(); }

std::optional<Normalize> normalize_of(const Json& self) {
  const Transforms transforms = build_transforms(self["transforms"]);
  return transforms.empty() ? std::nullopt : transforms[0]->as_normalize();
}

Field which_split() { return choice("split", nullptr, {"train", "test"}, "left out: train for data.train, else test"); }
Split split_of(const SplitRequest& r) {
  const Json& given = r.self()["split"];
  return !given.is_null() ? parse_split(given.get<std::string>()) : r.split == "train" ? Split::train : Split::test;
}

SplitRequest train_of(const SplitRequest& r) {
  static const std::string train = "train";
  return {r.config, train, r.device, r.form};
}

void add_image_rows(Catalog<DatasetRow>& catalog) {
  catalog.add(mnist_row("MNIST", "images [1, 28, 28] in 10 classes, from IDX files", MnistKind::mnist));
  catalog.add(mnist_row("FashionMNIST", "clothes in the form of MNIST", MnistKind::fashion));
  catalog.add(mnist_row("KMNIST", "cursive Japanese characters in the form of MNIST", MnistKind::kmnist));
  catalog.add(mnist_row("EMNIST", "letters and digits in the form of MNIST, transposed as in its files", MnistKind::balanced,
                        {emnist_part()}));
  std::vector<Field> folder = fields_of<ImageFolderOptions>();
  folder.insert(folder.begin(), {path_field("the folder"), root_field("folder of path")});
  catalog.add({{"ImageFolder", "pictures (PNG, JPEG) in a folder for each class, decoded as batches are made", folder},
               make_folder,
               folder_facts,
               file_at()});
  catalog.add(cifar_row("CIFAR10", "photographs [3, 32, 32] in 10 classes, from the binary version", CifarLabels::ten));
  catalog.add(cifar_row("CIFAR100", "photographs [3, 32, 32] in 100 classes, or 20 groups of them, from the binary version",
                        CifarLabels::fine));
}

}  // namespace halfstep::app
