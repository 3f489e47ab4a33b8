// SPDX-License-Identifier: Apache-2.0
// Checks JSON values against a schema.
#include <algorithm>
#include <cmath>
#include <limits>

#include "apps/schema/byte_count.h"
#include "apps/schema/interval.h"
#include "apps/schema/pattern.h"
#include "apps/schema/schema.h"
#include "apps/schema/suggest.h"
#include "framework/base/list_text.h"

namespace halfstep::app {
namespace {

std::string shown(const Json& value) {
  std::string text = value.dump();
  constexpr size_t kShownBytes = 60;
  if (text.size() <= kShownBytes) return text;
  size_t end = kShownBytes - 3;  // for "..."
  while ((text[end] & 0xc0) == 0x80) --end;  // do not split a character
  return text.substr(0, end) + "...";
}

class Checker {
 public:
  Checker(Issues& issues, const Section* document) : issues_(issues), document_(document) {}

  Json check_field(const Json& given, const Field& f, const std::string& path) {
    const Json& value = given.is_null() ? f.fallback : given;
    if (value.is_null()) {
      if (f.needed) issues_.error(path, "is missing: " + f.doc);
      return nullptr;
    }
    if (value.is_string() && !f.words.empty() && f.kind != FieldKind::text && contains(f.words, value)) return value;
    switch (f.kind) {
      case FieldKind::boolean: return value.is_boolean() ? value : report_wrong(value, f, path);
      case FieldKind::integer: return check_integer(value, f, path);
      case FieldKind::number: return value.is_number() && in_range(value, f) ? value : report_wrong(value, f, path);
      case FieldKind::text:
        if (f.also_integer && value.is_number_integer()) return check_integer(value, f, path);
        if (f.is_pattern && value.is_string()) return check_pattern(value, path);
        return value.is_string() && (f.words.empty() || contains(f.words, value)) ? value : report_wrong(value, f, path);
      case FieldKind::interval: return parse_interval(value) ? value : report_wrong(value, f, path);
      case FieldKind::byte_count: return parse_byte_count(value) ? value : report_wrong(value, f, path);
      case FieldKind::list: return check_list(value, f, path);
      case FieldKind::map: return check_map(value, f, path);
      case FieldKind::section: return check_switched(value, f, path);
      case FieldKind::component: return check_component(value, *f.family, f, path);
      case FieldKind::not_yet: break;
    }
    if (value != f.fallback && !(value.is_structured() && value.empty())) {
      const std::string only = f.fallback.is_null() ? "leave it out" : "only " + f.fallback.dump() + " works";
      issues_.error(path, f.doc + " is not supported yet; " + only, true);
    }
    return f.fallback;
  }

  Json check_section(const Json& value, const std::vector<Field>& fields, const std::vector<Field>& common, const std::string& what,
               const std::string& path, const Json& head = Json::object(), const Family* family = nullptr) {
    Json out = head;
    std::vector<std::string> known, offered;  // keys that are not supported yet are known, but not offered
    for (const auto& [key, ignored] : head.items()) known.push_back(key), offered.push_back(key);
    for (const auto* group : {&fields, &common}) {
      for (const Field& f : *group) {
        known.push_back(f.key);
        if (f.kind != FieldKind::not_yet) offered.push_back(f.key);
      }
    }
    for (const auto& [key, ignored] : value.items()) {
      if (!contains(known, key)) report_unknown(key, offered, what, path, family);
    }
    const auto is_own = [&](const std::string& key) {
      return std::any_of(fields.begin(), fields.end(), [&](const Field& f) { return f.key == key; });
    };
    for (const auto* group : {&fields, &common}) {
      for (const Field& f : *group) {
        if (group == &common && is_own(f.key)) continue;  // the type's own field overrides it
        const auto it = value.find(f.key);
        Json checked = check_field(it == value.end() ? Json() : *it, f, join_path(path, f.key));
        if (f.kind != FieldKind::not_yet) out[f.key] = std::move(checked);
      }
    }
    return out;
  }

 private:
  static bool contains(const std::vector<std::string>& words, const std::string& w) {
    return std::find(words.begin(), words.end(), w) != words.end();
  }
  static bool in_range(const Json& value, const Field& f) {
    const double v = value.get<double>();
    return std::isfinite(v) && (f.low_open ? v > f.low : v >= f.low) && (f.high_open ? v < f.high : v <= f.high);
  }

