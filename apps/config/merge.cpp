// SPDX-License-Identifier: Apache-2.0
#include "apps/config/merge.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "apps/catalog/datasets.h"
#include "framework/base/check.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

void erase_below(Origins& origins, const std::string& path) {
  const std::string prefix = path + ".";
  auto it = origins.lower_bound(prefix);
  while (it != origins.end() && it->first.starts_with(prefix)) it = origins.erase(it);
}

using Tree = nlohmann::json;

constexpr size_t kMaxChain = 32;                  // longest chain of "extends"
constexpr size_t kMaxExpanded = size_t(1) << 20;  // most bytes that ${...} may expand to, in all
constexpr size_t kMaxShownOption = 200;           // bytes of a --set in messages
constexpr size_t kMaxIndexDigits = 7;             // of a list's index: std::stoul never overflows

bool is_off(const Tree& section) { return section.is_object() && section.contains("enabled") && section["enabled"] == false; }

// Reports the first key for a section that the base has switched off, where it would have no effect.
void check_switched_on(const Tree& base, const Tree& over, const std::string& path, Issues& issues) {
  if (!is_off(base) || over.contains("enabled")) return;
  const auto given = std::find_if(over.begin(), over.end(), [](const Tree& value) { return !value.is_null(); });
  if (given == over.end()) return;
  issues.error(join_path(path, given.key()),
               "has no effect: the config that this one extends has " + path + " switched off; add \"enabled\": true");
}

void merge_value(Tree& base, Origins& origins, const Tree& over, const Origins& over_origins, const std::string& path,
                 Issues& issues) {
  const auto take_origin = [&](const std::string& p) {
    if (const auto it = over_origins.find(p); it != over_origins.end()) origins[p] = it->second;
  };
  take_origin(path);
  if (base.is_object() && over.is_object()) {
    check_switched_on(base, over, path, issues);
    for (const auto& [key, value] : over.items()) {
      const std::string below = join_path(path, key);
      if (value.is_null()) {
        base.erase(key);
        origins.erase(below);
        erase_below(origins, below);
      } else {
        merge_value(base[key], origins, value, over_origins, below, issues);
      }
    }
    return;
  }
  erase_below(origins, path);
  for (auto it = over_origins.lower_bound(path + "."); it != over_origins.end() && it->first.starts_with(path + "."); ++it) {
    origins[it->first] = it->second;
  }
  base = over;
}

ParsedJson load_chain(const std::filesystem::path& file, Issues& issues, std::vector<std::filesystem::path>& open,
                      size_t& bytes_left) {
  ParsedJson own = parse_json_file(file, bytes_left, issues);
  std::error_code error;  // never set: the file was just read
  const std::filesystem::path self = std::filesystem::weakly_canonical(file, error);
  if (std::find(open.begin(), open.end(), self) != open.end()) {
    std::string circle;
    for (const auto& p : open) circle += p.filename().string() + " -> ";
    fail<ConfigError>("config", "extends must not form a circle, got ", circle, self.filename().string());
  }
  open.push_back(self);
  check<ConfigError>(open.size() <= kMaxChain, "config", "extends must not lead over more than ", kMaxChain,
                     " files, got one more at ", file.string());
  if (!own.json.is_object() || !own.json.contains("extends") || !own.json["extends"].is_string()) return own;
  ParsedJson out = load_chain(file.parent_path() / own.json["extends"].get<std::string>(), issues, open, bytes_left);
  merge_over(out, own, issues);
  return out;
}

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> out;
  for (size_t begin = 0;;) {
    const size_t dot = path.find('.', begin);
    out.push_back(path.substr(begin, dot - begin));
    if (dot == std::string::npos) return out;
    begin = dot + 1;
  }
}

