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

Field count(const char* key, int64_t fallback, const char* doc, int64_t least = 1) {
  return integer(key, fallback, doc).at_least(double(least)).at_most(1 << 24);
}

// Makes the row of a data set that is drawn from an Options with a split, a size and a seed.
template <class D, class Options>
DatasetRow drawn_row(const char* type, const char* doc, std::vector<Field> more, std::function<void(const Json&, Options&)> read) {
  std::vector<Field> fields = {which_split(), count("size", 1000, "samples")};
  fields.insert(fields.end(), more.begin(), more.end());
  return {{type, doc, fields}, [read](const SplitRequest& r) -> std::shared_ptr<Dataset> {
            Options options;
            options.split = split_of(r), options.size = r.self()["size"], options.seed = r.config["seed"];
            read(r.self(), options);
            return std::make_shared<D>(options);
          }};
}

void add_problems(Catalog<DatasetRow>& all) {
  const Field noise = number("noise", 0.02, "deviation").at_least(0);
  all.add(drawn_row<SpiralsDataset, SpiralsOptions>(
      "Spirals", "points [2] on the arms of a spiral, one class for each arm",
      {count("arms", 2, "classes"), number("turns", 1.5, "turns of an arm around the centre").above(0), noise},
      [](const Json& self, SpiralsOptions& o) { o.arms = self["arms"], o.turns = self["turns"], o.noise = self["noise"]; }));
  all.add(drawn_row<SinesDataset, SinesOptions>(
      "Sines", "sums of sines [window, 1] with noise, and their next values [horizon]",
      {count("window", 32, "values of the input"), count("horizon", 1, "values to predict"),
       count("waves", 3, "number of sines in a sum"), noise},
      [](const Json& self, SinesOptions& o) {
        o.window = self["window"], o.horizon = self["horizon"], o.waves = self["waves"], o.noise = self["noise"];
      }));
  all.add(drawn_row<CopyTaskDataset, CopyTaskOptions>(
      "CopyTask", "tokens [2 length + wait]: symbols to repeat after a wait",
      {count("length", 10, "number of symbols to remember"), count("wait", 20, "steps between symbols and their repetition"),
       count("symbols", 8, "number of different symbols")},
      [](const Json& self, CopyTaskOptions& o) { o.length = self["length"], o.wait = self["wait"], o.symbols = self["symbols"]; }));
  all.add(drawn_row<AddingDataset, AddingOptions>(
      "Adding", "sequences [length, 2] of numbers; two numbers are marked, and the target is their sum",
      {count("length", 50, "steps", 2)}, [](const Json& self, AddingOptions& o) { o.length = self["length"]; }));
  all.add(drawn_row<DigitStripsDataset, DigitStripsOptions>(
      "DigitStrips",
      "several Digits side by side [1, 28, 28 max_digits]; the targets are labels for CTCLoss, the digits plus 1",
      {count("min_digits", 3, "smallest number of digits in a strip").at_most(64),
       count("max_digits", 6, "largest number of digits in a strip").at_most(64)},
      [](const Json& self, DigitStripsOptions& o) { o.min_digits = self["min_digits"], o.max_digits = self["max_digits"]; }));
}

}  // namespace

void add_generated_rows(Catalog<DatasetRow>& all) {
  all.add({{"Digits",
            "generated digits in the form of MNIST; needs no files",
            {which_split(), integer("size", 0, "samples; 0: 8000 for train, 2000 for test").at_least(0).at_most(kMaxCount)}},
           make_digits,
           digits_facts,
           /*takes_range=*/false,
           /*normalizes=*/true});
  all.add(
      {{"Random",
        "random tensors",
        {integer("num_batches", 1, "batches").at_least(1).at_most(kMaxCount),
         list("input_shape", nullptr, integer("", nullptr, "size").at_least(1), "of one sample").items(1, 7).required(),
         list("target_shape", Json::array(), integer("", nullptr, "size").at_least(1), "of one sample, for regression").items(0, 7),
         integer("classes", 0, "classes; 0: regression").at_least(0).at_most(kMaxSample),
         not_yet("resident", true, "Random data that is not resident")}},
       make_random,
       random_facts});
  add_problems(all);
}

}  // namespace halfstep::app
