// SPDX-License-Identifier: Apache-2.0
#include "apps/config/explain.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/catalog/rows/dataset_examples.h"
#include "apps/config/key_index.h"
#include "apps/schema/suggest.h"
#include "framework/base/check.h"
#include "framework/base/number_text.h"

namespace halfstep::app {
namespace {

constexpr size_t kWidth = 100;     // columns of a line
constexpr size_t kLabelWidth = 9;  // columns of "default  "

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
    if (part.empty() || !std::all_of(part.begin(), part.end(), is_digit)) out += (out.empty() ? "" : ".") + part;
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