  Json report_wrong(const Json& value, const Field& f, const std::string& path) {
    std::string hint;
    if (value.is_string() && !f.words.empty()) hint = did_you_mean(value.get<std::string>(), f.words);
    const Field& item = f.item ? *f.item : f;
    if (value.is_number() && value.get<double>() > item.high && item.is_far(item.high))
      hint = "; at most " + std::to_string(int64_t(item.high));
    if (value.is_array() && f.family && f.family->find("Sequential"))
      hint = R"(; layers in a row are {"type": "Sequential", "layers": [...]})";
    issues_.error(path, "must be " + f.expects() + ", got " + shown(value) + hint);
    return nullptr;
  }

  Json check_integer(const Json& value, const Field& f, const std::string& path) {
    if (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>() &&
        std::abs(value.get<double>()) < 0x1p53) {
      return check_integer(Json(int64_t(value.get<double>())), f, path);  // accepts 1e4
    }
    const bool fits = !value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t(std::numeric_limits<int64_t>::max());
    return value.is_number_integer() && fits && in_range(value, f) ? value : report_wrong(value, f, path);
  }

  Json check_pattern(const Json& value, const std::string& path) {
    constexpr size_t kLongest = 1000;  // bytes of a pattern
    const std::string text = value.get<std::string>();
    if (text.size() > kLongest) {
      issues_.error(path, "must not be longer than " + std::to_string(kLongest) + " bytes");
    } else if (const Pattern compiled(text); !compiled.error().empty()) {
      issues_.error(path, "must be a regular expression, got " + value.dump() + ": " + compiled.error());
    }
    return value;
  }

