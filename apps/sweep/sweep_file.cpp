// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/sweep_file.h"

#include <algorithm>
#include <utility>

#include "apps/config/merge.h"
#include "apps/config/source.h"
#include "apps/schema/schema.h"
#include "apps/schema/shell_word.h"
#include "apps/schema/suggest.h"
#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

constexpr size_t kMaxSweepBytes = size_t(1) << 20;
constexpr size_t kMaxSweepKeys = 100;
constexpr double kMostSeed = 9e15;  // JSON's numbers are exact up to here

const Section& draws_section() {
  static const Section section{"random",
                               {integer("draws", nullptr, "how many").required().at_least(1).at_most(kMaxSweepMembers),
                                integer("seed", 0, "of the draws").at_least(0).at_most(kMostSeed)}};
  return section;
}

// Returns a key of the file if its value is an object; null if it is missing or null.
const Json* object_at(const Json& file, const char* key, const std::string& path, Issues& issues) {
  const auto found = file.find(key);
  if (found == file.end() || found->is_null()) return nullptr;
  if (found->is_object()) return &*found;
  issues.error(path, "must be an object, got " + found->dump());
  return nullptr;
}

std::string text_at(const Json& file, const char* key, Issues& issues) {
  const auto found = file.find(key);
  if (found == file.end() || found->is_null()) return "";
  if (found->is_string() && !found->get_ref<const std::string&>().empty()) return found->get<std::string>();
  issues.error(key, "must be a text, got " + found->dump());
  return "";
}

void check_keys(const Json& file, Issues& issues) {
  static const std::vector<std::string> known{"name", "base", "config", "output_dir", "set", "grid", "random"};
  for (const auto& [key, value] : file.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      issues.error(key, "unknown key of a sweep" + did_you_mean(key, known), true);
}

// Checks swept keys: refuses keys that make no sense for a member, and duplicates.
class SweptKeys {
 public:
  explicit SweptKeys(Issues& issues) : issues_(issues) {}
  // path: of the key in the file, for errors.
  void add(const std::string& key, const std::string& path) {
    if (keys_.size() == kMaxSweepKeys) issues_.error(path, joined("a sweep may have ", kMaxSweepKeys, " keys"), true);
    if (keys_.size() >= kMaxSweepKeys) return keys_.push_back(key);
    for (const char* own : {"output_dir", "extends", "checkpoint.resume"})
      if (key == own) issues_.error(path, "cannot be given here: each member has its own folder, and continues by itself", true);
    if (std::find(keys_.begin(), keys_.end(), key) != keys_.end())
      issues_.error(path, "is given in two of \"set\", \"grid\" and \"random\"", true);
    keys_.push_back(key);
  }

 private:
  Issues& issues_;
  std::vector<std::string> keys_;
};

// Combines each of `members` with each of a key's values.
std::vector<Settings> crossed(const std::vector<Settings>& members, const std::string& key, const std::vector<Json>& values) {
  std::vector<Settings> out;
  for (const Settings& member : members) {
    for (const Json& value : values) {
      out.push_back(member);
      out.back().push_back({key, value});
    }
  }
  return out;
}

// Draws the members of "random"; returns one without settings if there is no "random".
std::vector<Settings> draw_members(const Json& file, SweptKeys& keys, Issues& issues, std::vector<std::string>& names) {
  const Json* const random = object_at(file, "random", "random", issues);
  if (!random) return {{}};
  Json rest = *random;
  rest.erase("keys");
  const Json options = validate(rest, draws_section(), "random", issues);
  const Json* const space = object_at(*random, "keys", "random.keys", issues);
  if (!space || space->empty()) {
    issues.error("random.keys", "must have at least one key of the config with its values");
    return {};
  }
  for (const auto& [key, values] : space->items()) {
    const std::string path = join_path("random.keys", key);
    keys.add(key, path);
    check_drawable(values, path, issues);
    names.push_back(key);
  }
  if (issues.errors() > 0) return {};
  std::vector<Settings> out;
  for (int64_t draw = 0; draw < options["draws"].get<int64_t>(); ++draw) {
    out.emplace_back();
    for (const auto& [key, values] : space->items())
      out.back().push_back({key, drawn_value(values, key, options["seed"].get<uint64_t>(), draw)});
  }
  return out;
}

void read_members(const Json& file, SweepFile& sweep, Issues& issues) {
  SweptKeys keys(issues);
  if (const Json* const fixed = object_at(file, "set", "set", issues)) {
    for (const auto& [key, value] : fixed->items()) {
      keys.add(key, join_path("set", key));
      sweep.fixed.push_back({key, value});
    }
  }
  std::vector<std::pair<std::string, std::vector<Json>>> grid;
  size_t points = 1;  // of the grid, as far as they are allowed
  if (const Json* const ranges = object_at(file, "grid", "grid", issues)) {
    for (const auto& [key, values] : ranges->items()) {
      keys.add(key, join_path("grid", key));
      grid.emplace_back(key, grid_values(values, join_path("grid", key), issues));
      points = std::min(points * grid.back().second.size(), size_t(kMaxSweepMembers) + 1);
    }
  }
  std::vector<std::string> drawn;
  sweep.members = draw_members(file, keys, issues, drawn);
  if (grid.empty() && drawn.empty() && issues.errors() == 0) issues.error("", "a sweep needs \"grid\" or \"random\"");
  if (points * std::max<size_t>(1, sweep.members.size()) > size_t(kMaxSweepMembers))
    issues.error("", joined("a sweep may have ", kMaxSweepMembers, " members"));
  if (issues.errors() > 0) return;
  sweep.keys = std::move(drawn);
  for (const auto& [key, values] : grid) {
    sweep.members = crossed(sweep.members, key, values);
    sweep.keys.push_back(key);
  }
}

// Parses "0,1,2", "[0,1,2]", "[0,5],[1,5]", "SGD,Adam", or a range as in a file.
Json values_in(const std::string& text) {
  try {
    const Json list = read_json<Json>("[" + text + "]");
    return list.size() == 1 && (list[0].is_array() || list[0].is_object()) ? list[0] : list;
  } catch (const JsonError&) {}
  Json out = Json::array();
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    try {
      out.push_back(read_json<Json>(word));
    } catch (const JsonError&) { out.push_back(word); }
    at = end + 1;
  }
  return out;
}

