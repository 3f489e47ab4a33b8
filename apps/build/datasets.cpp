#include "apps/build/datasets.h"

#include <algorithm>
#include <cmath>

#include "framework/data/csv.h"
#include "framework/data/digits.h"
#include "framework/data/mnist.h"
#include "framework/data/permutation.h"
#include "framework/data/synthetic.h"

namespace halfstep::app {
namespace {

const Family& transform_family() {
  static const Family family{
      "transform",
      {{"Normalize",
        "(x - mean) / std",
        {choice("preset", nullptr, {"mnist"}, "mean 0.1307, std 0.3081"), number("mean", 0.0, "subtracted"),
         number("std", 1.0, "divided by").above(0)}}},
      {},
      {"RandomCrop", "RandomHorizontalFlip", "RandomRotation", "RandomErasing", "ColorJitter", "Mixup", "CutMix"}};
  return family;
}

Field transforms() {
  return list("transforms", Json::array(), component("", transform_family(), "a transform"), "what happens to the images")
      .items(0, 1);
}

Shape shape_of(const Json& sizes) {
  Shape out;
  for (const Json& s : sizes) out.push_back(s);
  return out;
}

std::optional<Normalize> normalize_of(const Json& self) {
  if (self["transforms"].empty()) return {};
  const Json& t = self["transforms"][0];
  if (!t["preset"].is_null()) return Normalize::preset(t["preset"].get<std::string>());
  return Normalize{t["mean"], t["std"]};
}

double range_at(const Json& self, size_t end) { return self["range"][end]; }

int64_t part_size(const Json& self, int64_t n) {
  return int64_t(std::floor(range_at(self, 1) * double(n))) - int64_t(std::floor(range_at(self, 0) * double(n)));
}

std::shared_ptr<Dataset> part(std::shared_ptr<Dataset> all, const Json& self, uint64_t seed) {
  if (range_at(self, 0) == 0 && range_at(self, 1) == 1) return all;
  const int64_t n = all->size();
  return subset(std::move(all), split_part(n, range_at(self, 0), range_at(self, 1), seed));
}

std::string column(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::to_string(value.get<int64_t>());
}

std::filesystem::path csv_path(const Json& config, const std::string& split) {
  const std::filesystem::path path = config["data"][split]["path"].get<std::string>();
  return path.is_absolute() ? path : data_root(config, split) / path;
}

std::shared_ptr<CsvDataset> make_csv(const Json& config, const std::string& split) {
  const Json& self = config["data"][split];
  CsvOptions options;
  if (self["header"].is_boolean()) options.header = self["header"] == true ? CsvOptions::Header::yes : CsvOptions::Header::no;
  options.delimiter = self["delimiter"].get<std::string>()[0];
  if (!self["target"].is_null()) options.target = column(self["target"]);
  options.classification = self["task"] == "classification";
  for (const Json& f : self["features"]) options.features.push_back(column(f));
  options.standardize = self["standardize"];
  options.begin = range_at(self, 0), options.end = range_at(self, 1);
  options.seed = config["seed"];
  // Held-out data is scaled as the training data was.
  if (options.standardize && split != "train" && config["data"]["train"]["type"] == "CSV" &&
      config["data"]["train"]["standardize"] == true) {
    options.scaling = make_csv(config, "train")->scaling();
  }
  return std::make_shared<CsvDataset>(csv_path(config, split), options);
}

std::shared_ptr<Dataset> make_random(const Json& config, const std::string& split, Device device) {
  const Json& self = config["data"][split];
  RandomOptions options;
  options.num_batches = self["num_batches"];
  options.batch_size = config["data"]["loader"]["batch_size"];
  options.input_shape = shape_of(self["input_shape"]);
  options.target_shape = shape_of(self["target_shape"]);
  options.classes = self["classes"];
  options.seed = config["seed"].get<uint64_t>() * 3 + (split == "train" ? 0 : split == "val" ? 1 : 2);
  options.device = device;
  return std::make_shared<RandomDataset>(options);
}

Field range() {
  return list("range", Json{0.0, 1.0}, number("", nullptr, "fraction").at_least(0).at_most(1),
              "the part of a seeded split, [from, to)")
      .items(2, 2);
}
Field column_field(std::string key, std::string doc) {
  Field f = text(std::move(key), nullptr, std::move(doc));
  f.also_integer = true;
  return f;
}

}  // namespace

const Family& dataset_family() {
  static const Family family{
      "data set",
      {{"MNIST",
        "images [1, 28, 28] in 10 classes, from IDX files",
        {text("root", nullptr, "folder of the files or of mnist/; left out: data.root"),
         choice("split", nullptr, {"train", "test"}, "left out: train for data.train, else test"), transforms(), range()}},
       {"Digits",
        "drawn digits in the form of MNIST; needs no files",
        {choice("split", nullptr, {"train", "test"}, "left out: train for data.train, else test"),
         integer("size", 0, "samples; 0: 8000 for train, 2000 for test").at_least(0).at_most(kMaxCount), transforms(), range()}},
       {"CSV",
        "a table",
        {text("path", nullptr, "the file, relative to data.root").required(),
         text("root", nullptr, "folder of path; left out: data.root"),
         column_field("target", "column by name or index; left out: the last"),
         choice("task", "classification", {"classification", "regression"}, "what the target is"),
         list("features", Json::array(), column_field("", "column"), "columns by name or index; empty: all others"),
         boolean("header", "auto", "is the first row a header").or_word("auto"), text("delimiter", ",", "one character"),
         boolean("standardize", false, "inputs to mean 0 and deviation 1 (of the training data)"), range()}},
       {"Random",
        "random tensors",
        {integer("num_batches", 1, "batches").at_least(1).at_most(kMaxCount),
         list("input_shape", nullptr, integer("", nullptr, "size").at_least(1), "of one sample").items(1, 7).required(),
         list("target_shape", Json::array(), integer("", nullptr, "size").at_least(1), "of one sample, for regression").items(0, 7),
         integer("classes", 0, "classes; 0: regression").at_least(0).at_most(kMaxSample),
         not_yet("resident", true, "Random data that is not resident"), range()}}},
      {},
      {"CIFAR10", "CIFAR100", "FashionMNIST", "Text", "ImageFolder", "NPY", "TimeSeries"}};
  return family;
}

std::filesystem::path data_root(const Json& config, const std::string& split) {
  const Json& self = config["data"][split];
  if (self.contains("root") && !self["root"].is_null()) return self["root"].get<std::string>();
  return config["data"]["root"].get<std::string>();
}

std::optional<DataFacts> dataset_facts(const Json& config, const std::string& split) {
  const Json& self = config["data"][split];
  const std::string type = self["type"];
  const bool train = self.contains("split") && !self["split"].is_null() ? self["split"] == "train" : split == "train";
  if (type == "MNIST") return DataFacts{{1, 28, 28}, {}, 10, part_size(self, train ? 60000 : 10000)};
  if (type == "Digits") {
    const int64_t size = self["size"];
    return DataFacts{{1, 28, 28}, {}, 10, part_size(self, size > 0 ? size : train ? 8000 : 2000)};
  }
  if (type == "Random") {
    const int64_t n = self["num_batches"].get<int64_t>() * config["data"]["loader"]["batch_size"].get<int64_t>();
    return DataFacts{shape_of(self["input_shape"]), shape_of(self["target_shape"]), self["classes"], part_size(self, n)};
  }
  std::error_code none;  // what cannot be looked at is not there
  if (!std::filesystem::exists(csv_path(config, split), none)) return {};
  const auto data = make_csv(config, split);
  return DataFacts{data->input_shape(), data->target_shape(), data->classes(), data->size()};
}

std::shared_ptr<Dataset> build_dataset(const Json& config, const std::string& split, Device device) {
  const Json& self = config["data"][split];
  const std::string type = self["type"];
  const uint64_t seed = config["seed"];
  try {
    if (type == "CSV") return make_csv(config, split);
    if (type == "Random") return part(make_random(config, split, device), self, seed);
    const Split which =
        self["split"].is_null() ? (split == "train" ? Split::train : Split::test) : parse_split(self["split"].get<std::string>());
    if (type == "MNIST")
      return part(std::make_shared<MnistDataset>(data_root(config, split), which, normalize_of(self)), self, seed);
    return part(std::make_shared<DigitsDataset>(DigitsOptions{
                    .split = which, .size = self["size"], .seed = seed, .normalize = normalize_of(self).value_or(Normalize{})}),
                self, seed);
  } catch (const IoError& e) {
    throw DataError(e.what());  // for the program a file of data that cannot be read is bad data
  }
}

}  // namespace halfstep::app