bool is_index(const std::string& s) {
  return !s.empty() && s.size() <= kMaxIndexDigits && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns whether a string can be written as JSON and passed to C interfaces. Strings of files were checked when they were read;
// the command line, the environment and file names may contain anything.
bool is_text(const std::string& s) {
  try {
    return s.find('\0') == std::string::npos && !Tree(s).dump().empty();
  } catch (const Tree::type_error&) { return false; }  // not UTF-8
}

// Returns whether a data set of this type has the key. An unknown type has only "type", and is reported later.
bool is_key_of_data_set(const Tree& type, const std::string& key) {
  const Component* const found = type.is_string() ? dataset_family().find(type.get<std::string>()) : nullptr;
  const auto among = [&](const std::vector<Field>& fields) {
    return std::any_of(fields.begin(), fields.end(), [&](const Field& f) { return f.key == key; });
  };
  return key == "type" || (found && (among(found->fields) || among(dataset_family().common)));
}

void copy_origins(Origins& origins, const std::string& from, const std::string& to) {
  std::vector<std::pair<std::string, SourceLocation>> found;
  for (auto it = origins.lower_bound(from); it != origins.end() && it->first.starts_with(from); ++it) {
    if (it->first.size() == from.size() || it->first[from.size()] == '.')
      found.emplace_back(to + it->first.substr(from.size()), it->second);
  }
  for (auto& [path, origin] : found) origins[path] = std::move(origin);
}

// Replaces the variables in strings.
class Expander {
 public:
  Expander(const Tree& root, const std::filesystem::path& file, Issues& issues)
      : name_(root.value("name", Tree())), seed_(root.value("seed", Tree(0))), file_(file), issues_(issues) {}

  void expand_value(Tree& v, const std::string& path) {
    if (v.is_string()) {
      std::string& s = v.get_ref<std::string&>();
      if (s.find("${") != std::string::npos) s = expanded(s, path);
      if (!is_text(s)) issues_.error(path, "must be UTF-8 without NUL characters"), v = "";
    } else if (v.is_object()) {
      for (auto it = v.begin(); it != v.end(); ++it) {
        if (!is_text(it.key())) {
          issues_.error(path, "keys must be UTF-8 without NUL characters");
          v = nullptr;
          return;
        }
        if (it.key() != "vocabulary") expand_value(*it, join_path(path, it.key()));  // a text's tokens are literal
      }
    } else if (v.is_array()) {
      for (size_t i = 0; i < v.size(); ++i) expand_value(v[i], join_path(path, i));
    }
  }

 private:
  std::string expanded(const std::string& in, const std::string& path) {
    std::string out;
    for (size_t at = 0; at < in.size();) {
      const size_t open = in.find("${", at), close = open == std::string::npos ? open : in.find('}', open);
      out += in.substr(at, open - at);
      if (close == std::string::npos) {
        if (open != std::string::npos) out += in.substr(open);
        break;
      }
      const std::string text = value_of(in.substr(open + 2, close - open - 2), path);
      if (text.size() > bytes_left_) {
        issues_.error(path, "all ${...} together must not come to more than " + std::to_string(kMaxExpanded) + " bytes");
        return "";
      }
      bytes_left_ -= text.size();
      out += text;
      at = close + 1;
    }
    return out;
  }
  std::string value_of(const std::string& name, const std::string& path) {
    if (name == "name" && name_.is_string()) return name_.get<std::string>();
    if (name == "seed") return seed_.is_number() ? seed_.dump() : "0";
    if (name == "config_dir") return file_.parent_path().empty() ? "." : file_.parent_path().string();
    if (name.starts_with("env:")) {
      if (const char* set = std::getenv(name.c_str() + 4)) return set;
      issues_.error(path, "the environment variable " + name.substr(4) + " is not set");
      return "";
    }
    issues_.error(path, "unknown variable ${" + name + "}; there are ${name}, ${seed}, ${config_dir} and ${env:X}");
    return "";
  }

  const Tree name_, seed_;  // copies: strings are replaced during the walk
  const std::filesystem::path& file_;
  Issues& issues_;
  size_t bytes_left_ = kMaxExpanded;
};

}  // namespace

void merge_over(ParsedJson& base, const ParsedJson& over, Issues& issues) {
  merge_value(base.json, base.origins, over.json, over.origins, "", issues);
}

ParsedJson load_with_bases(const std::filesystem::path& file, Issues& issues) {
  std::vector<std::filesystem::path> open;
  size_t bytes_left = kMaxConfigBytes;
  return load_chain(file, issues, open, bytes_left);
}

void apply_set(ParsedJson& config, const std::string& assignment, Issues& issues) {
  const size_t equals = assignment.find('=');
  const std::string path = assignment.substr(0, equals);
  const std::string origin =
      "--set " + (assignment.size() > kMaxShownOption ? assignment.substr(0, kMaxShownOption) + "..." : assignment);
  if (equals == std::string::npos || path.empty()) return issues.error("", origin + ": must have the form key.key=value");
  Tree value;
  try {
    value = read_json<Tree>(assignment.substr(equals + 1));
  } catch (const JsonError& e) {
    if (e.refused) return issues.error("", origin + ": " + e.what());
    value = assignment.substr(equals + 1);
  }

  const std::vector<std::string> keys = split_path(path);
  if (keys.size() > size_t(kMaxJsonDepth)) {
    return issues.error(
        "", origin + ": a key may have " + std::to_string(kMaxJsonDepth) + " parts, got " + std::to_string(keys.size()));
  }
  Tree* at = &config.json;
  std::string walked;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string& key = keys[i];
    // What is short for an object becomes it: a boolean switches a section on or off, a name is its type, weights a path.
    if (at->is_boolean()) *at = at->get<bool>() ? Tree::object() : Tree{{"enabled", false}};
    if (at->is_null()) *at = Tree::object();
    if (at->is_string()) *at = Tree{{i > 0 && keys[i - 1] == "weights" ? "path" : "type", *at}};
    if (at->is_array()) {
      if (!is_index(key) || std::stoul(key) >= at->size()) {
        return issues.error("", origin + ": " + walked + " is a list of " + std::to_string(at->size()) +
                                    ", so it takes an index below that, got \"" + key + "\"");
      }
      at = &(*at)[std::stoul(key)];
    } else if (at->is_object()) {
      at = &(*at)[key];
    } else {
      return issues.error("", origin + ": " + walked + " is " + at->dump() + ", which has no keys");
    }
    walked = join_path(walked, key);
    config.origins.try_emplace(walked, SourceLocation{origin, {}, {}});
  }
  *at = std::move(value);
  erase_below(config.origins, path);
  config.origins[path] = {origin, {}, {}};
}

