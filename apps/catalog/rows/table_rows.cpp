// SPDX-License-Identifier: Apache-2.0
// Rows of data sets of numbers in files.
#include <algorithm>

#include "apps/catalog/option_fields.h"
#include "apps/catalog/rows/dataset_rows.h"
#include "framework/base/check.h"
#include "framework/data/formats/read_once.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/time_series.h"
#include "framework/data/tokens/bpe.h"

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

std::vector<Field> format_fields() {
  return {text("delimiter", "auto",
               "one character, or \"blanks\": any number of blanks and tabs; \"auto\": comma, semicolon, tab or |, as found in the "
               "first "
               "line, or blanks where none of them occurs"),
          choice("decimal", ".", {".", ","}, "decimal separator"),
          choice("thousands", nullptr, {",", ".", " ", "'", "_"}, "separator of groups of three digits; left out: none"),
          encoding_field(),
          list("skip_rows", Json::array(), integer("", nullptr, "a line").at_least(1).at_most(kMaxCount),
               "lines of the file to leave out, the first is 1: a title above the header, units below it"),
          boolean("accounting", false, "(1.2) and 1.2- are -1.2, and currency signs are passed over")};
}
CsvFormat format_of(const Json& self) {
  const auto first = [](const Json& text) { return text.is_null() ? '\0' : text.get<std::string>()[0]; };
  const Json& delimiter = self["delimiter"];
  return {delimiter == "auto"     ? '\0'
          : delimiter == "blanks" ? kCsvBlanks
                                  : first(delimiter),
          first(self["decimal"]),
          first(self["thousands"]),
          encoding_of(self),
          self["skip_rows"].get<std::vector<int64_t>>(),
          self["accounting"]};
}

std::vector<std::string> columns_of(const Json& list) {
  std::vector<std::string> out;
  for (const Json& one : list) out.push_back(column(one));
  return out;
}

