// SPDX-License-Identifier: Apache-2.0
#include "apps/config/explain.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>
#include <vector>

#include "apps/catalog/rows/dataset_examples.h"
#include "apps/config/sections.h"
#include "apps/schema/suggest.h"
#include "framework/base/check.h"

namespace halfstep::app {
namespace {

constexpr size_t kWidth = 100;     // columns of a line
constexpr size_t kLabelWidth = 9;  // columns of "default  "

// A place of a key, with the types that have it if it is a component's.
struct KeyPlace {
  std::string path;
  const Field* field = nullptr;
  std::vector<std::string> types;
  const Family* family = nullptr;  // of the types
};

const Family* family_of(const Field& f) { return f.family ? f.family : f.item ? family_of(*f.item) : nullptr; }
const Section* section_of(const Field& f) { return f.section ? f.section : f.item ? section_of(*f.item) : nullptr; }

bool same_text(const Field& a, const Field& b) { return a.expects() == b.expects() && a.doc == b.doc && a.fallback == b.fallback; }

// All keys of a config: each path once, or once for each text if types explain it differently; the keys of a family below the first
// key that takes it.
class KeyIndex {
 public:
  KeyIndex() { add_section("", root_schema().fields); }
  const std::vector<KeyPlace>& places() const& { return places_; }
  const std::vector<std::pair<std::string, const Family*>>& families() const& { return families_; }
  void places() && = delete;  // for (... : KeyIndex().places()) would dangle
  void families() && = delete;

 private:
  void add_section(const std::string& path, const std::vector<Field>& fields) {
    for (const Field& f : fields)
      if (f.kind != FieldKind::not_yet) add(path.empty() ? f.key : path + "." + f.key, f, {}, nullptr);
  }
  void add(const std::string& path, const Field& f, const std::string& type, const Family* family) {
    const auto known =
        std::find_if(places_.begin(), places_.end(), [&](const KeyPlace& p) { return p.path == path && same_text(*p.field, f); });
    if (known != places_.end()) {
      if (!type.empty()) known->types.push_back(type);
      return;
    }
    places_.push_back({path, &f, type.empty() ? std::vector<std::string>() : std::vector<std::string>{type}, family});
    if (const Section* inner = section_of(f)) add_section(path, inner->fields);
    if (const Family* inner = family_of(f)) add_family(path, *inner);
  }
  void add_family(const std::string& path, const Family& f) {
    for (const auto& [known_path, known] : families_)
      if (known == &f) return;
    families_.emplace_back(path, &f);
    for (const Component& c : f.components)
      for (const Field& field : c.fields)
        if (field.kind != FieldKind::not_yet) add(path + "." + field.key, field, c.type, &f);
    for (const Field& field : f.common) add(path + "." + field.key, field, "every type", &f);
  }

  std::vector<KeyPlace> places_;
  std::vector<std::pair<std::string, const Family*>> families_;
};

// Wraps `text` to kWidth columns, with `indent` spaces before all lines except the first.
std::string wrapped(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find(' ', at);
    if (end == std::string::npos) end = text.size();
    if (column > indent && column + 1 + end - at > kWidth) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, end - at);
    column += end - at;
    at = end + 1;
  }
  return out;
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string joined_list(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : ", ") + w;
  return out;
}

std::string default_of(const Field& f) {
  if (f.needed) return "none: it must be given";
  if (f.from_input) return "the size of the input there";
  return f.fallback.is_null() ? "left out" : f.fallback.dump();
}

// Formats fields. groups: a type's own fields before the common ones, which they override.
std::string keys_of(const std::vector<const std::vector<Field>*>& groups) {
  std::vector<const Field*> shown;
  size_t width = 0;
  for (const auto* fields : groups) {
    for (const Field& f : *fields) {
      const auto has_key = [&](const Field* other) { return other->key == f.key; };
      if (f.kind == FieldKind::not_yet || std::any_of(shown.begin(), shown.end(), has_key)) continue;
      shown.push_back(&f);
      width = std::max(width, f.key.size());
    }
  }
  std::string out;
  for (const Field* f : shown) {
    const std::string given = f->needed ? "; must be given" : f->fallback.is_null() ? "" : "; default " + f->fallback.dump();
    const std::string text = (f->doc.empty() ? "" : f->doc + " (") + f->expects() + given + (f->doc.empty() ? "" : ")");
    out += "  " + padded(f->key, width) + "  " + wrapped(text, width + 4) + '\n';
  }
  return out;
}

