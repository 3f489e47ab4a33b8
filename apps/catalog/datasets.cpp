#include "apps/catalog/datasets.h"

#include <algorithm>
#include <cmath>

#include "apps/catalog/infer.h"
#include "apps/catalog/transforms.h"
#include "framework/data/csv.h"
#include "framework/data/digits.h"
#include "framework/data/mnist.h"
#include "framework/data/permutation.h"
#include "framework/data/statistics.h"
#include "framework/data/synthetic.h"

namespace halfstep::app {
namespace {

constexpr int kMaxTransforms = 64;

Shape shape_of(const Json& sizes) {
  Shape out;
  for (const Json& s : sizes) out.push_back(s);
  return out;
}

// What a data set of bytes does to its pixels: the first transform, if it can be done there.
std::optional<Normalize> normalize_of(const Json& self) {
  const Transforms all = build_transforms(self["transforms"]);
  return all.empty() ? std::nullopt : all[0]->as_normalize();
}

// The transforms that the data set does not do itself.
Transforms transforms_after(const DatasetRow& row, const Json& self) {
  Transforms all = build_transforms(self["transforms"]);
  if (row.normalizes && !all.empty() && all[0]->as_normalize()) all.erase(all.begin());
  return all;
}

double range_at(const Json& self, size_t end) { return self["range"][end]; }

bool is_fold(const Json& self) { return !self["fold"].is_null(); }
// Is the part taken here, and not by the data set?
bool cuts(const DatasetRow& row, const Json& self) {
  const bool whole = range_at(self, 0) == 0 && range_at(self, 1) == 1;
  return is_fold(self) || (!whole && (!row.takes_range || self["stratified"] == true));
}

// The samples that "range" or "fold" names, of an order of all.
std::vector<int64_t> chosen(const Json& self, const std::string& split, std::span<const int64_t> order) {
  if (!is_fold(self)) return part_of(order, range_at(self, 0), range_at(self, 1));
  const double fold = self["fold"][0], folds = self["fold"][1];
  std::vector<int64_t> held_out = part_of(order, fold / folds, (fold + 1) / folds), others;
  if (split != "train") return held_out;
  for (int64_t i = 0; i < int64_t(order.size()); ++i) {
    if (!std::binary_search(held_out.begin(), held_out.end(), i)) others.push_back(i);
  }
  return others;
}

// The data set, or the part of it that "range" or "fold" names, before its transforms.
std::shared_ptr<Dataset> make_part(const DatasetRow& row, const SplitRequest& wanted) {
  const Json& self = wanted.self();
  try {
    if (!cuts(row, self)) return row.make(wanted);
    Json whole = wanted.config;
    whole["data"][wanted.split]["range"] = Json{0.0, 1.0};
    auto all = row.make({whole, wanted.split, wanted.device});
    const uint64_t seed = wanted.config["seed"];
    const auto order = self["stratified"] == true ? stratified_order(class_labels(*all), seed) : split_order(all->size(), seed);
    auto part = chosen(self, wanted.split, order);
    return subset(std::move(all), std::move(part));
  } catch (const IoError& e) {
    throw DataError(e.what());  // for the program a file of data that cannot be read is bad data
  }
}

// The config with the numbers that "from": "data" stands for written into the split's transforms.
Json with_statistics(const Json& config, const std::string& split) {
  Json out = config;
  std::optional<std::vector<ChannelStatistics>> found;
  for (Json& t : out["data"][split]["transforms"]) {
    if (!t.contains("from") || t["from"] != "data") continue;
    if (!found) {
      Json raw = config;
      raw["data"]["train"]["transforms"] = Json::array();
      const std::string train = "train";
      found = channel_statistics(*make_part(dataset_catalog().row(raw["data"][train]), {raw, train}));
    }
    t["from"] = nullptr;
    t["mean"] = t["std"] = Json::array();
    for (const ChannelStatistics& c : *found) {
      t["mean"].push_back(c.mean);
      t["std"].push_back(c.std > 0 ? c.std : 1.0);  // of a channel that is constant
    }
  }
  return out;
}

DataFacts facts_of(const Dataset& data) { return {data.input_shape(), data.target_shape(), data.classes(), data.size()}; }

std::string column(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::to_string(value.get<int64_t>());
}

// The folder a split's files are looked for in.
std::filesystem::path data_root(const Json& config, const std::string& split) {
  const Json& self = config["data"][split];
  if (self.contains("root") && !self["root"].is_null()) return self["root"].get<std::string>();
  return config["data"]["root"].get<std::string>();
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

std::shared_ptr<Dataset> make_random(const SplitRequest& r) {
  const Json& self = r.self();
  RandomOptions options;
  options.num_batches = self["num_batches"];
  options.batch_size = r.config["data"]["loader"]["batch_size"];
  options.input_shape = shape_of(self["input_shape"]);
  options.target_shape = shape_of(self["target_shape"]);
  options.classes = self["classes"];
  options.seed = r.config["seed"].get<uint64_t>() * 3 + (r.split == "train" ? 0 : r.split == "val" ? 1 : 2);
  options.device = r.device;
  return std::make_shared<RandomDataset>(options);
}

std::optional<DataFacts> random_facts(const SplitRequest& r) {
  const Json& self = r.self();
  const int64_t batch = r.config["data"]["loader"]["batch_size"];
  return DataFacts{shape_of(self["input_shape"]), shape_of(self["target_shape"]), self["classes"],
                   self["num_batches"].get<int64_t>() * batch};
}

Field which_split() { return choice("split", nullptr, {"train", "test"}, "left out: train for data.train, else test"); }
Split split_of(const SplitRequest& r) {
  const Json& given = r.self()["split"];
  return !given.is_null() ? parse_split(given.get<std::string>()) : r.split == "train" ? Split::train : Split::test;
}

std::shared_ptr<Dataset> make_mnist(const SplitRequest& r) {
  return std::make_shared<MnistDataset>(data_root(r.config, r.split), split_of(r), normalize_of(r.self()));
}
std::optional<DataFacts> mnist_facts(const SplitRequest& r) {
  return DataFacts{{1, 28, 28}, {}, 10, split_of(r) == Split::train ? 60000 : 10000};
}

std::shared_ptr<Dataset> make_digits(const SplitRequest& r) {
  return std::make_shared<DigitsDataset>(DigitsOptions{.split = split_of(r),
                                                       .size = r.self()["size"],
                                                       .seed = r.config["seed"],
                                                       .normalize = normalize_of(r.self()).value_or(Normalize{})});
}
std::optional<DataFacts> digits_facts(const SplitRequest& r) {
  const int64_t size = r.self()["size"];
  return DataFacts{{1, 28, 28}, {}, 10, size > 0 ? size : split_of(r) == Split::train ? 8000 : 2000};
}

std::optional<DataFacts> csv_facts(const SplitRequest& r) {
  std::error_code none;  // what cannot be looked at is not there
  if (!std::filesystem::exists(csv_path(r.config, r.split), none)) return {};
  return facts_of(*make_csv(r.config, r.split));
}

Field column_field(std::string key, std::string doc) {
  Field f = text(std::move(key), nullptr, std::move(doc));
  f.also_integer = true;
  return f;
}

}  // namespace

Catalog<DatasetRow>& dataset_catalog() {
  static Catalog<DatasetRow>& all = *[] {
    auto* const made = new Catalog<DatasetRow>(
        "data set", {list("range", Json{0.0, 1.0}, number("", nullptr, "fraction").at_least(0).at_most(1),
                          "the part of a seeded split, [from, to)")
                         .items(2, 2),
                     list("fold", nullptr, integer("", nullptr, "number").at_least(0).at_most(kMaxCount),
                          "[k, K]: K parts of a seeded split; data.train is all but part k, others are part k")
                         .items(2, 2),
                     boolean("stratified", false, "every part of a split has the classes in their shares"),
                     list("transforms", Json::array(), component("", transform_family(), "a transform"),
                          "what is done to each batch, first to last")
                         .items(0, kMaxTransforms)});
    made->add({{"MNIST",
                "images [1, 28, 28] in 10 classes, from IDX files",
                {text("root", nullptr, "folder of the files or of mnist/; left out: data.root"), which_split()}},
               make_mnist,
               mnist_facts,
               /*takes_range=*/false,
               /*normalizes=*/true});
    made->add({{"Digits",
                "drawn digits in the form of MNIST; needs no files",
                {which_split(), integer("size", 0, "samples; 0: 8000 for train, 2000 for test").at_least(0).at_most(kMaxCount)}},
               make_digits,
               digits_facts,
               /*takes_range=*/false,
               /*normalizes=*/true});
    made->add({{"CSV",
                "a table",
                {text("path", nullptr, "the file, relative to data.root").required(),
                 text("root", nullptr, "folder of path; left out: data.root"),
                 column_field("target", "column by name or index; left out: the last"),
                 choice("task", "classification", {"classification", "regression"}, "what the target is"),
                 list("features", Json::array(), column_field("", "column"), "columns by name or index; empty: all others"),
                 boolean("header", "auto", "is the first row a header").or_word("auto"), text("delimiter", ",", "one character"),
                 boolean("standardize", false, "inputs to mean 0 and deviation 1 (of the training data)")}},
               [](const SplitRequest& r) { return make_csv(r.config, r.split); },
               csv_facts,
               /*takes_range=*/true});
    made->add({{"Random",
                "random tensors",
                {integer("num_batches", 1, "batches").at_least(1).at_most(kMaxCount),
                 list("input_shape", nullptr, integer("", nullptr, "size").at_least(1), "of one sample").items(1, 7).required(),
                 list("target_shape", Json::array(), integer("", nullptr, "size").at_least(1), "of one sample, for regression")
                     .items(0, 7),
                 integer("classes", 0, "classes; 0: regression").at_least(0).at_most(kMaxSample),
                 not_yet("resident", true, "Random data that is not resident")}},
               make_random,
               random_facts});
    return made;
  }();
  return all;
}

std::optional<DataFacts> dataset_facts(const Json& config, const std::string& split) {
  const SplitRequest wanted{config, split};
  const DatasetRow& row = dataset_catalog().row(wanted.self());
  const bool cut = cuts(row, wanted.self());
  Json whole = config;
  if (cut) whole["data"][split]["range"] = Json{0.0, 1.0};
  std::optional<DataFacts> facts = row.facts ? row.facts({whole, split}) : facts_of(*make_part(row, wanted));
  if (!facts) return facts;
  if (row.facts && facts->size && cut) facts->size = int64_t(chosen(wanted.self(), split, split_order(*facts->size, 0)).size());
  try {
    const SavedGenerator generator;
    facts->input = transformed_shape(transforms_after(row, wanted.self()), facts->input, facts->classes);
    int64_t values = 1;
    for (const int64_t size : facts->input) {
      check<ValueError>(size <= kMaxSample / std::max<int64_t>(values, 1), "transforms", "a sample may have ", kMaxSample,
                        " values, got one of shape ", facts->input);
      values *= size;
    }
  } catch (const Error& e) { fail<ConfigError>(joined("data.", split, ".transforms"), one_line(e)); }
  return facts;
}

std::shared_ptr<Dataset> build_dataset(const Json& config, const std::string& split, Device device) {
  const Json filled = with_statistics(config, split);
  const SplitRequest wanted{filled, split, device};
  const DatasetRow& row = dataset_catalog().row(wanted.self());
  auto data = make_part(row, wanted);
  Transforms after = transforms_after(row, wanted.self());
  return after.empty() ? data : transformed(std::move(data), std::move(after), config["seed"]);
}

}  // namespace halfstep::app