  Json check_list(const Json& value, const Field& f, const std::string& path) {
    if (value.is_boolean() && f.also_boolean) return value;
    if (!value.is_array() && f.or_single && f.item->kind == FieldKind::component) return check_field(value, *f.item, path);
    if (!value.is_array()) {
      Issues discarded;  // the list's message already describes single items
      const Json item = f.or_single ? Checker(discarded, document_).check_field(value, *f.item, path) : Json();
      if (item.is_null()) return report_wrong(value, f, path);
      for (const Issue& issue : discarded.list())
        issues_.error(issue.path, issue.message, issue.at_key);  // right kind, other error
      return item;
    }
    if (int(value.size()) < f.min_items || int(value.size()) > f.max_items) return report_wrong(value, f, path);
    Json out = Json::array();
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i].is_null() && f.null_items) {
        out.push_back(nullptr);
      } else if (value[i].is_null()) {
        issues_.error(join_path(path, i), "must be " + f.item->expects() + ", got null");
      } else {
        out.push_back(check_field(value[i], *f.item, join_path(path, i)));
      }
    }
    return out;
  }

  Json check_map(const Json& value, const Field& f, const std::string& path) {
    if (!value.is_object() || int(value.size()) > f.max_items) return report_wrong(value, f, path);
    Json out = Json::object();
    for (const auto& [key, given] : value.items()) {
      if (given.is_null()) continue;
      const std::string at = join_path(path, key);
      if (f.keys_are_patterns) check_pattern(Json(key), at);
      out[key] = check_field(given, *f.item, at);
    }
    return out;
  }

  Json check_switched(const Json& value, const Field& f, const std::string& path) {
    if (f.switchable && value.is_boolean()) {
      return check_section(Json{{"enabled", value}}, f.section->fields, {}, f.section->name, path);
    }
    if (!f.short_for.empty() && value.is_string()) {
      return check_section(Json{{f.short_for, value}}, f.section->fields, {}, f.section->name, path);
    }
    if (value.is_object()) return check_section(value, f.section->fields, {}, f.section->name, path);
    issues_.error(path, "must be " + f.expects() + ", got " + shown(value) + word_of(*f.section, value, path));
    return nullptr;
  }
  // Returns the key of a section that takes a word which was given for the section itself, such as "amp": "bf16".
  static std::string word_of(const Section& section, const Json& value, const std::string& path) {
    if (!value.is_string()) return "";
    for (const Field& f : section.fields) {
      const std::string word = f.kind == FieldKind::text ? suggest(value.get<std::string>(), f.words) : "";
      if (!word.empty()) return "; did you mean " + join_path(path, f.key) + ", \"" + word + "\"?";
    }
    return "";
  }

  Json check_component(const Json& value, const Family& family, const Field& f, const std::string& path) {
    std::vector<std::string> types;
    for (const Component& c : family.components) types.push_back(c.type);
    const Json object = value.is_string() ? Json{{"type", value}} : value;
    if (!object.is_object()) return report_wrong(value, f, path);
    const auto type = object.find("type");
    const std::string type_path = value.is_string() ? path : join_path(path, "type");
    if (type == object.end() || !type->is_string()) {
      std::string hint;
      for (const auto& [key, ignored] : object.items()) {
        if (!issues_.full() && hint.empty() && suggest(key, {"type"}) == "type") hint = "; \"" + key + "\" should be \"type\"";
      }
      issues_.error(type_path, "is missing: the kind of " + family.what + ", one of " + one_of(types) + hint);
      return nullptr;
    }
    const std::string name = type->get<std::string>();
    const Component* found = family.find(name);
    if (!found) {
      if (contains(family.cpp_only, name)) {
        issues_.error(type_path, name + " takes several tensors, where a config has one: it is for C++ only (docs/layers.md)");
      } else {
        std::string hint = in_place_of(family.what, name, "");
        if (hint.empty()) hint = did_you_mean(name, types);
        issues_.error(type_path, "unknown " + family.what + " " + shown(name) + (hint.empty() ? "; use " + one_of(types) : hint));
      }
      return nullptr;
    }
    return check_section(object, found->fields, family.common, found->type, path, Json{{"type", name}}, &family);
  }

  // family: of the component that has the key; null for a section.
  void report_unknown(const std::string& key, const std::vector<std::string>& keys, const std::string& what,
                      const std::string& path, const Family* family) {
    if (issues_.full()) return issues_.error("", "");
    std::string hint = family ? in_place_of(family->what, what, key) : "", owners;
    if (hint.empty()) hint = did_you_mean(key, keys);
    if (hint.empty() && family) owners = owners_of(key, *family);
    if (hint.empty() && owners.empty()) hint = suggest_elsewhere(key);
    if (hint.empty() && keys.empty()) hint = "; " + what + " takes none";
    if (hint.empty()) {
      hint = "; " + (what.empty() ? "a config" : what) + " takes ";
      for (size_t i = 0; i < keys.size(); ++i) hint += (i ? ", " : "") + keys[i];
    }
    issues_.error(join_path(path, key), (what.empty() ? "unknown key" : "unknown key of " + what) + owners + hint, true);
  }
  // Returns the other components that take it: "; LBFGS and AdamW do". Keys of data sets have their like in the sections of data.
  static std::string owners_of(const std::string& key, const Family& family) {
    if (family.what == "data set") return "";
    std::string out;
    int others = -2;  // beyond the two that are named
    for (const Component& c : family.components) {
      if (std::none_of(c.fields.begin(), c.fields.end(), [&](const Field& f) { return f.key == key; })) continue;
      if (++others <= 0) out += (out.empty() ? ", which " : ", ") + c.type;
    }
    if (out.empty()) return "";
    return out + (others > 0 ? " and " + std::to_string(others) + (others == 1 ? " other take" : " others take")
                             : others == 0 ? " take" : " takes");
  }

  // Suggests a key of another section, also for another program's name.
  std::string suggest_elsewhere(const std::string& key) const {
    if (!document_) return "";
    std::vector<std::pair<std::string, std::string>> keys = {
        {"optimizer", "lr"}, {"optimizer", "momentum"}, {"optimizer", "weight_decay"}, {"scheduler", "warmup_steps"}};
    collect_keys(*document_, "", keys);
    for (const auto& [section, name] : keys) {
      if (name == key) return "; did you mean \"" + join_path(section, name) + "\"?";
    }
    for (const auto& [section, name] : keys) {
      const std::string found = suggest(key, {name});
      if (found.empty()) continue;
      const int distance = edit_distance(key, name);
      const bool synonym = distance > std::max(1, int(key.size()) / 3);  // farther than nearest_name() goes
      if (distance <= 1 || synonym) return "; did you mean \"" + join_path(section, name) + "\"?";
    }
    return "";
  }
  static void collect_keys(const Section& in, const std::string& path, std::vector<std::pair<std::string, std::string>>& out) {
    for (const Field& f : in.fields) {
      if (f.kind == FieldKind::not_yet) continue;
      out.emplace_back(path, f.key);
      if (f.section) collect_keys(*f.section, join_path(path, f.key), out);
    }
  }

  Issues& issues_;
  const Section* document_;  // of the whole document, or null
};

}  // namespace

Json validate(const Json& value, const Section& section, const std::string& path, Issues& issues) {
  if (!value.is_object()) {
    issues.error(path, "must be an object, got " + shown(value));
    return Checker(issues, &section).check_section(Json::object(), section.fields, {}, section.name, path);
  }
  return Checker(issues, &section).check_section(value, section.fields, {}, section.name, path);
}

Json validate(const Json& value, const Field& field, const std::string& path, Issues& issues) {
  return Checker(issues, nullptr).check_field(value, field, path);
}

}  // namespace halfstep::app
