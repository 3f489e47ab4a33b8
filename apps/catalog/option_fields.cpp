// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/option_fields.h"

#include <algorithm>
#include <cmath>

namespace halfstep::app {
namespace {

constexpr int kMaxListed = 1 << 20;  // numbers in a list without a bound of its own

Json json_of(const OptionValue& value, const OptionFacts& o) {
  if (const auto* const flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* const integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* const number = std::get_if<double>(&value)) return *number;
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  if (const auto* const texts = std::get_if<std::vector<std::string>>(&value)) return *texts;
  Json out;
  if (const auto* const numbers = std::get_if<std::vector<double>>(&value)) {
    if (o.fewest == 1 && numbers->size() == 1) return numbers->front();
    if (numbers->empty() && !o.count && !o.fewest) return Json::array();
    for (const double x : *numbers) out.push_back(x);
  }
  if (const auto* const sizes = std::get_if<Sizes>(&value)) {
    if (sizes->is_number()) return sizes->values()[0];
    for (const int64_t x : sizes->values()) out.push_back(x);
  }
  return out;  // null if nothing is given
}

// Returns the words of a text, first that for nothing.
std::vector<std::string> words_of(const OptionFacts& o) {
  std::vector<std::string> out = o.words;
  if (!o.none.empty()) out.insert(out.begin(), o.none);
  return out;
}

Field bounded(Field f, const OptionFacts& o, double most) {
  if (o.above_least)
    f = f.above(o.least);
  else if (std::isfinite(o.least))
    f = f.at_least(o.least);
  if (std::isfinite(o.most)) return o.below_most ? f.below(o.most) : f.at_most(o.most);
  return f.kind == FieldKind::integer && std::isfinite(o.least) ? f.at_most(most) : f;
}

}  // namespace

Field sizes(std::string key, Json fallback, int count, int64_t least, std::string doc) {
  const Field item = integer("", nullptr, "size").at_least(double(least)).at_most(kMaxSample);
  return list(std::move(key), std::move(fallback), item, std::move(doc))
      .items(count ? count : 1, count ? count : kMaxDims)
      .or_one();
}

std::vector<Field> joined_fields(std::vector<std::vector<Field>> lists) {
  std::vector<Field> out;
  for (std::vector<Field>& fields : lists)
    for (Field& f : fields) out.push_back(std::move(f));
  return out;
}

Field& field_of(Component& component, std::string_view key) {
  const auto found = std::find_if(component.fields.begin(), component.fields.end(), [&](const Field& f) { return f.key == key; });
  check<ConfigError>(found != component.fields.end(), component.type, "has no field ", key);
  return *found;
}

Field field_of(const OptionFacts& o, const OptionValue& default_value, const FieldRules& rules) {
  const bool none = o.needed || o.zero_is_none || std::holds_alternative<std::monostate>(default_value);
  const Json fallback = !none ? json_of(default_value, o) : o.none.empty() ? Json() : Json(o.none);
  Field f;
  switch (o.kind) {
    case OptionKind::flag: f = boolean(o.name, fallback, o.doc); break;
    case OptionKind::whole: f = bounded(integer(o.name, fallback, o.doc), o, rules.most); break;
    case OptionKind::number: f = bounded(number(o.name, fallback, o.doc), o, rules.most); break;
    case OptionKind::text:
      f = o.words.empty() ? text(o.name, fallback, o.doc) : choice(o.name, fallback, words_of(o), o.doc);
      break;
    case OptionKind::texts: f = list(o.name, fallback, text("", nullptr, o.item), o.doc); break;
    case OptionKind::sizes:
      f = sizes(o.name, fallback, rules.dims, std::isfinite(o.least) ? int64_t(o.least) : -kMaxSample, o.doc);
      break;
    case OptionKind::tensor:
      return list(o.name, nullptr, bounded(number("", nullptr, "weight"), o, rules.most), o.doc).items(1, kMaxListed);
    case OptionKind::numbers:
      f = list(o.name, fallback, bounded(o.whole ? integer("", nullptr, o.item) : number("", nullptr, o.item), o, rules.most),
               o.doc);
      if (o.count || o.fewest || fallback != Json::array())
        f = f.items(o.fewest ? o.fewest : o.count ? o.count : 1, o.count ? o.count : kMaxListed);
      break;
  }
  if (o.kind == OptionKind::numbers || o.kind == OptionKind::texts) f.or_single = o.fewest == 1;
  f.needed = o.needed;
  if (o.kind == OptionKind::text) {
    f.also_integer = o.by_index;
    return f;
  }
  if (o.by_index) {
    Field item = *f.item;
    item.also_integer = true;
    f.item = std::make_shared<const Field>(item);
  }
  if (!o.none.empty()) f = f.or_word(o.none);
  for (const std::string& word : o.words) f = f.or_word(word);
  return f;
}

std::vector<std::string> texts_in(const Json& json) {
  if (json.is_number()) return {std::to_string(json.get<int64_t>())};
  if (!json.is_array()) return {json.get<std::string>()};
  std::vector<std::string> out;
  for (const Json& item : json) out.push_back(texts_in(item)[0]);
  return out;
}

OptionValue value_in(const Json& json, const OptionFacts& o) {
  const bool texts = o.kind == OptionKind::text || o.kind == OptionKind::texts;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string() && !o.none.empty() && json == o.none) return {};
  if (json.is_string()) return texts || o.kind == OptionKind::sizes ? OptionValue(json.get<std::string>()) : OptionValue();
  if (texts && json.is_number()) return texts_in(json)[0];
  if (o.kind == OptionKind::texts && json.is_array()) return texts_in(json);
  if (json.is_number())
    return o.kind == OptionKind::whole || o.kind == OptionKind::sizes ? OptionValue(json.get<int64_t>())
                                                                      : OptionValue(json.get<double>());
  if (!json.is_array()) return {};
  if (o.kind == OptionKind::numbers || o.kind == OptionKind::tensor) return json.get<std::vector<double>>();
  return Sizes(Dims(json.get<std::vector<int64_t>>()));
}

}  // namespace halfstep::app
