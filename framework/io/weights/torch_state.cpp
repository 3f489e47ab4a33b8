// SPDX-License-Identifier: Apache-2.0
#include "framework/io/weights/torch_state.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/io/files/printable.h"

namespace halfstep {
namespace {

using Kind = PickleValue::Kind;

constexpr const char* kTorchState = "torch_file";
constexpr int kMaxStateDepth = 8;          // nested dictionaries
constexpr int kMaxModuleDepth = 100;       // modules inside one another
constexpr size_t kMaxPrefix = 1000;        // bytes of the names of nested modules
constexpr size_t kMostOptimizerKeys = 20;  // entries of an optimizer's dictionary, and of wrappers of it
constexpr size_t kMostKeyText = 400;       // bytes of a list of keys in an error
constexpr size_t kMaxStatePath = 300;      // bytes of all keys together
constexpr size_t kListedStates = 12;       // dictionaries that an error lists
constexpr std::string_view kTop = "/";

// Returns the keys and values of a dictionary, or of an object with pairs.
std::span<const uint32_t> entries_of(const PickleValue& v) {
  if (v.kind == Kind::map) return v.items;
  return v.kind == Kind::call ? std::span(v.items).subspan(2) : std::span<const uint32_t>();
}

// Recognises {"state": ..., "param_groups": ...}.
bool is_optimizer(const Pickle& pickle, std::span<const uint32_t> entries) {
  int found = 0;  // of the two keys
  for (size_t i = 0; i + 1 < entries.size() && entries.size() <= kMostOptimizerKeys; i += 2) {
    const PickleValue& key = pickle[entries[i]];
    found += key.kind == Kind::text && (key.text == "state" || key.text == "param_groups");
  }
  return found == 2;
}

// Returns the value under a key.
const PickleValue* find_entry(const Pickle& pickle, const PickleValue& map, std::string_view name) {
  const auto entries = entries_of(map);
  for (size_t i = 0; i + 1 < entries.size(); i += 2)
    if (pickle[entries[i]].kind == Kind::text && pickle[entries[i]].text == name) return &pickle[entries[i + 1]];
  return nullptr;
}

// Collects the tensors of a module under the names of its state_dict(), from the attributes that every torch.nn.Module has, or from
// those of a module of TorchScript, which are its tensors and modules themselves.
class PickledModule {
 public:
  explicit PickledModule(const Pickle& pickle) : pickle_(pickle), visits_left_(4 * pickle.values().size() + 1000) {}

  // Returns the attributes of a module; null for other objects.
  const PickleValue* attributes(const PickleValue& v) const {
    if (v.kind != Kind::call || v.integer < 0) return nullptr;
    const PickleValue& state = pickle_[uint32_t(v.integer)];
    const bool is_module = find_entry(pickle_, state, "_parameters") && find_entry(pickle_, state, "_modules");
    return is_module || is_scripted(v) ? &state : nullptr;
  }

  // Throws DataError for modules that contain themselves.
  std::vector<TorchState::Entry> tensors(const PickleValue& module, const std::string& file) {
    std::vector<TorchState::Entry> out;
    collect(module, "", 0, file, out);
    return out;
  }

 private:
  void collect(const PickleValue& module, const std::string& prefix, int depth, const std::string& file,
               std::vector<TorchState::Entry>& out) {
    const PickleValue* const members = attributes(module);
    if (!members) return;
    check<DataError>(depth < kMaxModuleDepth && prefix.size() < kMaxPrefix, "torch_file", file,
                     ": modules may be 100 inside one another");
    use_budget(entries_of(*members).size(), file);
    const auto below = [&](std::string_view name, const PickleValue& v) {
      collect(v, joined(prefix, name, '.'), depth + 1, file, out);
    };
    if (is_scripted(module)) {
      for_each_entry(*members, file, [&](std::string_view name, const PickleValue& v) {
        if (is_torch_tensor(pickle_, v))
          out.push_back({joined(prefix, name), &v});
        else
          below(name, v);
      });
      return;
    }
    std::set<std::string_view> left_out;  // buffers that are not saved: a set, or the argument of set()
    const PickleValue* names = find_entry(pickle_, *members, "_non_persistent_buffers_set");
    if (names && names->kind == Kind::call && !pickle_[names->items[1]].items.empty())
      names = &pickle_[pickle_[names->items[1]].items[0]];
    if (names) use_budget(names->items.size(), file);
    for (size_t i = 0; names && i < names->items.size(); ++i) left_out.insert(pickle_[names->items[i]].text);
    for (const char* kind : {"_parameters", "_buffers"})
      for_each_entry_of(*members, kind, file, [&](std::string_view name, const PickleValue& v) {
        if (is_torch_tensor(pickle_, v) && !left_out.contains(name)) out.push_back({joined(prefix, name), &v});
      });
    for_each_entry_of(*members, "_modules", file, below);
  }

