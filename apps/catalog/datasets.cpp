#include "apps/catalog/datasets.h"

#include <cmath>

#include "apps/catalog/dataset_rows.h"
#include "apps/catalog/infer.h"
#include "framework/data/permutation.h"

namespace halfstep::app {
namespace {

constexpr int kMaxTransforms = 64;

// The transforms that the data set does not do itself.
Transforms transforms_after(const DatasetRow& row, const Json& self) {
  Transforms all = build_transforms(self["transforms"]);
  if (row.normalizes && !all.empty() && all[0]->as_normalize()) all.erase(all.begin());
  return all;
}

int64_t part_size(const Json& self, int64_t n) {
  return int64_t(std::floor(range_at(self, 1) * double(n))) - int64_t(std::floor(range_at(self, 0) * double(n)));
}

// The data set, or the part of it that "range" names, before its transforms.
std::shared_ptr<Dataset> make_part(const DatasetRow& row, const SplitRequest& wanted) {
  const Json& self = wanted.self();
  try {
    auto all = row.make(wanted);
    if (row.takes_range || (range_at(self, 0) == 0 && range_at(self, 1) == 1)) return all;
    const int64_t n = all->size();
    return subset(std::move(all), split_part(n, range_at(self, 0), range_at(self, 1), wanted.config["seed"]));
  } catch (const IoError& e) {
    throw DataError(e.what());  // for the program a file of data that cannot be read is bad data
  }
}

}  // namespace

Catalog<DatasetRow>& dataset_catalog() {
  static Catalog<DatasetRow>& all = *[] {
    auto* const made =
        new Catalog<DatasetRow>("data set", {list("range", Json{0.0, 1.0}, number("", nullptr, "fraction").at_least(0).at_most(1),
                                                  "the part of a seeded split, [from, to)")
                                                 .items(2, 2),
                                             list("transforms", Json::array(), component("", transform_family(), "a transform"),
                                                  "what is done to the inputs of each batch, first to last")
                                                 .items(0, kMaxTransforms)});
    add_image_rows(*made);
    add_table_rows(*made);
    add_array_rows(*made);
    add_text_rows(*made);
    add_generated_rows(*made);
    return made;
  }();
  return all;
}

DataFacts facts_of(const Dataset& data) {
  return {data.input_shape(), data.target_shape(), data.classes(), data.size(),
          data.input_dtype(), data.vocabulary(),   data.streams(), data.label_sequences()};
}

std::optional<DataFacts> dataset_facts(const Json& config, const std::string& split) {
  const SplitRequest wanted{config, split};
  const DatasetRow& row = dataset_catalog().row(wanted.self());
  std::optional<DataFacts> facts = row.facts ? row.facts(wanted) : facts_of(*make_part(row, wanted));
  if (!facts) return facts;
  if (row.facts && facts->size && !row.takes_range) facts->size = part_size(wanted.self(), *facts->size);
  if (wanted.self()["transforms"].empty()) return facts;
  check<ConfigError>(facts->input_dtype == DType::f32, joined("data.", split, ".transforms"), "are for numbers, but ",
                     row.component.type, " has tokens");
  try {
    const SavedGenerator generator;
    facts->input = transformed_shape(transforms_after(row, wanted.self()), facts->input);
  } catch (const Error& e) { fail<ConfigError>(joined("data.", split, ".transforms"), one_line(e)); }
  return facts;
}

std::shared_ptr<Dataset> build_dataset(const Json& config, const std::string& split, Device device) {
  const SplitRequest wanted{config, split, device};
  const DatasetRow& row = dataset_catalog().row(wanted.self());
  auto data = make_part(row, wanted);
  Transforms after = transforms_after(row, wanted.self());
  return after.empty() ? data : transformed(std::move(data), std::move(after));
}

}  // namespace halfstep::app
