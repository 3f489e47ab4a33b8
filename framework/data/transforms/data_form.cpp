// SPDX-License-Identifier: Apache-2.0
#include "framework/data/transforms/data_form.h"

#include <array>
#include <nlohmann/json.hpp>

#include "framework/data/tokens/bpe.h"
#include "framework/data/transforms/data_form_words.h"

namespace halfstep {
namespace {

using nlohmann::json;

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

json to_json(const TargetScale& s) {
  json out = {{"mean", s.mean}, {"std", s.std}};
  for (const TargetScale& one : s.each) out["each"].push_back(to_json(one));
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
    columns.push_back({{"name", c.name}, {"categories", c.categories}, {"date", c.date}});
  return {{"header", e.header},
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
              {"header", word(form_words::kHeaders, o.header)},
              {"format", to_json(o.format)},
              {"scaling", json::array()}};
  for (const TargetScale& of : o.scaling) out["scaling"].push_back(to_json(of));
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

}  // namespace halfstep