std::string types_of(const Family& family) {
  std::string out;
  size_t width = 0;
  for (const Component& c : family.components) width = std::max(width, c.type.size());
  for (const Component& c : family.components) out += "  " + padded(c.type, width) + "  " + wrapped(c.doc, width + 4) + '\n';
  return out;
}

std::string line(const char* name, const std::string& text) {
  return "  " + padded(name, kLabelWidth) + wrapped(text, kLabelWidth + 2) + '\n';
}

std::string text_of(const KeyPlace& p) {
  const Field& f = *p.field;
  std::string out = wrapped(p.path + (f.doc.empty() ? "" : ": " + f.doc), 2) + '\n' + line("value", f.expects());
  if (f.kind != FieldKind::section) out += line("default", default_of(f));
  if (!p.types.empty()) out += line("in", joined_list(p.types));
  const std::vector<std::string> others = other_names(f.key);
  if (!others.empty()) out += line("called", joined_list(others) + " in other programs");
  if (const Section* inner = section_of(f)) out += keys_of({&inner->fields});
  if (const Family* inner = family_of(f); inner && (!p.family || inner != p.family)) out += types_of(*inner);
  return out;
}

std::string text_of(const std::string& path, const Family& family, const Component& c) {
  std::string out = c.type + " (" + family.what + ", in \"" + path + "\")" + (c.doc.empty() ? "" : ": " + c.doc) + '\n';
  const std::string keys = keys_of({&c.fields, &family.common});
  out += keys.empty() ? "  takes no keys\n" : keys;
  const std::string example = &family == &dataset_family() ? dataset_example(c.type) : "";
  return out + (example.empty() ? "" : "a config with it:\n" + example);
}

// Returns a path without the parts that are numbers: "model.layers.bias" for "model.layers.0.bias".
std::string without_numbers(const std::string& path) {
  std::string out;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (part.empty() || !std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); }))
      out += (out.empty() ? "" : ".") + part;
    at = end + 1;
  }
  return out;
}

// Returns whether the path leads to the place; the part of the path between two keys of one family is ignored, as in
// "model.layers.bias".
bool is_at(const KeyPlace& p, const std::string& path) {
  if (p.path == path) return true;
  if (!p.family) return false;
  const size_t key = p.path.rfind('.'), given = path.rfind('.');
  return given != std::string::npos && p.path.substr(key) == path.substr(given) && path.starts_with(p.path.substr(0, key + 1));
}

std::vector<std::string> parts_of_path(const std::string& path) {
  std::vector<std::string> out(1);
  for (const char c : path) {
    if (c == '.')
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

// Returns whether the parts of `given`, except the last one, occur in `path` in the same order. It may omit parts of the path, as
// data.missing does. "val" and "test" count as "train". Ignores "layers" and types that have the key, as in optimizer.AdamW.lr.
bool leads_to(const std::vector<std::string>& given, const std::vector<std::string>& path, const std::vector<std::string>& types) {
  size_t at = 0;
  for (size_t i = 0; i + 1 < given.size(); ++i) {
    const std::string part = given[i] == "val" || given[i] == "test" ? "train" : given[i];
    if (part == "layers" || std::find(types.begin(), types.end(), part) != types.end()) continue;
    while (at < path.size() && path[at] != part) ++at;
    if (at++ == path.size()) return false;
  }
  return true;
}

// Returns the text about everything that the path, key or type means; "" if nothing.
std::string text_at(const KeyIndex& index, const std::string& path) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : "\n") + text; };

  for (const KeyPlace& p : index.places())
    if (is_at(p, path)) add(text_of(p));
  if (!out.empty()) return out;

  const size_t dot = path.find('.');
  const std::string type = path.substr(0, dot), key = dot == std::string::npos ? "" : path.substr(dot + 1);
  for (const auto& [at, family] : index.families()) {
    const Component* c = family->find(type);
    if (!c) continue;
    if (key.empty()) add(text_of(at, *family, *c));
    for (const auto* fields : {&c->fields, &family->common})
      for (const Field& f : *fields)
        if (f.key == key) add(text_of(KeyPlace{at + "." + key, &f, {c->type}, family}));
  }
  if (!out.empty()) return out;

  const std::vector<std::string> given = parts_of_path(path);
  for (const KeyPlace& p : index.places()) {
    const std::vector<std::string> own = parts_of_path(p.path);
    if (own.back() == given.back() && leads_to(given, own, p.types)) add(text_of(p));
  }
  for (const auto& [at, family] : index.families()) {
    const Component* c = family->find(given.back());
    if (c && leads_to(given, parts_of_path(at), {})) add(text_of(at, *family, *c));
  }
  return out;
}

}  // namespace