// Returns a cache key: the split's file, the training data's file, and the config.
std::string kept_as(const SplitRequest& r) {
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

// Returns how "texts" are tokenised. learns: learn tokens instead of taking the training data's.
TokenRowOptions tokens_of(const SplitRequest& r, bool learns) {
  const Json& self = r.self();
  TokenRowOptions out;
  read_options(self, out);
  if (out.tokenizer != Tokenizer::bpe || !learns) return out;
  check<ConfigError>(!self["tokenizer_file"].is_null(), joined("data.", r.split, ".tokenizer"), "\"bpe\" needs tokenizer_file",
                     Help{"the tokenizer.json of the model, or a folder with vocab.json and merges.txt"});
  out.bpe = std::make_shared<const BpeTokenizer>(BpeTokenizer::load(data_path(r, "tokenizer_file")));
  return out;
}

std::shared_ptr<CsvDataset> make_csv(const SplitRequest& r) {
  const Json& self = r.self();
  CsvOptions options;
  options.header = header_of(self);
  options.format = format_of(self);
  if (!self["target"].is_null()) options.target = column(self["target"]);
  options.classification = self["task"] == "classification";
  options.ignored = ignored_class(r);
  const bool texts = !self["texts"].empty();
  options.features = columns_of(self[texts ? "texts" : "features"]), options.exclude = columns_of(self["exclude"]);
  options.dates = columns_of(self["dates"]);
  read_options(self, options);
  options.missing_words = self["missing_words"].get<std::vector<std::string>>();
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
  const auto trained = known ? Keep<CsvDataset>::find(kept_as(train)) : nullptr;
  const bool same = trained && known->options.encoding == trained->encoding() && r.form->scale == trained->target_scale();
  return known && !same ? make() : Keep<CsvDataset>::get(kept_as(r), make);
}

std::shared_ptr<TimeSeriesDataset> make_series(const SplitRequest& r) {
  const Json& self = r.self();
  TimeSeriesOptions options;
  options.all_columns = self["columns"] == "all";
  if (!options.all_columns) options.columns = columns_of(self["columns"]);
  if (!self["column"].is_null()) {
    check<ConfigError>(options.columns.empty() && !options.all_columns, "TimeSeries", "give column or columns, not both");
    options.columns = {column(self["column"])};
  }
  options.target = columns_of(self["target"]), options.time = columns_of(self["time"]);
  read_options(self, options);
  options.missing_words = self["missing_words"].get<std::vector<std::string>>();
  options.begin = range_at(self, 0), options.end = range_at(self, 1);
  options.header = header_of(self);
  options.format = format_of(self);
  // Held-out data takes columns, scale and step from the training data.
  const SplitRequest train = train_of(r);
  std::optional<TimeSeriesOptions> known;
  if (r.form && std::holds_alternative<SeriesForm>(r.form->source))
    known = std::get<SeriesForm>(r.form->source).options;
  else if (r.split != "train" && train.self()["type"] == "TimeSeries" &&
           (options.all_columns || train.self()["standardize"] == true))
    known = make_series(train)->options();
  if (known) {
    if (options.all_columns) options.columns = known->columns, options.all_columns = false;
    if (options.standardize && (r.form || train.self()["standardize"] == true)) options.scaling = known->scaling;
    if (options.time == known->time) options.step = known->step;
  }
  return std::make_shared<TimeSeriesDataset>(data_path(r), options);
}

Field columns(const char* key, const char* doc) { return list(key, Json::array(), column_field("", "column"), doc); }

void add_tables(Catalog<DatasetRow>& all) {
  const std::vector<Field> format = format_fields();
  Component own{"CSV", "", fields_of<CsvOptions>()}, tokens{"CSV", "", fields_of<TokenRowOptions>()};
  all.add(
      {{"CSV",
        "a table",
        {path_field("the file"),
         root_field("folder of path"),
         column_field("target", "column by name or index; left out: the last"),
         choice("task", "classification", {"classification", "regression"}, "kind of target"),
         columns("features", "columns by name or index; empty: all others"),
         columns("exclude", "columns to leave out of the features"),
         columns(
             "texts",
             "columns of texts: the input is their tokens, one text after another, and nothing else; texts that are longer than "
             "seq_len are cut, and shorter ones end with padding"),
         field_of(tokens, "tokenizer"),
         field_of(tokens, "seq_len"),
         field_of(tokens, "max_words"),
         field_of(tokens, "min_count"),
         text("tokenizer_file", nullptr,
              "of bpe: a tokenizer.json, or a folder with it or with vocab.json and merges.txt, relative to data.root"),
         header_field(),
         format[0],
         format[1],
         format[2],
         format[3],
         format[4],
         format[5],
         columns("dates", "columns of dates, such as 2024-03-18 or 2024-03-18 14:30"),
         field_of(own, "dates_as"),
         field_of(own, "date_order"),
         field_of(own, "missing"),
         list("missing_words", Json::array(), text("", nullptr, "a word"), "words for a missing value besides an empty cell"),
         field_of(own, "fill"),
         field_of(own, "unknown"),
         field_of(own, "categories"),
         field_of(own, "standardize"),
         field_of(own, "standardize_target")}},
       make_csv,
       [](const SplitRequest& r) { return facts_of_file(data_path(r), [&] { return make_csv(r); }); },
       /*takes_range=*/true,
       /*normalizes=*/false,
       /*streams=*/false,
       /*takes_parts=*/true});
}

void add_series(Catalog<DatasetRow>& all) {
  const std::vector<Field> format = format_fields();
  Component own{"TimeSeries", "", fields_of<TimeSeriesOptions>()};
  all.add(
      {{"TimeSeries",
        "windows [window, columns] over columns of a table, and the values [horizon * targets] after each; metrics are in the "
        "columns' units",
        {path_field("the file"),
         root_field("folder of path"),
         column_field("column", "the only column, by name or index; without it and columns: the last"),
         columns("columns", "columns that the model sees, by name or index; \"all\": all of numbers but time")
             .or_one()
             .or_word("all"),
         columns("target", "those of the columns that are predicted; left out: all").or_one(),
         columns("time", "a column of dates or numbers that must increase; or those of year, month (or quarter), day, hour, minute")
             .or_one(),
         field_of(own, "missing"),
         list("missing_words", Json::array(), text("", nullptr, "a word"), "words for a missing value besides an empty cell"),
         part_field(),
         field_of(own, "window"),
         field_of(own, "horizon"),
         field_of(own, "stride"),
         header_field(),
         format[0],
         format[1],
         format[2],
         format[3],
         format[4],
         format[5],
         field_of(own, "standardize")}},
       make_series,
       [](const SplitRequest& r) { return facts_of_file(data_path(r), [&] { return make_series(r); }); },
       /*takes_range=*/true});
}

}  // namespace

void add_table_rows(Catalog<DatasetRow>& all) {
  add_tables(all);
  add_series(all);
}

}  // namespace halfstep::app
