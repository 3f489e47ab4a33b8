// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/option_fields.h"

#include <algorithm>
#include <cmath>

namespace halfstep::app {
namespace {

Json json_of(const OptionValue& value, const OptionFacts& o) {
  if (const auto* const flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* const integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* const number = std::get_if<double>(&value)) return *number;
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  Json out;
  if (const auto* const numbers = std::get_if<std::vector<double>>(&value)) {
    if (o.fewest == 1 && numbers->size() == 1) return numbers->front();
    for (const double x : *numbers) out.push_back(x);
  }
  if (const auto* const sizes = std::get_if<Sizes>(&value)) {
    if (sizes->is_number()) return sizes->values()[0];
    for (const int64_t x : sizes->values()) out.push_back(x);
  }
  return out;  // null if nothing is given
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

Field& field_of(Component& component, std::string_view key) {
  const auto found = std::find_if(component.fields.begin(), component.fields.end(), [&](const Field& f) { return f.key == key; });
  check<ConfigError>(found != component.fields.end(), component.type, "has no field ", key);
  return *found;
}

Field field_of(const OptionFacts& o, const OptionValue& otherwise, const FieldRules& rules) {
  const Json fallback = o.needed || o.zero_is_none ? Json() : json_of(otherwise, o);
  Field f;
  switch (o.kind) {
    case OptionKind::flag: f = boolean(o.name, fallback, o.doc); break;
    case OptionKind::whole: f = bounded(integer(o.name, fallback, o.doc), o, rules.most); break;
    case OptionKind::number: f = bounded(number(o.name, fallback, o.doc), o, rules.most); break;
    case OptionKind::text: f = o.words.empty() ? text(o.name, fallback, o.doc) : choice(o.name, fallback, o.words, o.doc); break;
    case OptionKind::sizes: f = sizes(o.name, fallback, rules.dims, int64_t(o.least), o.doc); break;
    case OptionKind::tensor:
      return list(o.name, nullptr, bounded(number("", nullptr, "weight"), o, rules.most), o.doc).items(1, 1 << 20);
    case OptionKind::numbers:
      f = list(o.name, fallback, bounded(o.whole ? integer("", nullptr, "number") : number("", nullptr, "number"), o, rules.most),
               o.doc);
      f = f.items(o.fewest ? o.fewest : o.count ? o.count : 1, o.count ? o.count : 1 << 20);
      if (o.fewest == 1) f = f.or_one();
      break;
  }
  f.needed = o.needed;
  if (o.kind == OptionKind::text) return f;
  for (const std::string& word : o.words) f = f.or_word(word);
  return f;
}

OptionValue value_in(const Json& json, const OptionFacts& o) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string())
    return o.kind == OptionKind::text || o.kind == OptionKind::sizes ? OptionValue(json.get<std::string>()) : OptionValue();
  if (json.is_number())
    return o.kind == OptionKind::whole || o.kind == OptionKind::sizes ? OptionValue(json.get<int64_t>())
                                                                      : OptionValue(json.get<double>());
  if (!json.is_array()) return {};
  if (o.kind == OptionKind::numbers || o.kind == OptionKind::tensor) return json.get<std::vector<double>>();
  return Sizes(Dims(json.get<std::vector<int64_t>>()));
}

}  // namespace halfstep::app
