// SPDX-License-Identifier: Apache-2.0
// Rows of image data sets.
#include <algorithm>

#include "apps/catalog/option_fields.h"
#include "apps/catalog/pictures.h"
#include "apps/catalog/rows/dataset_rows.h"
#include "framework/data/sets/cifar.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/sets/mnist.h"

namespace halfstep::app {
namespace {

// Makes a row of the MNIST family. `kind_of` reads the kind from a config.
DatasetRow mnist_row(const char* type, const char* doc, std::vector<Field> more, std::function<MnistKind(const Json&)> kind_of,
                     bool known_sizes) {
  std::vector<Field> fields = {root_field("folder with the files, or with a folder of them"), which_split()};
  fields.insert(fields.end(), more.begin(), more.end());
  const auto make = [kind_of](const SplitRequest& r) {
    const MnistOptions options{split_of(r), normalize_of(r.self()), kind_of(r.self()), ignored_class(r)};
    return std::make_shared<MnistDataset>(data_root(r), options);
  };
  const auto facts = [kind_of, known_sizes](const SplitRequest& r) {
    DataFacts out{{1, 28, 28}, {}, classes_of(kind_of(r.self())), {}};
    if (known_sizes) out.size = split_of(r) == Split::train ? 60000 : 10000;
    return std::optional(out);
  };
  return {{type, doc, fields}, make, facts, /*takes_range=*/false, /*normalizes=*/true};
}

DatasetRow cifar_row(const char* type, const char* doc, std::vector<Field> more,
                     std::function<CifarLabels(const Json&)> labels_of) {
  std::vector<Field> fields = {
      root_field("folder with the files, or with a folder of them"), which_split(),
      list("files", Json::array(), text("", nullptr, "a file"), "files to read instead of the split; each has whole records")};
  fields.insert(fields.end(), more.begin(), more.end());
  const auto make = [labels_of](const SplitRequest& r) {
    return std::make_shared<CifarDataset>(
        data_root(r),
        CifarOptions{labels_of(r.self()), split_of(r), r.self()["files"].get<std::vector<std::string>>(), normalize_of(r.self())});
  };
  const auto facts = [labels_of](const SplitRequest& r) {
    const CifarLabels labels = labels_of(r.self());
    DataFacts out{{3, 32, 32}, {}, labels == CifarLabels::ten ? 10 : labels == CifarLabels::fine ? 100 : 20, {}};
    if (r.self()["files"].empty()) out.size = split_of(r) == Split::train ? 50000 : 10000;
    return std::optional(out);
  };
  return {{type, doc, fields}, make, facts, /*takes_range=*/false, /*normalizes=*/true};
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
  options.check.progress = [&](int64_t done, int64_t all) {
    line.show(done, all);
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
  const Transforms all = build_transforms(self["transforms"]);
  return all.empty() ? std::nullopt : all[0]->as_normalize();
}

Field part_field() {
  return list("range", Json{0.0, 1.0}, number("", nullptr, "fraction").at_least(0).at_most(1),
              "the part of the file, [from, to), in its order")
      .items(2, 2);
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

void add_image_rows(Catalog<DatasetRow>& all) {
  const auto always = [](MnistKind kind) { return [kind](const Json&) { return kind; }; };
  all.add(mnist_row("MNIST", "images [1, 28, 28] in 10 classes, from IDX files", {}, always(MnistKind::mnist), true));
  all.add(mnist_row("FashionMNIST", "clothes in the form of MNIST", {}, always(MnistKind::fashion), true));
  all.add(mnist_row("KMNIST", "cursive Japanese characters in the form of MNIST", {}, always(MnistKind::kmnist), true));
  static const std::vector<std::string> parts = {"byclass", "bymerge", "balanced", "letters", "digits", "mnist"};
  all.add(mnist_row(
      "EMNIST", "letters and digits in the form of MNIST, transposed as in its files",
      {choice("part", "balanced", parts, "62, 47, 47, 26, 10 and 10 classes")},
      [](const Json& self) {
        const auto part = std::find(parts.begin(), parts.end(), self["part"].get<std::string>());
        return MnistKind(int(MnistKind::byclass) + (part - parts.begin()));
      },
      false));
  std::vector<Field> folder = fields_of<ImageFolderOptions>();
  folder.insert(folder.begin(), {path_field("the folder"), root_field("folder of path")});
  all.add({{"ImageFolder", "pictures (PNG, JPEG) in a folder for each class, decoded as batches are made", folder},
           make_folder,
           folder_facts});
  all.add(cifar_row("CIFAR10", "photographs [3, 32, 32] in 10 classes, from the binary version", {},
                    [](const Json&) { return CifarLabels::ten; }));
  all.add(cifar_row("CIFAR100", "photographs [3, 32, 32] in 100 classes, or 20 groups of them, from the binary version",
                    {choice("labels", "fine", {"fine", "coarse"}, "100 classes or 20")},
                    [](const Json& self) { return self["labels"] == "fine" ? CifarLabels::fine : CifarLabels::coarse; }));
}

}  // namespace halfstep::app