void replace_rivals(ParsedJson& config, const std::vector<std::string>& sets, Issues& issues) {
  if (!config.json.is_object()) return;
  const auto is_set = [&](const std::string& path) {
    return std::any_of(sets.begin(), sets.end(), [&](const std::string& set) {
      return set.starts_with(path + "=") && set.substr(path.size() + 1) != "null";
    });
  };
  const auto replace = [&](Tree& section, const std::string& by, const std::string& path, const char* key, const char* other) {
    if (!is_set(by) || is_set(join_path(path, other)) || !section.is_object()) return;
    const auto rival = section.find(other);
    if (rival == section.end() || rival->is_null()) return;
    issues.warn(join_path(path, key), joined("takes the place of ", other, ", which is ", rival->dump()));
    section.erase(rival);
  };
  if (config.json.contains("train")) {
    replace(config.json["train"], "train.max_steps", "train", "max_steps", "epochs");
    replace(config.json["train"], "train.epochs", "train", "epochs", "max_steps");
  }
  if (!config.json.contains("data") || !config.json["data"].is_object()) return;
  for (const char* split : {"train", "val", "test"}) {
    if (!config.json["data"].contains(split)) continue;
    const std::string path = join_path("data", split);
    for (const std::string& by : {std::string("data.fold"), join_path(path, "fold")})
      replace(config.json["data"][split], by, path, "fold", "range");
  }
}

void share_data_keys(ParsedJson& config) {
  if (!config.json.is_object() || !config.json.contains("data") || !config.json["data"].is_object()) return;
  Tree& data = config.json["data"];
  Tree shared = Tree::object();
  for (const auto& [key, value] : data.items()) {
    const bool belongs_to_data = key == "root" || key == "train" || key == "val" || key == "test" || key == "loader";
    if (!belongs_to_data) shared[key] = value;
  }
  for (const char* name : {"train", "val", "test"}) {
    if (shared.empty() || !data.contains(name) || !(data[name].is_object() || data[name].is_string())) continue;
    Tree split = data[name].is_string() ? Tree{{"type", data[name]}} : data[name];
    const Tree common = shared.value("type", Tree()), type = split.value("type", common);
    for (const auto& [key, value] : shared.items()) {
      // An unknown key goes to the first split, where the error can suggest keys of that data set.
      const bool unknown = common.is_string() && !is_key_of_data_set(common, key) && data.contains(key);
      if (!unknown && !is_key_of_data_set(type, key)) continue;
      data.erase(key);
      if (value.is_null() || (split.contains(key) && !split[key].is_null())) continue;
      split[key] = value;
      copy_origins(config.origins, join_path("data", key), join_path(join_path("data", name), key));
    }
    if (data[name].is_object() || split.size() > 1) data[name] = std::move(split);
  }
}

void check_effective(const ParsedJson& config, const std::vector<std::string>& sets, Issues& issues) {
  const auto path_of = [](const std::string& set) { return set.substr(0, set.find('=')); };
  for (const std::string& set : sets) {
    const std::vector<std::string> keys = split_path(path_of(set));
    const Tree* at = &config.json;
    std::string walked;
    for (size_t i = 0; i + 1 < keys.size() && at->is_object() && at->contains(keys[i]); ++i) {
      at = &(*at)[keys[i]];
      walked = join_path(walked, keys[i]);
      const std::string on = walked + ".enabled";
      const bool is_set = std::any_of(sets.begin(), sets.end(), [&](const std::string& other) { return path_of(other) == on; });
      if (!is_off(*at) || is_set) continue;
      issues.error(path_of(set), "has no effect while " + walked + " is switched off; add --set " + on + "=true");
      break;
    }
  }
}

void expand(ParsedJson& config, const std::filesystem::path& file, Issues& issues) {
  if (!config.json.is_object()) return;
  Tree& name = config.json["name"];
  if (name.is_null()) name = file.stem().string();
  if (!config.json.contains("output_dir") || config.json["output_dir"].is_null()) config.json["output_dir"] = "runs/${name}";
  Expander(config.json, file, issues).expand_value(config.json, "");
}

}  // namespace halfstep::app
