// Data sets of numbers in files.
#include "apps/catalog/dataset_rows.h"
#include "framework/data/csv.h"

namespace halfstep::app {
namespace {

std::string column(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::to_string(value.get<int64_t>());
}
Field column_field(std::string key, std::string doc) {
  Field f = text(std::move(key), nullptr, std::move(doc));
  f.also_integer = true;
  return f;
}

std::shared_ptr<CsvDataset> make_csv(const SplitRequest& r) {
  const Json& self = r.self();
  CsvOptions options;
  if (self["header"].is_boolean()) options.header = self["header"] == true ? CsvOptions::Header::yes : CsvOptions::Header::no;
  options.delimiter = self["delimiter"].get<std::string>()[0];
  if (!self["target"].is_null()) options.target = column(self["target"]);
  options.classification = self["task"] == "classification";
  for (const Json& f : self["features"]) options.features.push_back(column(f));
  options.standardize = self["standardize"];
  options.begin = range_at(self, 0), options.end = range_at(self, 1);
  options.seed = r.config["seed"];
  // Held-out data is scaled as the training data was.
  const SplitRequest train = train_of(r);
  if (options.standardize && r.split != "train" && train.self()["type"] == "CSV" && train.self()["standardize"] == true)
    options.scaling = make_csv(train)->scaling();
  return std::make_shared<CsvDataset>(data_path(r), options);
}

}  // namespace

void add_table_rows(Catalog<DatasetRow>& all) {
  all.add({{"CSV",
            "a table",
            {path_field("the file"), root_field("folder of path"),
             column_field("target", "column by name or index; left out: the last"),
             choice("task", "classification", {"classification", "regression"}, "what the target is"),
             list("features", Json::array(), column_field("", "column"), "columns by name or index; empty: all others"),
             boolean("header", "auto", "is the first row a header").or_word("auto"), text("delimiter", ",", "one character"),
             boolean("standardize", false, "inputs to mean 0 and deviation 1 (of the training data)")}},
           make_csv,
           [](const SplitRequest& r) { return facts_of_file(data_path(r), [&] { return make_csv(r); }); },
           /*takes_range=*/true});
}

}  // namespace halfstep::app
