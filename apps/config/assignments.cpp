// SPDX-License-Identifier: Apache-2.0
// Assignments of the command line: --set a.b=value.
#include <algorithm>
#include <utility>

#include "apps/config/merge.h"
#include "framework/base/check.h"
#include "framework/base/number_text.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

constexpr size_t kMaxShownOption = 200;  // bytes of a --set in messages
constexpr size_t kMaxIndexDigits = 7;    // of a list's index: std::stoul never overflows

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
  return !s.empty() && s.size() <= kMaxIndexDigits && std::all_of(s.begin(), s.end(), is_digit);
}

}  // namespace

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

}  // namespace halfstep::app