  bool is_scripted(const PickleValue& module) const { return pickle_class(pickle_, module).starts_with("__torch__."); }

  template <class F>
  void for_each_entry_of(const PickleValue& attributes, const char* kind, const std::string& file, const F& f) {
    if (const PickleValue* const map = find_entry(pickle_, attributes, kind)) for_each_entry(*map, file, f);
  }
  template <class F>
  void for_each_entry(const PickleValue& map, const std::string& file, const F& f) {
    const auto entries = entries_of(map);
    use_budget(entries.size(), file);
    for (size_t i = 0; i + 1 < entries.size(); i += 2)
      if (pickle_[entries[i]].kind == Kind::text) f(pickle_[entries[i]].text, pickle_[entries[i + 1]]);
  }

  void use_budget(size_t entries, const std::string& file) {
    check<DataError>(entries <= visits_left_, "torch_file", file, ": is damaged: its modules hold one another");
    visits_left_ -= entries;
  }

  const Pickle& pickle_;
  size_t visits_left_;  // entries that may still be visited: shared modules are visited repeatedly, but not without end
};

// A dictionary that holds tensors, or a module.
struct Candidate {
  std::string key;
  const PickleValue* map;
  size_t tensors = 0;
  size_t shaped = 0;  // tensors with dimensions
};

// Finds all candidates in a pickle, then chooses one.
class StateFinder {
 public:
  StateFinder(const std::string& file, const Pickle& pickle) : file_(file), pickle_(pickle), modules_(pickle) {
    visit(pickle.root(), "", 0);
  }

  // Returns the only dictionary of tensors that is not inside one with at least as many. Throws SeveralStates, or DataError if
  // there is none.
  const PickleValue& find_only() {
    const bool any_shaped = std::any_of(found_.begin(), found_.end(), [](const Candidate& c) { return c.shaped > 0; });
    std::erase_if(found_, [&](const Candidate& c) { return any_shaped && c.shaped == 0; });
    std::map<std::string_view, size_t> tensors_at;  // by key
    for (const Candidate& c : found_) tensors_at[c.key] = c.tensors;
    const auto inside_another = [&](const Candidate& c) {
      const std::string_view key = c.key;
      for (size_t end = key.empty() ? key.npos : key.rfind('/'); !key.empty(); end = key.rfind('/', end - 1)) {
        const auto around = tensors_at.find(end == key.npos ? std::string_view() : key.substr(0, end));
        if (around != tensors_at.end() && around->second >= c.tensors) return true;
        if (end == key.npos || end == 0) break;
      }
      return false;
    };
    std::vector<const Candidate*> outermost;
    for (const Candidate& c : found_)
      if (!inside_another(c)) outermost.push_back(&c);
    if (outermost.empty() && pickle_.root().kind == Kind::map && pickle_.root().items.empty()) return pickle_.root();
    if (outermost.empty()) refuse();
    if (outermost.size() > 1) {
      SeveralStates error(joined(
          '[', kTorchState, "] ", file_, ": has several dictionaries of tensors, one of which must be chosen: ", list(outermost),
          Help{joined("\"key\": ", quoted(*outermost[0]), " in \"weights\" of a config, or halfstep inspect --key ",
                      outermost[0]->key.empty() ? kTop : outermost[0]->key)}));
      for (const Candidate* c : outermost) error.keys.push_back(c->key.empty() ? std::string(kTop) : c->key);
      throw error;
    }
    key_ = outermost[0]->key;
    return *outermost[0]->map;
  }

