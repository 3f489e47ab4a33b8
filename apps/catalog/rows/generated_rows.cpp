// SPDX-License-Identifier: Apache-2.0
// Rows of data sets that need no files.
#include "apps/catalog/rows/dataset_rows.h"
#include "framework/data/sets/digits.h"
#include "framework/data/sets/generators.h"
#include "framework/data/sets/synthetic.h"

namespace halfstep::app {
namespace {

Shape shape_of(const Json& sizes) {
  Shape out;
  for (const Json& s : sizes) out.push_back(s);
  return out;
}

std::shared_ptr<Dataset> make_random(const SplitRequest& r) {
  const Json& self = r.self();
  RandomOptions options;
  read_options(self, options);
  options.batch_size = r.config["data"]["loader"]["batch_size"];
  options.input_shape = shape_of(self["input_shape"]);
  options.target_shape = shape_of(self["target_shape"]);
  // Another seed for each of the three splits.
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

std::shared_ptr<Dataset> make_digits(const SplitRequest& r) {
  DigitsOptions options;
  read_options(r.self(), options);
  options.split = split_of(r), options.seed = r.config["seed"];
  options.normalize = normalize_of(r.self()).value_or(Normalize{});
  return std::make_shared<DigitsDataset>(options);
}
std::optional<DataFacts> digits_facts(const SplitRequest& r) {
  const int64_t size = r.self()["size"];
  return DataFacts{{1, 28, 28}, {}, 10, size > 0 ? size : split_of(r) == Split::train ? 8000 : 2000};
}

// Makes the row of a data set that is drawn by options with a split and a seed.
template <class D, class O>
DatasetRow drawn_row(const char* type, const char* doc) {
  std::vector<Field> fields = fields_of<O>();
  fields.insert(fields.begin(), which_split());
  return {{type, doc, fields}, [](const SplitRequest& r) -> std::shared_ptr<Dataset> {
            O options;
            read_options(r.self(), options);
            options.split = split_of(r), options.seed = r.config["seed"];
            return std::make_shared<D>(options);
          }};
}

void add_problems(Catalog<DatasetRow>& catalog) {
  catalog.add(drawn_row<SpiralsDataset, SpiralsOptions>("Spirals", "points [2] on the arms of a spiral, one class for each arm"));
  catalog.add(
      drawn_row<SinesDataset, SinesOptions>("Sines", "sums of sines [window, 1] with noise, and their next values [horizon]"));
  catalog.add(drawn_row<CopyTaskDataset, CopyTaskOptions>("CopyTask", "tokens [2 length + wait]: symbols to repeat after a wait"));
  catalog.add(drawn_row<AddingDataset, AddingOptions>(
      "Adding", "sequences [length, 2] of numbers; two numbers are marked, and the target is their sum"));
  catalog.add(drawn_row<DigitStripsDataset, DigitStripsOptions>(
      "DigitStrips", "several Digits side by side [1, 28, 28 max_digits]; the targets are labels for CTCLoss, the digits plus 1"));
}

}  // namespace

void add_generated_rows(Catalog<DatasetRow>& catalog) {
  std::vector<Field> digits = fields_of<DigitsOptions>({}, {.most = kMaxCount});
  digits.insert(digits.begin(), which_split());
  catalog.add({{"Digits", "generated digits in the form of MNIST; needs no files", digits},
               make_digits,
               digits_facts,
               /*files=*/{},
               /*takes_range=*/false,
               /*normalizes=*/true});
  std::vector<Field> random = fields_of<RandomOptions>();
  Field& batches = random.front();
  batches = batches.at_most(kMaxCount);
  random.insert(
      random.begin() + 1,
      {list("input_shape", nullptr, integer("", nullptr, "size").at_least(1), "of one sample").items(1, kMaxDims - 1).required(),
       list("target_shape", Json::array(), integer("", nullptr, "size").at_least(1), "of one sample, for regression")
           .items(0, kMaxDims - 1)});
  random.push_back(not_yet("resident", true, "Random data that is not resident"));
  catalog.add({{"Random", "random tensors", random}, make_random, random_facts});
  add_problems(catalog);
}

}  // namespace halfstep::app
