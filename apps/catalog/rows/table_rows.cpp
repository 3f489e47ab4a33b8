// SPDX-License-Identifier: Apache-2.0
// Rows of data sets of numbers in files.
#include <algorithm>

#include "apps/catalog/rows/dataset_rows.h"
#include "framework/base/check.h"
#include "framework/data/formats/read_once.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/time_series.h"

namespace halfstep::app {
namespace {

Field column_field(std::string key, std::string doc) {
  Field f = text(std::move(key), nullptr, std::move(doc));
  f.also_integer = true;
  return f;
}

// Returns a key for Keep: the split's file, the training data's file, and the config. Empty: do not keep the table.
std::string cache_key(const SplitRequest& r) {
  const SplitRequest train = train_of(r);
  const bool table = train.self()["type"] == "CSV";
  const std::string own = file_stamp(data_path(r)), of_train = table ? file_stamp(data_path(train)) : "none";
  if (own.empty() || of_train.empty()) return {};
  const Json loss = r.config.value("loss", Json::object());
  Json keys = {r.config["seed"], r.split, r.self(), train.self(), loss.value("ignore_index", Json())};
  for (Json& k : keys)
    if (k.is_object()) k.erase("transforms");  // applied to batches, not to the data set
  return joined(own, '\n', of_train, '\n', line_of(keys));
}

// Returns how "texts" are tokenised. learns: with tokens of its own instead of the training data's.
TokenRowOptions tokens_of(const SplitRequest& r, bool learns) {
  TokenRowOptions out;
  read_options(r.self(), out);
  if (out.tokenizer == Tokenizer::bpe && learns) out.bpe = own_tokenizer(r);
  return out;
}

std::shared_ptr<CsvDataset> make_csv(const SplitRequest& r) {
  const Json& self = r.self();
  CsvOptions options;
  read_options(self, options);
  options.ignored = ignored_class(r);
  const bool texts = !self["texts"].empty();
  if (texts) options.features = texts_in(self["texts"]);
  options.part = split_options(r);
  options.part.stratified = options.part.stratified && options.classification;  // else the rules of data refuse it
  // Held-out data takes columns, categories, classes and scale from the training data.
  const SplitRequest train = train_of(r);
  const auto alike = [&](const char* key) { return train.self()[key] == self[key]; };
  const TableForm* const known = r.form ? std::get_if<TableForm>(&r.form->source) : nullptr;
  const bool scaled = options.standardize_target && (known || train.self()["standardize_target"] == true);
  if (known) {
    options.encoding = known->options.encoding;
    if (scaled) options.target_scale = r.form->scale;
  } else if (r.split != "train" && train.self()["type"] == "CSV" &&
             (texts || options.standardize || scaled || options.missing != CsvMissing::refuse ||
              data_path(train) != data_path(r))) {
    const auto data = make_csv(train);
    options.encoding = data->encoding();
    if (scaled) options.target_scale = data->target_scale();
  }
  if (texts) options.tokens = tokens_of(r, !options.encoding || !options.encoding->tokens);
  if (options.encoding) {
    if (!alike("standardize") || !alike("categories")) options.encoding->mean.clear(), options.encoding->std.clear();
    if (!alike("missing") || !alike("categories")) options.encoding->fill.clear();
    if (!alike("task")) options.encoding->classes.clear();
  }
  const auto make = [&] { return std::make_shared<CsvDataset>(data_path(r), options); };
  const auto trained = known ? ReadCache<CsvDataset>::find(cache_key(train)) : nullptr;
  const bool same = trained && known->options.encoding == trained->encoding() && r.form->scale == trained->target_scale();
  return known && !same ? make() : ReadCache<CsvDataset>::get(cache_key(r), make);
}

std::shared_ptr<TimeSeriesDataset> make_series(const SplitRequest& r) {
  const Json& self = r.self();
  TimeSeriesOptions options;
  read_options(self, options);
  if (!self["column"].is_null()) {
    check<ConfigError>(options.columns.empty() && !options.all_columns, "TimeSeries", "give column or columns, not both");
    options.columns = texts_in(self["column"]);
  }
  // Held-out data takes columns, scale and step from the training data.
  const SplitRequest train = train_of(r);
  std::optional<TimeSeriesOptions> known;
  if (r.form && std::holds_alternative<SeriesForm>(r.form->source))
    known = std::get<SeriesForm>(r.form->source).options;
  else if (r.split != "train" && train.self()["type"] == "TimeSeries" &&
           (options.all_columns || train.self()["standardize"] == true || train.self()["target"] != self["target"]))
    known = make_series(train)->options();
  if (known) {
    if (options.all_columns) options.columns = known->columns, options.all_columns = false;
    if (options.standardize && (r.form || train.self()["standardize"] == true)) options.scaling = known->scaling;
    if (options.time == known->time) options.step = known->step;
  }
  const auto out = std::make_shared<TimeSeriesDataset>(data_path(r), options);
  const std::vector<std::string>& own = out->options().target;
  if (!known || own == known->target || !std::is_permutation(own.begin(), own.end(), known->target.begin(), known->target.end()))
    return out;
  options.target = known->target;  // the order of the training data's
  return std::make_shared<TimeSeriesDataset>(data_path(r), options);
}

void add_tables(Catalog<DatasetRow>& catalog) {
  Component row{"CSV", "a table", joined_fields({{path_field("the file"), root_field("folder of path")}, fields_of<CsvOptions>()})};
  Field texts = list("texts", Json::array(), column_field("", "column"),
                     "columns of texts: the input is their tokens, one text after another, and nothing else; texts that are longer "
                     "than seq_len are cut, and shorter ones end with padding");
  const std::vector<Field> tokens = joined_fields({{texts}, fields_of<TokenRowOptions>(), {tokenizer_field()}});
  const auto header = std::find_if(row.fields.begin(), row.fields.end(), [](const Field& f) { return f.key == "header"; });
  row.fields.insert(header, tokens.begin(), tokens.end());
  catalog.add({row, make_csv, [](const SplitRequest& r) { return facts_of_file(data_path(r), [&] { return make_csv(r); }); },
               file_at(),
               /*takes_range=*/true,
               /*normalizes=*/false,
               /*streams=*/false,
               /*takes_parts=*/true});
}

void add_series(Catalog<DatasetRow>& catalog) {
  catalog.add(
      {{"TimeSeries",
        "windows [window, columns] over columns of a table, and the values [horizon * targets] after each; metrics are in the "
        "columns' units",
        joined_fields({{path_field("the file"), root_field("folder of path"),
                        column_field("column", "the only column, by name or index; without it and columns: the last")},
                       fields_of<TimeSeriesOptions>()})},
       make_series,
       [](const SplitRequest& r) { return facts_of_file(data_path(r), [&] { return make_series(r); }); },
       file_at(),
       /*takes_range=*/true});
}

}  // namespace

void add_table_rows(Catalog<DatasetRow>& catalog) {
  add_tables(catalog);
  add_series(catalog);
}

}  // namespace halfstep::app
