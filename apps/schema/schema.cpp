// SPDX-License-Identifier: Apache-2.0
#include "apps/schema/schema.h"

#include <algorithm>

#include "apps/schema/suggest.h"
#include "framework/base/check.h"
#include "framework/base/text_stream.h"

namespace halfstep::app {
namespace {

// Returns a bound with up to 12 digits, so that 1e6 is 1000000.
std::string bound_text(double v) {
  TextWriter out;
  out.precision(12);
  out << v;
  return out.str();
}

// Returns the allowed numbers as text: " in [0, 1)", " >= 1", or nothing.
std::string range_text(const Field& f) {
  const bool low = f.low > -std::numeric_limits<double>::infinity();
  const bool high = f.high < std::numeric_limits<double>::infinity() && !(low && f.is_far(f.high));
  if (low && high)
    return std::string(" in ") + (f.low_open ? "(" : "[") + bound_text(f.low) + ", " + bound_text(f.high) +
           (f.high_open ? ")" : "]");
  if (low) return (f.low_open ? " > " : " >= ") + bound_text(f.low);
  if (high) return (f.high_open ? " < " : " <= ") + bound_text(f.high);
  return "";
}

// Returns the items of a list as text: "integers >= 1".
std::string plural_text(const Field& item) {
  switch (item.kind) {
    case FieldKind::integer: return "integers" + range_text(item);
    case FieldKind::number: return "numbers" + range_text(item);
    case FieldKind::section: return "objects";
    case FieldKind::text:
      if (item.is_pattern) return "regular expressions";
      return item.words.empty() ? (item.also_integer ? "strings or integers" : "strings") : "strings, each " + one_of(item.words);
    case FieldKind::component: return item.family->what + "s";
    default: return "entries, each " + item.expects();
  }
}

std::string with_article(const std::string& noun) {
  return (std::string_view("aeiou").find(noun[0]) == std::string_view::npos ? "a " : "an ") + noun;
}

Field make_field(std::string key, FieldKind kind, Json fallback, std::string doc) {
  Field f{.key = std::move(key), .kind = kind, .doc = std::move(doc)};
  f.fallback = std::move(fallback);
  return f;
}

}  // namespace

Field Field::required() const {
  Field f = *this;
  f.needed = true;
  return f;
}
Field Field::above(double bound) const {
  Field f = *this;
  f.low = bound;
  f.low_open = true;
  return f;
}
Field Field::at_least(double bound) const {
  Field f = *this;
  f.low = bound;
  f.low_open = false;
  return f;
}
Field Field::from_input_dim(int dim) const {
  Field f = *this;
  f.from_input = dim;
  return f;
}
Field Field::or_target_width() const {
  Field f = or_word("auto");
  f.from_target = true;
  return f;
}
Field Field::or_vocabulary() const {
  Field f = or_word("auto");
  f.from_tokens = true;
  return f;
}
Field Field::or_streams() const {
  Field f = or_word("auto");
  f.from_streams = true;
  return f;
}
Field Field::below(double bound) const {
  Field f = *this;
  f.high = bound;
  f.high_open = true;
  return f;
}
Field Field::at_most(double bound) const {
  Field f = *this;
  f.high = bound;
  f.high_open = false;
  return f;
}
Field Field::or_word(std::string word) const {
  Field f = *this;
  f.words.push_back(std::move(word));
  return f;
}
Field Field::items(int least, int most) const {
  Field f = *this;
  f.min_items = least;
  f.max_items = most;
  return f;
}

Field Field::or_one() const {
  Field f = *this;
  f.or_single = true;
  return f;
}
Field Field::or_boolean() const {
  Field f = *this;
  f.also_boolean = true;
  return f;
}
Field Field::or_text(std::string key) const {
  Field f = *this;
  f.short_for = std::move(key);
  return f;
}
Field Field::with_nulls() const {
  Field f = *this;
  f.null_items = true;
  return f;
}

bool Field::is_far(double bound) const { return bound >= kMaxCount && kind == FieldKind::integer; }

std::string Field::expects() const {
  std::string out;
  switch (kind) {
    case FieldKind::boolean: out = "true or false"; break;
    case FieldKind::integer: out = "an integer" + range_text(*this); break;
    case FieldKind::number: out = "a number" + range_text(*this); break;
    case FieldKind::text:
      if (is_pattern) return "a regular expression";
      return words.empty() ? (also_integer ? "a string or an integer" : "a string") : one_of(words);
    case FieldKind::interval: return "a number of steps, \"N steps\", \"N epochs\", \"N min\", \"N s\" or \"never\"";
    case FieldKind::byte_count: return "a number of bytes >= 1, \"N MB\", \"N GB\", \"N MiB\" or \"N GiB\"";
    case FieldKind::list:
      out = std::string(also_boolean ? "true or false or " : "") +
            (or_single ? (item->family ? with_article(item->family->what) : item->expects()) + " or " : "") + "a list of ";
      if (min_items == max_items) out += std::to_string(min_items) + " ";
      if (min_items == 1 && max_items > 1) out += "one or more ";
      if (min_items == 0 && max_items > 1 && max_items < kNoMaxItems) out += "at most " + std::to_string(max_items) + " ";
      out += plural_text(*item);
      if (null_items) out += ", null for some";
      break;
    case FieldKind::map:
      return joined("an object of at most ", max_items, keys_are_patterns ? " regular expressions" : " names", ", each with ",
                    item->expects());
    case FieldKind::section:
      out = switchable ? "true, false or an object" : short_for.empty() ? "an object" : "a string or an object";
      break;
    case FieldKind::component: out = "the name of " + with_article(family->what) + " or an object with \"type\""; break;
    case FieldKind::not_yet: return fallback.is_null() ? "left out" : fallback.dump();
  }
  for (const std::string& word : words) out += " or \"" + word + "\"";
  return out;
}

Field boolean(std::string key, Json fallback, std::string doc) {
  return make_field(std::move(key), FieldKind::boolean, std::move(fallback), std::move(doc));
}
Field integer(std::string key, Json fallback, std::string doc) {
  return make_field(std::move(key), FieldKind::integer, std::move(fallback), std::move(doc));
}
Field number(std::string key, Json fallback, std::string doc) {
  return make_field(std::move(key), FieldKind::number, std::move(fallback), std::move(doc));
}
Field text(std::string key, Json fallback, std::string doc) {
  return make_field(std::move(key), FieldKind::text, std::move(fallback), std::move(doc));
}
Field pattern(std::string key, Json fallback, std::string doc) {
  Field f = text(std::move(key), std::move(fallback), std::move(doc));
  f.is_pattern = true;
  return f;
}
Field interval(std::string key, Json fallback, std::string doc) {
  return make_field(std::move(key), FieldKind::interval, std::move(fallback), std::move(doc));
}
Field byte_count(std::string key, Json fallback, std::string doc) {
  return make_field(std::move(key), FieldKind::byte_count, std::move(fallback), std::move(doc));
}
Field not_yet(std::string key, Json accepted, std::string doc) {
  return make_field(std::move(key), FieldKind::not_yet, std::move(accepted), std::move(doc));
}
Field choice(std::string key, Json fallback, std::vector<std::string> words, std::string doc) {
  Field f = text(std::move(key), std::move(fallback), std::move(doc));
  f.words = std::move(words);
  return f;
}
Field list(std::string key, Json fallback, Field item, std::string doc) {
  Field f = make_field(std::move(key), FieldKind::list, std::move(fallback), std::move(doc));
  f.item = std::make_shared<const Field>(std::move(item));
  return f;
}
Field map(std::string key, Field value, bool keys_are_patterns, std::string doc) {
  Field f = make_field(std::move(key), FieldKind::map, Json::object(), std::move(doc));
  f.item = std::make_shared<const Field>(std::move(value));
  f.keys_are_patterns = keys_are_patterns;
  f.max_items = kMaxMapItems;
  return f;
}
Field optional_section(std::string key, const Section& section, std::string doc) {
  Field f = make_field(std::move(key), FieldKind::section, nullptr, std::move(doc));
  f.section = &section;
  return f;
}
Field section(std::string key, const Section& section, std::string doc) {
  Field f = optional_section(std::move(key), section, std::move(doc));
  f.fallback = Json::object();
  return f;
}
Field component(std::string key, const Family& family, std::string doc) {
  Field f = make_field(std::move(key), FieldKind::component, nullptr, std::move(doc));
  f.family = &family;
  return f;
}

const Field* Section::find(std::string_view key) const {
  const auto it = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.key == key; });
  return it == fields.end() ? nullptr : &*it;
}

const Component* Family::find(std::string_view type) const {
  const auto it = std::find_if(components.begin(), components.end(), [&](const Component& c) { return c.type == type; });
  return it == components.end() ? nullptr : &*it;
}

}  // namespace halfstep::app
