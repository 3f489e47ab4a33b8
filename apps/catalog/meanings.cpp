// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/meanings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/number_text.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/bpe.h"
#include "framework/io/checkpoint/stored_json.h"
#include "framework/io/files/printable.h"

namespace halfstep::app {
namespace {

constexpr double kOtherMean = 0.2, kOtherDeviation = 1.2;  // in deviations, and as a factor: data that grew move less

struct NamedNumbers {
  std::string what;
  std::vector<std::string> names;  // in the order of their numbers; empty: without names
  int64_t width = 0;
  bool are_spellings = true;  // whether another spelling is the same name
};

std::vector<std::string> tokens_of(const BpeTokenizer& bpe) {
  std::vector<std::string> out;
  for (int64_t i = 0; i < bpe.size(); ++i) try {
      out.push_back(bpe.token(i));
    } catch (const IndexError&) { out.emplace_back(); }  // no token has this number
  return out;
}

// Returns the table's inputs by name, and the categories of those that are one input for all their categories.
std::vector<NamedNumbers> names_of_table(const CsvOptions& options, const DataForm& form) {
  const CsvEncoding encoding = options.encoding.value_or(CsvEncoding());
  if (encoding.tokens) {
    const auto& bpe = encoding.tokens->options().bpe;
    return {{"token", bpe ? tokens_of(*bpe) : encoding.tokens->vocabulary().tokens(), form.vocabulary, false}};
  }
  std::vector<NamedNumbers> out{{"input", {}, numel(form.input), true}};
  for (size_t i = 0; i < encoding.columns.size(); ++i) {
    const CsvEncoding::Column& column = encoding.columns[i];
    const std::string name = encoding.header ? column.name : std::to_string(i);
    if (!column.date.empty()) {
      for (const std::string& part : column.date) out[0].names.push_back(name + "." + part);
    } else if (!column.categories.empty() && options.one_hot) {
      for (const std::string& category : column.categories) out[0].names.push_back(name + "=" + category);
    } else {
      out[0].names.push_back(name);
      if (!column.categories.empty()) out.push_back({"category of \"" + name + '"', column.categories, numel(form.input), true});
    }
  }
  return out;
}

std::vector<NamedNumbers> numbered_names(const DataForm& form) {
  std::vector<NamedNumbers> out;
  if (form.classes > 0) out.push_back({"class", form.names, form.classes, true});
  if (const auto* const text = std::get_if<TextForm>(&form.source))
    out.push_back(
        {"token", text->options.bpe ? tokens_of(*text->options.bpe) : text->options.vocabulary.tokens(), form.vocabulary, false});
  if (const auto* const series = std::get_if<SeriesForm>(&form.source)) {
    const TimeSeriesOptions& o = series->options;
    out.push_back({"input", o.columns, std::ssize(o.columns), true});
    out.push_back({"target", o.target, numel(form.target), true});
  }
  if (const auto* const table = std::get_if<TableForm>(&form.source))
    for (NamedNumbers& names : names_of_table(table->options, form)) out.push_back(std::move(names));
  return out;
}

// Returns whether columns have names besides their indices.
bool has_header(const DataForm& form) {
  const auto* const table = std::get_if<TableForm>(&form.source);
  if (const auto* const series = std::get_if<SeriesForm>(&form.source))
    return std::any_of(series->options.columns.begin(), series->options.columns.end(),
                       [](const std::string& name) { return name.find_first_not_of("0123456789") != std::string::npos; });
  return !table || !table->options.encoding || table->options.encoding->header;
}

std::optional<OtherName> first_other(const NamedNumbers& then, const NamedNumbers& now) {
  const auto key = [&](const std::string& name) { return then.are_spellings ? label_key(name) : name; };
  const size_t both = std::min(then.names.size(), now.names.size());
  size_t first = 0;
  while (first < both && (then.names[first] == now.names[first] || key(then.names[first]) == key(now.names[first]))) ++first;
  if (first == both) return {};
  OtherName out{then.what, int64_t(first), then.names[first], now.names[first], false, then.width};
  std::map<std::string, size_t> numbers;
  for (size_t i = 0; i < then.names.size(); ++i) numbers.emplace(key(then.names[i]), i);
  for (size_t i = 0; i < now.names.size() && !out.is_moved; ++i) {
    const auto found = numbers.find(key(now.names[i]));
    out.is_moved = found != numbers.end() && found->second != i;
  }
  return out;
}

std::string describe(const ColumnScale& now, const ColumnScale& then) {
  return joined("mean ", general_text(now.mean, 4), " and deviation ", general_text(now.std, 4), ", before ",
                general_text(then.mean, 4), " and ", general_text(then.std, 4));
}

std::string other_input_scale(const DataForm& then, const DataForm& now) {
  const auto *const a = std::get_if<TableForm>(&then.source), *const b = std::get_if<TableForm>(&now.source);
  if (a && b && a->options.encoding && b->options.encoding) {
    const CsvEncoding &x = *a->options.encoding, &y = *b->options.encoding;
    const std::vector<NamedNumbers> names = names_of_table(b->options, now);
    for (size_t i = 0; i < std::min(x.mean.size(), y.mean.size()); ++i)
      if (const ColumnScale was{x.mean[i], x.std[i]}, is{y.mean[i], y.std[i]}; is_other_scale(was, is))
        return joined("input \"", printable(i < names[0].names.size() ? names[0].names[i] : std::to_string(i)), "\" has ",
                      describe(is, was));
    if (x.mean.empty() != y.mean.empty()) return joined("inputs are ", y.mean.empty() ? "not " : "", "standardized now");
  }
  const auto *const s = std::get_if<SeriesForm>(&then.source), *const t = std::get_if<SeriesForm>(&now.source);
  if (!s || !t) return "";
  for (size_t i = 0; i < std::min(s->options.scaling.size(), t->options.scaling.size()); ++i)
    if (is_other_scale(s->options.scaling[i], t->options.scaling[i]))
      return joined("input \"", printable(t->options.columns[i]), "\" has ",
                    describe(t->options.scaling[i], s->options.scaling[i]));
  return "";
}

// Returns the first Normalize with numbers, null if there is none.
Json normalize_in(const Json& transforms) {
  for (const Json& t : transforms)
    if (t.is_object() && t.value("type", "") == "Normalize" && t.contains("mean") && t["mean"].is_array() && t.contains("std") &&
        t["std"].is_array() && t["mean"].size() == t["std"].size())
      return t;
  return nullptr;
}

}  // namespace

StoredData read_stored_data(const nlohmann::json& json) {
  const StoredJson data(json, "data.json");
  data.part("form");
  const auto& transforms = data.get("transforms");
  data.expect(transforms.is_array(), "transforms", "a list");
  return StoredData{read_form(data.get("form")), Json(transforms)};
}

std::string OtherName::text() const {
  return joined(what, ' ', number, " is \"", printable(now), "\", before \"", printable(then), '"');
}

std::vector<OtherName> other_names(const DataForm& then, const DataForm& now) {
  std::vector<OtherName> out;
  const std::vector<NamedNumbers> before = numbered_names(then), after = numbered_names(now);
  for (const NamedNumbers& a : before)
    for (const NamedNumbers& b : after) {
      if (a.what != b.what || (a.what != "class" && has_header(then) != has_header(now))) continue;
      if (const auto found = first_other(a, b)) out.push_back(*found);
    }
  return out;
}

bool is_other_scale(const ColumnScale& then, const ColumnScale& now) {
  if (then.each.size() != now.each.size()) return true;
  for (size_t i = 0; i < then.each.size(); ++i)
    if (is_other_scale(then.each[i], now.each[i])) return true;
  if (!then.each.empty()) return false;
  return std::abs(now.mean - then.mean) > kOtherMean * then.std || now.std > kOtherDeviation * then.std ||
         then.std > kOtherDeviation * now.std;
}

std::string other_scale(const StoredData& then, const StoredData& now) {
  if (std::string input = other_input_scale(then.form, now.form); !input.empty()) return input;
  if (is_other_scale(then.form.scale, now.form.scale)) {
    const std::string numbers = then.form.scale.each.empty() && now.form.scale.each.empty()
                                    ? "the target has " + describe(now.form.scale, then.form.scale)
                                    : std::string("the targets have other means and deviations");
    return numbers;
  }
  const Json before = normalize_in(then.transforms), after = normalize_in(now.transforms);
  if (before.is_null() || after.is_null() || before["mean"].size() != after["mean"].size()) return "";
  for (size_t i = 0; i < before["mean"].size(); ++i) {
    const ColumnScale was{before["mean"][i], before["std"][i]}, is{after["mean"][i], after["std"][i]};
    if (is_other_scale(was, is)) return joined("Normalize has ", describe(is, was), " for channel ", i);
  }
  return "";
}

}  // namespace halfstep::app
