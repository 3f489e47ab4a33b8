// SPDX-License-Identifier: Apache-2.0
// Rows of data sets of numbers in files.
#include <algorithm>

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

// Returns a static list, since other files may build the catalogue before this file's variables are initialised.
const std::vector<std::string>& missing_words() {
  static const std::vector<std::string> all = {"refuse", "drop_row", "mean", "median", "constant"};  // in the order of CsvMissing
  return all;
}
const std::vector<std::string>& series_missing() {
  static const std::vector<std::string> all = {"refuse", "drop", "last", "interpolate"};  // in the order of SeriesMissing
  return all;
}
const std::vector<std::string>& date_orders() {
  static const std::vector<std::string> all = {"ymd", "dmy", "mdy"};  // in the order of CsvDateOrder
  return all;
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
  TokenRowOptions out{.tokenizer = parse_tokenizer(self["tokenizer"].get<std::string>()),
                      .length = self["seq_len"],
                      .max_tokens = self["max_words"],
                      .min_count = self["min_count"]};
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
  options.date_order = place_in<CsvDateOrder>(date_orders(), self["date_order"]);
  options.date_parts = self["dates_as"] == "parts";
  options.standardize = self["standardize"];
  options.standardize_target = self["standardize_target"];
  options.missing = place_in<CsvMissing>(missing_words(), self["missing"]);
  options.missing_words = self["missing_words"].get<std::vector<std::string>>();
  options.fill = self["fill"];
  options.unknown = self["unknown"];
  options.one_hot = self["categories"] == "one_hot";
  options.part = split_options(r);
  options.part.stratified = options.part.stratified && options.classification;  // else the rules of data refuse it
  // Held-out data takes columns, categories, classes and scale from the training data.
  const SplitRequest train = train_of(r);
  const auto alike = [&](const char* key) { return train.self()[key] == self[key]; };
  const TableForm* const known = r.known ? std::get_if<TableForm>(&r.known->source) : nullptr;
  const bool scaled = options.standardize_target && (known || train.self()["standardize_target"] == true);
  if (known) {
    options.encoding = known->options.encoding;
    if (scaled) options.target_scale = r.known->scale;
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
  const bool same = trained && known->options.encoding == trained->encoding() && r.known->scale == trained->target_scale();
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
  options.missing = place_in<SeriesMissing>(series_missing(), self["missing"]);
  options.missing_words = self["missing_words"].get<std::vector<std::string>>();
  options.window = self["window"], options.horizon = self["horizon"], options.stride = self["stride"];
  options.begin = range_at(self, 0), options.end = range_at(self, 1);
  options.standardize = self["standardize"];
  options.header = header_of(self);
  options.format = format_of(self);
  // Held-out data takes columns, scale and step from the training data.
  const SplitRequest train = train_of(r);
  std::optional<TimeSeriesOptions> known;
  if (r.known && std::holds_alternative<SeriesForm>(r.known->source))
    known = std::get<SeriesForm>(r.known->source).options;
  else if (r.split != "train" && train.self()["type"] == "TimeSeries" &&
           (options.all_columns || train.self()["standardize"] == true))
    known = make_series(train)->options();
  if (known) {
    if (options.all_columns) options.columns = known->columns, options.all_columns = false;
    if (options.standardize && (r.known || train.self()["standardize"] == true)) options.scaling = known->scaling;
    if (options.time == known->time) options.step = known->step;
  }
  return std::make_shared<TimeSeriesDataset>(data_path(r), options);
}

Field columns(const char* key, const char* doc) { return list(key, Json::array(), column_field("", "column"), doc); }

void add_tables(Catalog<DatasetRow>& all) {
  const std::vector<Field> format = format_fields();
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
         choice("tokenizer", "word", {"word", "char", "bpe"},
                "of texts: words in small letters, signs and ideographs by themselves; characters; or those of tokenizer_file"),
         integer("seq_len", 256, "tokens of a row of texts").at_least(1).at_most(1 << 20),
         integer("max_words", 20000, "of texts: number of words or characters that are tokens, the most frequent")
             .at_least(1)
             .at_most(kMaxSample),
         integer("min_count", 2, "of texts: what the training data has less often is no token, but <unk>")
             .at_least(1)
             .at_most(kMaxCount),
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
         choice("dates_as", "number", {"number", "parts"},
                "\"number\": days since 1970-01-01 with the time as a fraction, to be used with standardize; \"parts\": one input "
                "each for year, month, day, weekday (Monday is 0) and, if the column has times, the hour"),
         choice("date_order", "ymd", date_orders(), "order of year, month and day, which are separated by - / or ."),
         choice("missing", "refuse", missing_words(),
                "handling of missing values: an error, leave out the row, the training data's mean or median, or fill"),
         list("missing_words", Json::array(), text("", nullptr, "a word"), "words for a missing value besides an empty cell"),
         number("fill", 0.0, "of missing: constant"),
         text("unknown", "refuse",
              "texts in columns of text that the training data does not have: \"refuse\"; \"missing\": as a missing value; or a "
              "text "
              "of the column, in whose place they stand"),
         choice("categories", "one_hot", {"one_hot", "index"},
                "columns of text: an input of 0 or 1 for each different text, or one input with its number"),
         boolean("standardize", false, "inputs to mean 0 and deviation 1 (of the training data)"),
         boolean("standardize_target", false,
                 "of regression: targets to mean 0 and deviation 1 (of the training data); metrics and predictions are in the "
                 "column's units")}},
       make_csv,
       [](const SplitRequest& r) { return facts_of_file(data_path(r), [&] { return make_csv(r); }); },
       /*takes_range=*/true,
       /*normalizes=*/false,
       /*streams=*/false,
       /*takes_parts=*/true});
}

void add_series(Catalog<DatasetRow>& all) {
  const std::vector<Field> format = format_fields();
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
         choice("missing", "refuse", series_missing(),
                "handling of missing values: an error; leave out the row; the last value before it; a straight line between its "
                "neighbours. The last two also fill in rows that time lacks, which no window crosses otherwise"),
         list("missing_words", Json::array(), text("", nullptr, "a word"), "words for a missing value besides an empty cell"),
         part_field(),
         integer("window", nullptr, "rows of the input").at_least(1).at_most(kMaxSample).required(),
         integer("horizon", 1, "rows to predict").at_least(1).at_most(kMaxSample),
         integer("stride", 1, "rows from a window to the next").at_least(1).at_most(kMaxSample),
         header_field(),
         format[0],
         format[1],
         format[2],
         format[3],
         format[4],
         format[5],
         boolean("standardize", true, "each column to mean 0 and deviation 1 (of the training data)")}},
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