  // Returns the dictionary of tensors under a key. Throws DataError, with the existing ones, if there is none.
  const PickleValue& find_at(std::string_view key) {
    const PickleValue* const value = key == kTop ? &pickle_.root() : find(pickle_.root(), key, 0);
    const bool has_tensors = value && std::any_of(found_.begin(), found_.end(), [&](const Candidate& c) { return c.map == value; });
    if (!has_tensors) {
      std::vector<const Candidate*> all;
      for (const Candidate& c : found_) all.push_back(&c);
      fail<DataError>(
          kTorchState, file_, ": must have ", value ? "tensors under " : "", "the key \"", printable(key), "\"",
          all.empty() ? joined(", got the keys ", keys(pickle_.root())) : "; its dictionaries of tensors are " + list(all));
    }
    key_ = key == kTop ? "" : key;
    return *value;
  }

  const std::string& key() const { return key_; }

 private:
  // Adds the value, if it holds tensors, and the values below it to the candidates.
  void visit(const PickleValue& value, const std::string& path, int depth) {
    const auto entries = entries_of(value);
    if (is_torch_tensor(pickle_, value) || depth > kMaxStateDepth || path.size() > kMaxStatePath || !seen_.insert(&value).second)
      return;
    if (is_optimizer(pickle_, entries)) return;
    Candidate here{path, &value};
    if (modules_.attributes(value)) {
      for (const TorchState::Entry& entry : modules_.tensors(value, file_)) {
        ++here.tensors;
        here.shaped += !is_torch_scalar(pickle_, *entry.value);
      }
      if (here.tensors > 0) found_.push_back(std::move(here));
      return;
    }
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleValue &key = pickle_[entries[i]], &held = pickle_[entries[i + 1]];
      if (key.kind != Kind::text || !is_torch_tensor(pickle_, held)) continue;
      ++here.tensors;
      here.shaped += !is_torch_scalar(pickle_, held);
    }
    if (here.tensors > 0) found_.push_back(std::move(here));
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleValue &key = pickle_[entries[i]], &held = pickle_[entries[i + 1]];
      if (key.kind != Kind::text || key.text.size() > kMaxStatePath ||
          (entries_of(held).empty() && (held.kind != Kind::call || held.integer < 0)))
        continue;
      visit(held, path.empty() ? std::string(key.text) : joined(path, '/', key.text), depth + 1);
    }
  }

  // Finds the value below a key; keys may themselves contain a slash.
  const PickleValue* find(const PickleValue& in, std::string_view key, int depth) {
    const auto entries = entries_of(in);
    if (!tried_.insert({&in, key.size()}).second) return nullptr;
    for (size_t i = 0; i + 1 < entries.size() && depth <= kMaxStateDepth; i += 2) {
      const PickleValue& name = pickle_[entries[i]];
      if (name.kind != Kind::text || !key.starts_with(name.text)) continue;
      const PickleValue& held = pickle_[entries[i + 1]];
      if (key.size() == name.text.size()) return &held;
      if (key[name.text.size()] != '/') continue;
      if (const PickleValue* const below = find(held, key.substr(name.text.size() + 1), depth + 1)) return below;
    }
    return nullptr;
  }

  static std::string quoted(const Candidate& c) { return joined('"', c.key.empty() ? std::string(kTop) : printable(c.key), '"'); }
  static std::string list(const std::vector<const Candidate*>& all) {
    std::vector<std::string> out;
    for (const Candidate* c : all) out.push_back(joined(quoted(*c), " (", c->tensors, c->tensors == 1 ? " tensor)" : " tensors)"));
    return list_text(out, kListedStates);
  }

