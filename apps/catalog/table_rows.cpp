// SPDX-License-Identifier: Apache-2.0
// Data sets of numbers in files.
#include <algorithm>

#include "apps/catalog/dataset_rows.h"
#include "framework/data/csv.h"
#include "framework/data/time_series.h"

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

Field header_field() { return boolean("header", "auto", "is the first row a header").or_word("auto"); }
CsvOptions::Header header_of(const Json& self) {
  using Header = CsvOptions::Header;
  return !self["header"].is_boolean() ? Header::automatic : self["header"] == true ? Header::yes : Header::no;
}

const std::vector<std::string> kMissing = {"refuse", "drop_row", "mean", "median", "constant"};  // as CsvMissing

std::shared_ptr<CsvDataset> make_csv(const SplitRequest& r) {
  const Json& self = r.self();
  CsvOptions options;
  options.header = header_of(self);
  options.delimiter = self["delimiter"].get<std::string>()[0];
  if (!self["target"].is_null()) options.target = column(self["target"]);
  options.classification = self["task"] == "classification";
  for (const Json& f : self["features"]) options.features.push_back(column(f));
  options.standardize = self["standardize"];
  options.missing = CsvMissing(std::find(kMissing.begin(), kMissing.end(), self["missing"]) - kMissing.begin());
  options.missing_words = self["missing_words"].get<std::vector<std::string>>();
  options.fill = self["fill"];
  options.one_hot = self["categories"] == "one_hot";
  options.begin = range_at(self, 0), options.end = range_at(self, 1);
  options.seed = r.config["seed"];
  // Held-out data has the columns, categories, classes and scale of the training data.
  const SplitRequest train = train_of(r);
  const auto alike = [&](const char* key) { return train.self()[key] == self[key]; };
  if (r.split != "train" && train.self()["type"] == "CSV" &&
      (options.standardize || options.missing != CsvMissing::refuse || data_path(train) != data_path(r))) {
    options.encoding = make_csv(train)->encoding();
    if (!alike("standardize") || !alike("categories")) options.encoding->mean.clear(), options.encoding->std.clear();
    if (!alike("missing") || !alike("categories")) options.encoding->fill.clear();
    if (!alike("task")) options.encoding->classes.clear();
  }
  return std::make_shared<CsvDataset>(data_path(r), options);
}

std::shared_ptr<TimeSeriesDataset> make_series(const SplitRequest& r) {
  const Json& self = r.self();
  TimeSeriesOptions options;
  if (!self["column"].is_null()) options.column = column(self["column"]);
  if (!self["time"].is_null()) options.time = column(self["time"]);
  options.window = self["window"], options.horizon = self["horizon"], options.stride = self["stride"];
  options.begin = range_at(self, 0), options.end = range_at(self, 1);
  options.standardize = self["standardize"];
  options.header = header_of(self);
  options.delimiter = self["delimiter"].get<std::string>()[0];
  const SplitRequest train = train_of(r);
  if (options.standardize && r.split != "train" && train.self()["type"] == "TimeSeries" && train.self()["standardize"] == true)
    options.scaling = make_series(train)->target_scale();
  return std::make_shared<TimeSeriesDataset>(data_path(r), options);
}

}  // namespace

void add_table_rows(Catalog<DatasetRow>& all) {
  all.add(
      {{"CSV",
        "a table",
        {path_field("the file"), root_field("folder of path"),
         column_field("target", "column by name or index; left out: the last"),
         choice("task", "classification", {"classification", "regression"}, "kind of target"),
         list("features", Json::array(), column_field("", "column"), "columns by name or index; empty: all others"), header_field(),
         text("delimiter", ",", "one character"),
         choice("missing", "refuse", kMissing,
                "handling of missing values: an error, leave out the row, the training data's mean or median, or fill"),
         list("missing_words", Json::array(), text("", nullptr, "a word"), "words for a missing value besides an empty cell"),
         number("fill", 0.0, "of missing: constant"),
         choice("categories", "one_hot", {"one_hot", "index"}, "columns of texts: an input of 0 or 1 for each, or their number"),
         boolean("standardize", false, "inputs to mean 0 and deviation 1 (of the training data)")}},
       make_csv,
       [](const SplitRequest& r) { return facts_of_file(data_path(r), [&] { return make_csv(r); }); },
       /*takes_range=*/true});
  all.add({{"TimeSeries",
            "windows [window, 1] over a column of a table, and the values [horizon] after each; metrics are in the column's units",
            {path_field("the file"), root_field("folder of path"),
             column_field("column", "column by name or index; left out: the last"),
             column_field("time", "a column whose values must increase, by name or index"), part_field(),
             integer("window", nullptr, "values of the input").at_least(1).at_most(kMaxSample).required(),
             integer("horizon", 1, "values to predict").at_least(1).at_most(kMaxSample),
             integer("stride", 1, "rows from a window to the next").at_least(1).at_most(kMaxSample), header_field(),
             text("delimiter", ",", "one character"),
             boolean("standardize", true, "inputs and targets to mean 0 and deviation 1 (of the training data)")}},
           make_series,
           [](const SplitRequest& r) { return facts_of_file(data_path(r), [&] { return make_series(r); }); },
           /*takes_range=*/true});
}

}  // namespace halfstep::app