// Refuses a config, which would otherwise give an error for each of its keys.
void refuse_config(const Json& file, const std::filesystem::path& path) {
  for (const char* key : {"grid", "random", "base", "config"})
    if (file.contains(key)) return;
  for (const char* key : {"model", "extends"})
    check<ConfigError>(!file.contains(key), "sweep", path.string(), " must be a sweep, but is a config: it has \"", key, '"',
                       Help{"`halfstep train " + shell_word(path.string()) + "` trains it, `halfstep sweep " +
                            shell_word(path.string()) + " optimizer.lr=0.1,0.01` with each of these values"});
}

}  // namespace

SweepFile read_sweep(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path, kMaxSweepBytes);
  } catch (const IoError& e) {
    const std::string why = e.what();
    fail<ConfigError>("sweep", "a sweep must be a readable file; ", why.substr(why.find(']') + 2));
  }
  Issues issues;
  const ParsedJson parsed = parse_json(text, path.string(), issues);
  check<ConfigError>(parsed.json.is_object(), "sweep", path.string(), ": a sweep must be an object",
                     Help{R"(such as {"base": "mnist.json", "grid": {"optimizer.lr": [0.1, 0.01]}})"});
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);      // a byte order mark
  const Json file = read_json<Json>(text, /*comments=*/true);  // keeps the order of keys
  refuse_config(file, path);
  check_keys(file, issues);
  ParsedJson head{nlohmann::json::object(), {}};  // expands ${...} and defaults as in a config
  for (const char* key : {"name", "output_dir", "base"})
    if (const std::string given = text_at(file, key, issues); !given.empty()) head.json[key] = given;
  expand(head, path, issues);
  const std::string base = head.json.value("base", "");
  SweepFile out{.path = path, .name = head.json["name"], .output_dir = head.json["output_dir"].get<std::string>()};
  const Json* const config = object_at(file, "config", "config", issues);
  if (config) out.config = *config;
  if (!base.empty()) out.base = path.parent_path() / base;
  if (base.empty() != bool(config)) issues.error("", R"(needs either "base", the file of a config, or "config" with one)");
  if (config && config->contains("extends"))
    issues.error("config.extends", "cannot be given here: name that file as \"base\"", true);
  read_members(file, out, issues);
  issues.raise(path.string(), parsed.origins);
  return out;
}

SweepFile sweep_of(const std::filesystem::path& config, const std::vector<std::string>& lists) {
  SweepFile out{.path = config, .name = config.stem().string(), .base = config};
  Json grid = Json::object();
  for (const std::string& list : lists) {
    const size_t equals = list.find('=');
    check<ConfigError>(equals != std::string::npos && equals > 0 && equals + 1 < list.size(), "sweep",
                       "keys must have the form KEY=VALUE,VALUE, got ", list, Help{"halfstep sweep config.json seed=0,1,2"});
    const std::string key = list.substr(0, equals);
    check<ConfigError>(!grid.contains(key), "sweep", "a key must be given once, got two lists for ", key);
    grid[key] = values_in(list.substr(equals + 1));
    out.name += '-' + key.substr(key.rfind('.') + 1);
  }
  out.output_dir = std::filesystem::path("runs") / out.name;
  Issues issues;
  Json file = Json::object();
  file["grid"] = grid;
  read_members(file, out, issues);
  issues.raise("the command line", {});
  return out;
}

Config sweep_config(const SweepFile& sweep, const Settings& values, const std::vector<std::string>& sets) {
  ConfigOptions options;
  for (const Settings* settings : {&sweep.fixed, &values})
    for (const Setting& s : *settings) options.sets.push_back(s.key + "=" + s.value.dump());
  options.sets.insert(options.sets.end(), sets.begin(), sets.end());
  return sweep.base.empty() ? resolve_config(sweep.config, sweep.path.string(), options) : load_config(sweep.base, options);
}

}  // namespace halfstep::app