  // Returns the first keys of a dictionary, for an error.
  std::string keys(const PickleValue& map) const {
    std::string out;
    const auto entries = entries_of(map);
    for (size_t i = 0; i + 1 < entries.size() && out.size() < kMostKeyText; i += 2) {
      const PickleValue& key = pickle_[entries[i]];
      out += i > 0 ? ", " : "";
      out += key.kind == Kind::text ? printable(key.text, 60) : key.kind == Kind::integer ? std::to_string(key.integer) : "?";
      if (out.size() >= kMostKeyText) out += "...";
    }
    return out.empty() ? "none" : out;
  }

  // Throws an error that lists what the file has instead of a dictionary of tensors, with Python code that makes one, if possible.
  [[noreturn]] void refuse() const {
    const PickleValue& root = pickle_.root();
    const std::string load = torch_load_code(file_, pickle_);
    const auto save = [](const std::string& what) {
      return joined("in Python, import torch; torch.save(", what, ", \"weights.pt\")");
    };
    const auto is_tensor = [&](uint32_t i) { return is_torch_tensor(pickle_, pickle_[i]); };
    const auto& values = pickle_.values();
    const bool has_tensors =
        std::any_of(values.begin(), values.end(), [&](const PickleValue& v) { return is_torch_tensor(pickle_, v); });
    std::string got(pickle_kind_words(root.kind)), help = "it holds no tensors: the weights are in another file";
    if (has_tensors) help = joined("in Python, torch.save saves the part of ", load, " that is a dictionary of tensors");
    if (root.kind == Kind::map) {
      got = joined("the keys ", keys(root));
      for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
        const PickleValue& object = pickle_[root.items[i + 1]];
        if (!is_foreign(pickle_, object)) continue;
        const std::string made_by = pickle_class(pickle_, object);
        got += joined("; \"", printable(pickle_[root.items[i]].text, 60), "\" is the Python object ", made_by,
                      ", which is not loaded and not run");
        if (made_by.starts_with("numpy.") && made_by.ends_with("._reconstruct"))
          help = save(joined("{k: torch.as_tensor(v) for k, v in ", load, ".items()}"));
        break;
      }
    } else if (is_torch_tensor(pickle_, root)) {
      got = "a tensor", help = save(joined("{\"weight\": ", load, "}"));
    } else if (std::any_of(root.items.begin(), root.items.end(), is_tensor) && root.kind != Kind::call) {
      help = save(joined("{str(i): t for i, t in enumerate(", load, ")}"));
    } else if (root.kind == Kind::call) {
      got = joined("the Python object ", pickle_class(pickle_, root), ", which is not loaded and not run");
      if (has_tensors) help = joined("if it is a model whose class can be imported: ", save(load + ".state_dict()"));
    }
    fail<DataError>(kTorchState, file_, ": must be or have a dictionary of tensors, got ", got, Help{help});
  }

  const std::string& file_;
  const Pickle& pickle_;
  PickledModule modules_;
  std::set<const PickleValue*> seen_;
  std::set<std::pair<const PickleValue*, size_t>> tried_;  // dictionaries in which a rest of the key, of that length, was not found
  std::vector<Candidate> found_;
  std::string key_;
};

}  // namespace

TorchState find_torch_state(const std::string& file, const Pickle& pickle, std::string_view key) {
  StateFinder finder(file, pickle);
  const PickleValue& map = key.empty() ? finder.find_only() : finder.find_at(key);
  TorchState out;
  out.key = finder.key();
  if (PickledModule module(pickle); module.attributes(map)) {
    out.tensors = module.tensors(map, file);
    out.model = pickle_class(pickle, map);
    return out;
  }
  const auto entries = entries_of(map);
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    const PickleValue &name = pickle[entries[i]], &value = pickle[entries[i + 1]];
    if (name.kind == Kind::text && is_torch_tensor(pickle, value))
      out.tensors.push_back({std::string(name.text), &value});
    else if (name.kind == Kind::text && is_foreign(pickle, value))
      out.objects.push_back({std::string(name.text), &value});
    else
      ++out.others;
  }
  return out;
}

}  // namespace halfstep