std::string setting_named(std::string word) {
  std::replace(word.begin(), word.end(), '-', '_');
  const auto key_of = [](const KeyPlace& p) { return p.path.substr(p.path.rfind('.') + 1); };
  const KeyIndex index;
  std::vector<std::string> keys;
  for (const KeyPlace& p : index.places())
    if (p.family != &module_family()) keys.push_back(key_of(p));
  const std::string near = suggest(word, keys);
  // Prefer the key with the shortest path, and then one that every config has.
  const auto rank = [](const KeyPlace& p) { return 2 * std::count(p.path.begin(), p.path.end(), '.') + (p.family ? 1 : 0); };
  const KeyPlace* found = nullptr;
  for (const KeyPlace& p : index.places()) {
    if (p.family == &module_family() || key_of(p) != near) continue;
    if (!found || rank(p) < rank(*found)) found = &p;
  }
  return found ? found->path : "";
}

std::vector<std::string> setting_paths() {
  const KeyIndex index;
  std::vector<std::string> out;
  for (const KeyPlace& p : index.places())
    if (p.family != &module_family() && p.family != &dataset_family() && !section_of(*p.field)) out.push_back(p.path);
  return out;
}

std::vector<std::string> type_names() {
  const KeyIndex index;
  std::vector<std::string> out;
  for (const auto& [path, family] : index.families())
    for (const Component& c : family->components) out.push_back(c.type);
  return out;
}

std::vector<std::string> words_of_setting(const std::string& path) {
  const KeyIndex index;
  for (const KeyPlace& p : index.places()) {
    if (p.path != path) continue;
    std::vector<std::string> out = p.field->words;
    if (p.field->kind == FieldKind::boolean || p.field->switchable) out.insert(out.end(), {"true", "false"});
    if (const Family* family = family_of(*p.field))
      for (const Component& c : family->components) out.push_back(c.type);
    return out;
  }
  return {};
}

std::string explain(const std::string& what) {
  if (what.empty()) return "The keys of a config; `halfstep explain KEY` says more of each:\n" + keys_of({&root_schema().fields});
  const KeyIndex index;
  std::vector<std::string> names;
  for (const auto& [at, family] : index.families())
    for (const Component& c : family->components) names.push_back(c.type);
  for (const KeyPlace& p : index.places()) names.push_back(p.path.substr(p.path.rfind('.') + 1));
  std::string near;
  // Words may be parts of a path or of a name: "optimizer momentum", "early stopping", "batch size".
  for (const char* separator : {".", "_", ""}) {
    std::string path;
    for (const char c : what) path += c == ' ' ? separator : std::string(1, c);
    path = without_numbers(path);
    if (const std::string found = text_at(index, path); !found.empty()) return found;
    const std::string last = path.substr(path.rfind('.') + 1), meant = suggest(last, names);
    if (const std::vector<std::string> others = other_names(meant); std::find(others.begin(), others.end(), last) != others.end())
      return joined(what, " is called ", meant, " here.\n\n", text_at(index, path.substr(0, path.size() - last.size()) + meant));
    if (near.empty()) near = meant;
    if (what.find(' ') == std::string::npos) break;
  }
  if (near.empty())
    fail<ConfigError>("explain", "there is no key and no type \"", what, '"', Help{"halfstep explain lists the keys of a config"});
  fail<ConfigError>("explain", "there is no key and no type \"", what, '"', Help{"did you mean \"" + near + "\"?"});
}

}  // namespace halfstep::app
