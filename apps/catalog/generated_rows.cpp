// Data sets that need no files.
#include "apps/catalog/dataset_rows.h"
#include "framework/data/digits.h"
#include "framework/data/synthetic.h"

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

}  // namespace

void add_generated_rows(Catalog<DatasetRow>& all) {
  all.add({{"Digits",
            "drawn digits in the form of MNIST; needs no files",
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
}

}  // namespace halfstep::app
