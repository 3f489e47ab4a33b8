// SPDX-License-Identifier: Apache-2.0
#include "framework/data/transforms/data_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/base/check.h"
#include "framework/data/tokens/bpe.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/checkpoint/stored_json.h"

namespace halfstep {
namespace {

using nlohmann::json;

namespace form_words {

constexpr int64_t kFormVersion = 1;

// The words of enumerations without OptionNames, in the order of their values.
constexpr std::array<const char*, 5> kSources = {"tensor", "image", "table", "series", "text"};
constexpr std::array<const char*, 4> kStepUnits = {"number", "day", "business_day", "month"};
constexpr std::array<const char*, 3> kByteMeanings = {"none", "pixels", "numbers"};
constexpr std::array<const char*, 3> kHeaders = {"auto", "yes", "no"};
constexpr const char* kBlanks = "blanks";  // the delimiter

}  // namespace form_words

template <size_t n, class E>
const char* word(const std::array<const char*, n>& words, E value) {
  return words[size_t(value)];
}
template <class E>
const char* word(E value) {
  return OptionNames<E>::kNames[size_t(value)];
}

json text_of(char c) { return c == 0 ? std::string() : c == kCsvBlanks ? form_words::kBlanks : std::string(1, c); }

json to_json(const CsvFormat& f) {
  return {{"delimiter", text_of(f.delimiter)},
          {"decimal", text_of(f.decimal)},
          {"thousands", text_of(f.thousands)},
          {"accounting", f.accounting},
          {"encoding", word(f.encoding)}};
}

json to_json(const ColumnScale& scale) {
  json out = {{"mean", scale.mean}, {"std", scale.std}};
  for (const ColumnScale& column : scale.each) out["each"].push_back(to_json(column));
  return out;
}

json sizes_of(const Shape& shape) { return std::vector<int64_t>(shape.begin(), shape.end()); }

json to_json(const TensorForm& f) {
  json out = {{"bytes", word(form_words::kByteMeanings, f.bytes)}};
  if (f.low <= f.high) out["low"] = f.low, out["high"] = f.high;
  if (f.channels_last) out["channels_last"] = true;
  return out;
}

json to_json(const ImageForm& f) {
  return {
      {"fit", f.fit ? json(word(*f.fit)) : json()}, {"background", word(f.background)}, {"on_side", f.on_side}, {"exif", f.exif}};
}

json to_json(const TokenRows& t) {
  const TokenRowOptions& o = t.options();
  return {{"tokenizer", name(o.tokenizer)},
          {"length", o.length},
          {"tokens", t.vocabulary().tokens()},
          {"tokenizer_json", o.bpe ? json(o.bpe->json()) : json()}};
}

json to_json(const TableForm& form) {
  const CsvOptions& o = form.options;
  const CsvEncoding e = o.encoding.value_or(CsvEncoding());
  json columns = json::array();
  for (const CsvEncoding::Column& c : e.columns)
    columns.push_back(
        {{"name", c.name}, {"categories", c.categories}, {"date", c.date}, {"zones", c.zones ? json(*c.zones) : json()}});
  return {{"header", e.header},
          {"width", e.width},
          {"format", to_json(o.format)},
          {"classification", o.classification},
          {"columns", columns},
          {"texts", e.tokens ? to_json(*e.tokens) : json()},
          {"target", e.target},
          {"exclude", o.exclude},
          {"date_order", word(o.date_order)},
          {"date_parts", o.date_parts},
          {"one_hot", o.one_hot},
          {"missing", word(o.missing)},
          {"missing_words", o.missing_words},
          {"fill", o.fill},
          {"unknown", o.unknown},
          {"fills", e.fill},
          {"standardize", o.standardize},
          {"mean", e.mean},
          {"std", e.std},
          {"low", e.low},
          {"high", e.high}};
}

json to_json(const SeriesForm& form) {
  const TimeSeriesOptions& o = form.options;
  json out = {{"columns", o.columns},
              {"target", o.target},
              {"time", o.time},
              {"window", o.window},
              {"horizon", o.horizon},
              {"stride", o.stride},
              {"missing", word(o.missing)},
              {"missing_words", o.missing_words},
              {"header", form_words::kHeaders[o.header ? *o.header ? 1 : 2 : 0]},
              {"format", to_json(o.format)},
              {"scaling", json::array()}};
  for (const ColumnScale& scale : o.scaling) out["scaling"].push_back(to_json(scale));
  if (o.step) out["step"] = {{"unit", word(form_words::kStepUnits, o.step->unit)}, {"size", o.step->size}, {"week", o.step->week}};
  return out;
}

json to_json(const TextForm& form) {
  const TextOptions& o = form.options;
  return {{"tokenizer", name(o.tokenizer)},
          {"seq_len", o.seq_len},
          {"tokens", o.vocabulary.tokens()},
          {"max_words", o.max_words},
          {"tokenizer_json", o.bpe ? json(o.bpe->json()) : json()}};
}

}  // namespace

std::string_view kind_of(const DataForm& form) { return form_words::kSources[form.source.index()]; }

DataForm Dataset::form() const {
  return {.input = untransformed().input_shape(),
          .target = target_shape(),
          .input_dtype = input_dtype(),
          .vocabulary = vocabulary(),
          .classes = classes(),
          .label_sequences = label_sequences(),
          .scale = target_scale()};
}

JsonValue to_json(const DataForm& form) {
  json source = std::visit([](const auto& f) { return to_json(f); }, form.source);
  source["kind"] = kind_of(form);
  return json{{"version", form_words::kFormVersion},
              {"input", sizes_of(form.input)},
              {"input_dtype", name(form.input_dtype)},
              {"vocabulary", form.vocabulary},
              {"target", sizes_of(form.target)},
              {"classes", form.classes},
              {"label_sequences", form.label_sequences},
              {"names", form.names},
              {"scale", to_json(form.scale)},
              {"source", source}};
}

namespace {

constexpr const char* kSubject = "the form of the training data";
constexpr int64_t kMostNames = 1 << 24, kMostValues = int64_t(1) << 40;  // bounds for a damaged file

bool is_texts(const json& list) {
  return list.is_array() && std::all_of(list.begin(), list.end(), [](const json& t) { return t.is_string(); });
}

std::vector<std::string> texts(const StoredJson& stored, const std::string& key) {
  const json& list = stored.get(key);
  stored.expect(is_texts(list) && int64_t(list.size()) <= kMostNames, key, "a list of texts");
  return list.get<std::vector<std::string>>();
}
std::string text(const StoredJson& stored, const std::string& key) {
  stored.expect(stored.get(key).is_string(), key, "a text");
  return stored.get(key).get<std::string>();
}
bool flag(const StoredJson& stored, const std::string& key) {
  stored.expect(stored.get(key).is_boolean(), key, "true or false");
  return stored.get(key).get<bool>();
}
char letter(const StoredJson& stored, const std::string& key) {
  const std::string given = text(stored, key);
  stored.expect(given.size() <= 1, key, "one character or none");
  return given.empty() ? '\0' : given[0];
}
std::vector<double> numbers(const StoredJson& stored, const std::string& key, size_t count) {
  const json& list = stored.get(key);
  const bool all = list.is_array() && std::all_of(list.begin(), list.end(), [](const json& v) { return v.is_number(); });
  stored.expect(all && (list.empty() || list.size() == count), key, "a list with a number for each input, or none");
  return list.get<std::vector<double>>();
}
template <class E, class Words>
E chosen(const StoredJson& stored, const std::string& key, const Words& words) {
  const auto found = std::find(std::begin(words), std::end(words), text(stored, key));
  stored.expect(found != std::end(words), key, "one of its words");
  return E(found - std::begin(words));
}
template <class E>
E chosen(const StoredJson& stored, const std::string& key) {
  return chosen<E>(stored, key, OptionNames<E>::kNames);
}

Shape shape_of(const StoredJson& stored, const std::string& key) {
  const json& list = stored.get(key);
  stored.expect(list.is_array() && list.size() < kMaxDims, key, "a list of sizes");
  Shape out;
  int64_t values = 1;
  for (const json& size : list) {
    const bool fits = size.is_number_integer() && size.get<int64_t>() >= 0 &&
                      (size.get<int64_t>() == 0 || values <= kMostValues / size.get<int64_t>());
    stored.expect(fits, key, "a list of sizes");
    out.push_back(size.get<int64_t>());
    values *= std::max<int64_t>(out[out.size() - 1], 1);
  }
  return out;
}

ColumnScale scale_of(const StoredJson& stored) {
  const ColumnScale out{stored.number("mean"), stored.number("std")};
  stored.expect(std::isfinite(out.mean) && std::isfinite(out.std) && out.std > 0, "std", "a positive number");
  return out;
}
std::vector<ColumnScale> scales_of(const StoredJson& stored, const std::string& key) {
  const json& list = stored.get(key);
  stored.expect(list.is_array() && !list.empty() && int64_t(list.size()) <= kMostNames, key, "a list of scales");
  std::vector<ColumnScale> out;
  for (const json& scale : list)
    stored.expect(scale.is_object(), key, "a list of scales"), out.push_back(scale_of(StoredJson(scale, kSubject)));
  return out;
}

CsvFormat format_of(const StoredJson& stored) {
  const bool blanks = stored.get("delimiter") == form_words::kBlanks;
  CsvFormat out{blanks ? kCsvBlanks : letter(stored, "delimiter"), letter(stored, "decimal"), letter(stored, "thousands")};
  if (stored.has("accounting")) out.accounting = flag(stored, "accounting");  // older files lack both
  if (stored.has("encoding")) out.encoding = chosen<TextEncoding>(stored, "encoding");
  return out;
}

TensorForm read_tensor(const StoredJson& stored) {
  TensorForm out{.bytes = ByteMeaning::numbers};  // older files lack it, and had no pixels
  if (stored.has("bytes")) out.bytes = chosen<ByteMeaning>(stored, "bytes", form_words::kByteMeanings);
  if (stored.has("low")) out.low = stored.number("low"), out.high = stored.number("high");
  stored.expect(!stored.has("low") || out.low <= out.high, "low", "at most high");
  if (stored.has("channels_last")) out.channels_last = flag(stored, "channels_last");
  return out;
}

ImageForm read_image(const StoredJson& stored) {
  ImageForm out;
  if (!stored.get("fit").is_null()) out.fit = chosen<PictureFit>(stored, "fit");
  out.background = chosen<Background>(stored, "background");
  out.on_side = flag(stored, "on_side");
  if (stored.has("exif")) out.exif = flag(stored, "exif");  // older files lack it
  return out;
}

CsvEncoding::Column column_of(const StoredJson& stored, size_t place) {
  static const auto& kParts = *new std::vector<std::string>{"days", "year", "month", "day", "weekday", "hour"};
  const json& column = stored.get("columns")[place];
  stored.expect(column.is_object(), "columns", "a list of columns");
  const StoredJson c(column, kSubject);
  CsvEncoding::Column out{text(c, "name"), texts(c, "categories"), texts(c, "date")};
  const auto known = [](const std::string& part) { return std::find(kParts.begin(), kParts.end(), part) != kParts.end(); };
  c.expect(std::all_of(out.date.begin(), out.date.end(), known), "date", "a list of parts of a date");
  if (c.has("zones") && !c.get("zones").is_null()) {  // older files lack it
    const json& zones = c.get("zones");
    c.expect(zones.is_array() && std::all_of(zones.begin(), zones.end(), [](const json& z) { return z.is_number(); }), "zones",
             "a list of hours");
    out.zones = zones.get<std::vector<double>>();
  }
  return out;
}

Tokenizer tokenizer_of(const StoredJson& stored) {
  try {
    return parse_tokenizer(text(stored, "tokenizer"));
  } catch (const ValueError&) { stored.expect(false, "tokenizer", "the name of a tokenizer"); }
  return {};
}

std::shared_ptr<const BpeTokenizer> bpe_of(const StoredJson& stored, Tokenizer tokenizer, int64_t vocabulary) {
  if (tokenizer != Tokenizer::bpe) return {};
  std::shared_ptr<const BpeTokenizer> out;
  try {
    out = std::make_shared<const BpeTokenizer>(BpeTokenizer::from_json(text(stored, "tokenizer_json")));
  } catch (const DataError& e) { fail<CheckpointError>("form", kSubject, " must hold a tokenizer: ", e.what()); }
  stored.expect(out->size() <= vocabulary, "tokenizer_json", "a tokenizer of at most the vocabulary's size");
  return out;
}

Vocabulary vocabulary_of(const StoredJson& stored, Tokenizer tokenizer, int64_t vocabulary) {
  std::vector<std::string> tokens = texts(stored, "tokens");
  const bool words = tokenizer == Tokenizer::character || tokenizer == Tokenizer::word;
  stored.expect(words ? int64_t(tokens.size()) == vocabulary : tokens.empty(), "tokens", "a text for each token of the vocabulary");
  try {
    return Vocabulary(std::move(tokens));
  } catch (const ValueError&) { stored.expect(false, "tokens", "a list without the same token twice"); }
  return {};
}

TokenRows token_rows_of(const StoredJson& stored, const DataForm& form) {
  TokenRowOptions o{.tokenizer = tokenizer_of(stored), .length = stored.integer("length", 1)};
  o.bpe = bpe_of(stored, o.tokenizer, form.vocabulary);
  stored.expect(form.input == Shape{o.length} && form.input_dtype == DType::i64, "length",
                "as long as the model's input of tokens");
  try {
    TokenRows out(o, vocabulary_of(stored, o.tokenizer, form.vocabulary));
    stored.expect(out.size() == form.vocabulary, "tokens", "as many as the vocabulary has");
    return out;
  } catch (const ValueError& e) { fail<CheckpointError>("form", kSubject, " must hold tokens of texts: ", e.what()); }
}

// Returns how many inputs the columns become.
size_t inputs_of(const CsvEncoding& e, bool one_hot) {
  size_t out = 0;
  for (const CsvEncoding::Column& c : e.columns)
    out += !c.date.empty() ? c.date.size() : !c.categories.empty() && one_hot ? c.categories.size() : 1;
  return out;
}

TableForm read_table(const StoredJson& stored, const DataForm& form) {
  CsvOptions o;
  CsvEncoding e;
  e.header = flag(stored, "header");
  if (stored.has("width")) e.width = stored.integer("width", 0);  // older files lack it
  o.header = e.header;
  o.format = format_of(stored.part("format"));
  o.classification = flag(stored, "classification");
  stored.expect(stored.get("columns").is_array() && !stored.get("columns").empty(), "columns", "a list of columns");
  for (size_t i = 0; i < stored.get("columns").size(); ++i) e.columns.push_back(column_of(stored, i));
  e.target = text(stored, "target");
  o.exclude = texts(stored, "exclude");
  o.date_order = chosen<CsvDateOrder>(stored, "date_order");
  o.date_parts = flag(stored, "date_parts");
  o.one_hot = flag(stored, "one_hot");
  o.missing = chosen<CsvMissing>(stored, "missing");
  o.missing_words = texts(stored, "missing_words");
  o.fill = stored.number("fill");
  if (stored.has("unknown")) o.unknown = text(stored, "unknown");
  o.standardize = flag(stored, "standardize");
  if (stored.has("texts") && !stored.get("texts").is_null()) {  // older files lack it
    e.tokens = token_rows_of(stored.part("texts"), form);
    o.tokens = e.tokens->options();
  }
  const size_t inputs = e.tokens ? 0 : inputs_of(e, o.one_hot);
  stored.expect(e.tokens || form.input == Shape{int64_t(inputs)}, "columns", "as many columns as inputs");
  stored.expect(o.classification == (form.classes > 0), "classification", "true for classes alone");
  e.fill = numbers(stored, "fills", inputs);
  e.mean = numbers(stored, "mean", inputs);
  e.std = numbers(stored, "std", inputs);
  stored.expect(e.mean.size() == e.std.size(), "std", "as long as mean");
  if (stored.has("low")) e.low = numbers(stored, "low", inputs), e.high = numbers(stored, "high", inputs);  // older files lack both
  stored.expect(e.low.size() == e.high.size(), "high", "as long as low");
  stored.expect(std::all_of(e.std.begin(), e.std.end(), [](double v) { return v > 0; }), "std", "a list of positive numbers");
  const bool fills = o.missing != CsvMissing::refuse && o.missing != CsvMissing::drop_row;
  stored.expect(!fills || e.tokens || e.fill.size() == inputs, "fills", "a list with a number for each input");
  if (o.classification) e.classes = form.names;
  o.encoding = std::move(e);
  return {std::move(o)};
}

SeriesForm read_series(const StoredJson& stored, const DataForm& form) {
  TimeSeriesOptions o;
  if (stored.has("column")) {  // from the time before several columns
    const std::string time = text(stored, "time");
    o.columns = o.target = {text(stored, "column")};
    if (!time.empty()) o.time = {time};
    o.scaling = {form.scale};
  } else {
    o.columns = texts(stored, "columns"), o.target = texts(stored, "target"), o.time = texts(stored, "time");
    o.missing = chosen<SeriesMissing>(stored, "missing");
    o.missing_words = texts(stored, "missing_words");
    o.scaling = scales_of(stored, "scaling");
  }
  if (stored.has("step")) {
    constexpr int64_t kAllDays = 127;  // a bit for each day of the week
    const StoredJson step = stored.part("step");
    o.step = {chosen<SeriesStep::Unit>(step, "unit", form_words::kStepUnits), step.number("size"),
              uint8_t(step.integer("week", 1) & kAllDays)};
    step.expect(std::isfinite(o.step->size) && o.step->size >= 0, "size", "a positive number");
  }
  o.window = stored.integer("window", 1);
  o.horizon = stored.integer("horizon", 1);
  o.stride = stored.integer("stride", 1);
  const size_t columns = o.columns.size(), targets = o.target.size();
  stored.expect(columns > 0 && form.input == Shape{o.window, int64_t(columns)}, "window", "as long as the model's input");
  const int64_t values = targets > 0 && o.horizon <= kMostValues / int64_t(targets) ? o.horizon * int64_t(targets) : 0;
  stored.expect(values > 0 && form.target == Shape{values}, "horizon", "as long as the model's target");
  for (const int64_t place : places_of_targets(o)) stored.expect(place < int64_t(columns), "target", "a list of its columns");
  stored.expect(o.scaling.size() == columns && form.scale.each.size() == (targets > 1 ? targets : 0), "scaling",
                "one for each column");
  if (const int header = chosen<int>(stored, "header", form_words::kHeaders); header > 0) o.header = header == 1;
  o.format = format_of(stored.part("format"));
  return {std::move(o)};
}

TextForm read_text(const StoredJson& stored, const DataForm& form) {
  TextOptions o;
  o.tokenizer = tokenizer_of(stored);
  o.seq_len = stored.integer("seq_len", 1);
  o.max_words = stored.integer("max_words", 0);
  o.bpe = bpe_of(stored, o.tokenizer, form.vocabulary);
  o.vocabulary = vocabulary_of(stored, o.tokenizer, form.vocabulary);
  o.vocab_size = form.vocabulary;
  return {std::move(o)};
}

}  // namespace

DataForm read_form(const JsonValue& form_json) {
  check<CheckpointError>(form_json->is_object(), "form", kSubject, " must be an object");
  const StoredJson stored(*form_json, kSubject);
  const int64_t version = stored.integer("version", 1);
  check<CheckpointError>(version <= form_words::kFormVersion, "form", "version ", version,
                         " of the data's form was written by a newer halfstep, this one reads version ", form_words::kFormVersion);
  DataForm out;
  out.input = shape_of(stored, "input");
  out.target = shape_of(stored, "target");
  const auto dtype = parse_dtype(text(stored, "input_dtype"));
  stored.expect(dtype == DType::f32 || dtype == DType::i64, "input_dtype", "float32 or int64");
  out.input_dtype = *dtype;
  out.vocabulary = stored.integer("vocabulary", 0);
  out.classes = stored.integer("classes", 0);
  out.label_sequences = flag(stored, "label_sequences");
  out.names = texts(stored, "names");
  stored.expect(out.classes == 0 || out.names.empty() || int64_t(out.names.size()) == out.classes, "names",
                "a name for each class");
  out.scale = scale_of(stored.part("scale"));
  if (stored.part("scale").has("each")) out.scale.each = scales_of(stored.part("scale"), "each");
  const StoredJson source = stored.part("source");
  switch (chosen<int>(source, "kind", form_words::kSources)) {
    case 1: out.source = read_image(source); break;
    case 2: out.source = read_table(source, out); break;
    case 3: out.source = read_series(source, out); break;
    case 4: out.source = read_text(source, out); break;
    default: out.source = read_tensor(source); break;
  }
  if (std::holds_alternative<ImageForm>(out.source))
    stored.expect(out.input.size() == 3 && (out.input[0] == 1 || out.input[0] == 3), "input", "[1, H, W] or [3, H, W]");
  return out;
}

}  // namespace halfstep
