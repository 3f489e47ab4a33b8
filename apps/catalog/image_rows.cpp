// Data sets of images.
#include "apps/catalog/dataset_rows.h"
#include "framework/data/mnist.h"

namespace halfstep::app {
namespace {

std::shared_ptr<Dataset> make_mnist(const SplitRequest& r) {
  return std::make_shared<MnistDataset>(data_root(r), split_of(r), normalize_of(r.self()));
}
std::optional<DataFacts> mnist_facts(const SplitRequest& r) {
  return DataFacts{{1, 28, 28}, {}, 10, split_of(r) == Split::train ? 60000 : 10000};
}

}  // namespace

std::filesystem::path data_root(const SplitRequest& r) {
  const Json& self = r.self();
  if (self.contains("root") && !self["root"].is_null()) return self["root"].get<std::string>();
  return r.config["data"]["root"].get<std::string>();
}

std::filesystem::path data_path(const SplitRequest& r, const char* key) {
  const std::filesystem::path path = r.self()[key].get<std::string>();
  return path.is_absolute() ? path : data_root(r) / path;
}

Field root_field(const char* doc) { return text("root", nullptr, joined(doc, "; left out: data.root")); }
Field path_field(const char* doc) { return text("path", nullptr, joined(doc, ", relative to data.root")).required(); }

std::optional<Normalize> normalize_of(const Json& self) {
  const Transforms all = build_transforms(self["transforms"]);
  return all.empty() ? std::nullopt : all[0]->as_normalize();
}

Field which_split() { return choice("split", nullptr, {"train", "test"}, "left out: train for data.train, else test"); }
Split split_of(const SplitRequest& r) {
  const Json& given = r.self()["split"];
  return !given.is_null() ? parse_split(given.get<std::string>()) : r.split == "train" ? Split::train : Split::test;
}

SplitRequest train_of(const SplitRequest& r) {
  static const std::string train = "train";
  return {r.config, train, r.device};
}

void add_image_rows(Catalog<DatasetRow>& all) {
  all.add({{"MNIST",
            "images [1, 28, 28] in 10 classes, from IDX files",
            {root_field("folder of the files or of mnist/"), which_split()}},
           make_mnist,
           mnist_facts,
           /*takes_range=*/false,
           /*normalizes=*/true});
}

}  // namespace halfstep::app
